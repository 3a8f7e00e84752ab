"""From places in a buffer to Arrow arrays: sizes to offsets and validity, then the bytes, each in a compiled pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import boolean, int32, int64, uint8, uint64

from levada.errors import CorruptBatch
from levada.spark.columns.scan import HEADER_COUNT, HEADERS, PLACES, RECORD_END, Ints, varint
from levada.spark.columns.schema import HEADER, TYPES
from levada.spark.compiling import BYTES, compiled, types

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@compiled(types.UniTuple(int64, 2)(int64[:, ::1], int64, int32[::1], uint8[::1]))
def _measure(places, column, offsets, validity):  # type: ignore[no-untyped-def]
    """Arrow's offsets and validity from the sizes in `column` + 1. Returns (bytes in all, nulls). `validity` is zeros."""
    total, nulls = int64(0), int64(0)
    offsets[0] = 0
    for row in range(len(places)):
        size = places[row, column + 1]
        if size < 0:
            nulls += 1
        else:
            total += size
            validity[row >> 3] |= uint8(1 << (row & 7))
        offsets[row + 1] = int32(total)
    return total, nulls


@compiled(types.void(BYTES, int64[:, ::1], int64, uint8[::1]))
def _copy(data, places, column, out):  # type: ignore[no-untyped-def]
    # Unsigned places, since those below 0 would be counted from the end: without that, each loop is one memcpy.
    to = uint64(0)
    for row in range(len(places)):
        size = places[row, column + 1]
        if size > 0:
            at, length = uint64(places[row, column]), uint64(size)
            for step in range(length):
                out[to + step] = data[at + step]
            to += length


@compiled(types.UniTuple(int64, 2)(int64[:, ::1], int32[::1], uint8[::1]))
def _measure_headers(places, offsets, validity):  # type: ignore[no-untyped-def]
    """Offsets of the lists; a record without headers has null. Returns (headers in all, nulls). `validity` is zeros."""
    total, nulls = int64(0), int64(0)
    offsets[0] = 0
    for row in range(len(places)):
        count = places[row, HEADER_COUNT]
        if count == 0:
            nulls += 1
        else:
            total += count
            validity[row >> 3] |= uint8(1 << (row & 7))
        offsets[row + 1] = int32(total)
    return total, nulls


@compiled(types.Tuple((int64, boolean))(BYTES, int64[:, ::1], int64[:, ::1]))
def _scan_headers(data, places, found):  # type: ignore[no-untyped-def]
    """Where keys and values of all headers lie, as in `places`. Returns (−1, or the row of the first broken one; all keys are ASCII)."""
    header, ascii_only = int64(0), True
    for row in range(len(places)):
        at, end = places[row, HEADERS], places[row, RECORD_END]
        for _ in range(places[row, HEADER_COUNT]):
            size, at = varint(data, at, end)
            if at < 0 or size < 0 or size > end - at:
                return row, ascii_only
            found[header, 0], found[header, 1] = at, size
            for step in range(size):
                if data[at + step] > 127:
                    ascii_only = False
            size, at = varint(data, at + size, end)
            if at < 0 or size < -1 or size > end - at:
                return row, ascii_only
            found[header, 2], found[header, 3] = at, size
            at += max(size, int64(0))
            header += 1
        if at != end:
            return row, ascii_only
    return int64(-1), ascii_only


def gathered(data: Bytes, places: Ints, column: int, kind: pa.DataType) -> pa.Array:
    """The bytes whose places are in this column and sizes in the next, as binary or string."""
    offsets, validity = np.empty(len(places) + 1, np.int32), np.zeros((len(places) + 7) >> 3, np.uint8)
    total, nulls = _measure(places, column, offsets, validity)
    out = np.empty(total, np.uint8)
    _copy(data, places, column, out)
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, len(places), buffers, nulls)


def gathered_headers(data: Bytes, places: Ints) -> pa.Array:
    """The headers of these records. CorruptBatch, with the row as its index, where they are not headers or a key is not UTF-8."""
    offsets, validity = np.empty(len(places) + 1, np.int32), np.zeros((len(places) + 7) >> 3, np.uint8)
    total, nulls = _measure_headers(places, offsets, validity)
    found: Ints = np.empty((total, PLACES), np.int64)
    broken, ascii_only = _scan_headers(data, places, found)
    if broken >= 0:
        raise CorruptBatch("its headers are not headers", index=broken)
    keys = gathered(data, found, 0, pa.string())
    if not ascii_only:
        try:
            keys.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptBatch(
                f"the key of one of its headers, or of one after it, is not UTF-8: {error}", index=0
            ) from None
    pairs = pa.StructArray.from_arrays([keys, gathered(data, found, 2, pa.binary())], fields=list(HEADER))
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(TYPES["headers"], len(places), buffers, nulls, children=[pairs])
