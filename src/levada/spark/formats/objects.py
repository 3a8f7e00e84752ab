"""Compiled: JSON values to lines, one object each, so that a parser of lines can never take one row for another.

A value is one object when its braces and brackets close with its last byte. Whatever is in it, the parser then finds one object
in its line or fails; it can find no second one, and none that began in the line before.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numba import boolean, int32, int64, uint8, uint64

from levada.spark.compiling import BYTES, compiled

GOOD: Final = 0
#: By what is wrong with a value.
REASONS: Final = {
    1: "it is not a JSON object",
    2: "the JSON object does not end",
    3: "something follows the JSON object",
    4: "a control character stands in the JSON object",
}

#: Places are unsigned, since those below 0 would be counted from the end, at a cost for each byte.
_ONE: Final = np.uint64(1)
_SPACE, _TAB, _NEWLINE, _RETURN = 32, 9, 10, 13
_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 34, 92, 123, 125, 91, 93


@compiled()
def _blank(byte):  # type: ignore[no-untyped-def]
    return byte in (_SPACE, _NEWLINE, _TAB, _RETURN)


@compiled()
def _object(data, at, end, out, to):  # type: ignore[no-untyped-def]
    """Copy one object, with blanks for newlines between its parts. Returns (what is wrong, the place after it in `out`)."""
    while at < end and _blank(data[at]):
        at += _ONE
    if at == end or data[at] != _OPEN:
        return 1, to
    depth, inside = int64(0), False
    while at < end:
        byte = data[at]
        out[to] = byte
        to += _ONE
        at += _ONE
        if inside:
            if byte == _QUOTE:
                inside = False
            elif byte == _BACKSLASH:
                if at == end:
                    return 2, to
                if data[at] < _SPACE:
                    return 4, to
                out[to] = data[at]
                to += _ONE
                at += _ONE
            elif byte < _SPACE:
                return 4, to
        elif byte == _QUOTE:
            inside = True
        elif byte in (_OPEN, _OPEN_LIST):
            depth += 1
        elif byte in (_CLOSE, _CLOSE_LIST):
            depth -= 1
            if depth == 0:
                break
        elif byte < _SPACE:
            if not _blank(byte):
                return 4, to
            out[to - _ONE] = _SPACE
    if depth != 0:
        return 2, to
    while at < end:
        if not _blank(data[at]):
            return 3, to
        at += _ONE
    return 0, to


@compiled(int64(BYTES, int32[::1], boolean[::1], uint8[::1], int64[::1], uint8[::1]))
def _lines(data, offsets, left_out, out, ends, wrong):  # type: ignore[no-untyped-def]
    """Write a line per value and note where it ends; an empty object for those left out and those in which something is wrong."""
    to = uint64(0)
    for row in range(len(left_out)):
        begin = to
        if not left_out[row]:
            reason, to = _object(data, uint64(offsets[row]), uint64(offsets[row + 1]), out, to)
            wrong[row] = reason
        if left_out[row] or wrong[row] != 0:
            to = begin
            out[to] = _OPEN
            out[to + _ONE] = _CLOSE
            to += _ONE + _ONE
        out[to] = _NEWLINE
        to += _ONE
        ends[row] = to
    return to


def lines_of(
    values: pa.Array, left_out: np.ndarray[Any, np.dtype[np.bool_]]
) -> tuple[memoryview, np.ndarray[Any, np.dtype[np.int64]], dict[int, str]]:
    """(the lines, where each ends, what is wrong with which rows)"""
    rows = len(values)
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + rows + 1]
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)
    out = np.empty(int(offsets[-1] - offsets[0]) + 3 * rows, np.uint8)
    ends, wrong = np.empty(rows, np.int64), np.zeros(rows, np.uint8)
    total = _lines(data, offsets, left_out, out, ends, wrong)
    return out.data[:total], ends, {int(row): REASONS[int(wrong[row])] for row in np.flatnonzero(wrong)}
