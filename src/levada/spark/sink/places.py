"""Where the bytes of an Arrow column lie: its buffers as they are, and a place and a size for each row. Nothing is copied."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import int32, int64

from levada.spark.compiling import BYTES, compiled, types

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

_OFFSETS = types.Array(int32, 1, "C", readonly=True)
_NO_BYTES: Bytes = np.empty(0, np.uint8)


class Places(NamedTuple):
    """Row i has `data[at[i] : at[i] + size[i]]`; a size of −1 is null."""

    data: Bytes
    at: Ints
    size: Ints


@compiled(types.void(_OFFSETS, BYTES, int64, int64[::1], int64[::1]))
def _find(offsets, validity, first, at, size):  # type: ignore[no-untyped-def]
    """`offsets` and `validity` are Arrow's, in which the first row is number `first`; no validity: none is null."""
    for row in range(len(at)):
        place = first + row
        begin = int64(offsets[place])
        at[row] = begin
        size[row] = int64(offsets[place + 1]) - begin
        if len(validity) > 0 and (validity[place >> 3] >> (place & 7)) & 1 == 0:
            size[row] = -1


def places_of(column: pa.Array) -> Places:
    """Of a column of bytes or text."""
    if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.binary())
    validity, offsets, data = column.buffers()
    return Places(view(data), *_found(offsets, validity, column.offset, len(column)))


def lists_of(column: pa.Array) -> tuple[Ints, Ints]:
    """Of a column of lists: where each begins among the values, and how many it has; −1 for null."""
    validity, offsets = column.buffers()[:2]
    return _found(offsets, validity, column.offset, len(column))


def no_places(rows: int) -> Places:
    """Of a column that is not there: all null."""
    return Places(_NO_BYTES, np.zeros(rows, np.int64), np.full(rows, -1, np.int64))


def _found(offsets: pa.Buffer | None, validity: pa.Buffer | None, first: int, rows: int) -> tuple[Ints, Ints]:
    at, size = np.empty(rows, np.int64), np.empty(rows, np.int64)
    if rows and offsets is not None:
        _find(np.frombuffer(offsets, np.int32), view(validity), first, at, size)
    return at, size


def view(buffer: pa.Buffer | None) -> Bytes:
    return _NO_BYTES if buffer is None or buffer.size == 0 else np.frombuffer(buffer, np.uint8)
