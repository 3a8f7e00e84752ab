"""Compiled: one pass over the records of many batches, which notes where everything lies. Nothing is copied.

Record, every number a zigzag varint, after its own length: int8 attributes, unused | timestamp − base timestamp |
offset − base offset | key length, −1 for none | key | value length, −1 for none | value | header count | headers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import int32, int64, uint64

from levada.records.batch import LOG_APPEND_TIME
from levada.spark.columns.batches import (
    ATTRIBUTES,
    BASE,
    BASE_TIME,
    COUNT,
    LAST,
    MAX_TIME,
    RECORDS,
    RECORDS_END,
)
from levada.spark.compiling import BYTES, compiled

#: The columns of what is found of each record: places in the buffer, and sizes, −1 for null.
KEY: Final = 0
KEY_SIZE: Final = 1
VALUE: Final = 2
VALUE_SIZE: Final = 3
HEADERS: Final = 4  #: where the first header begins
HEADER_COUNT: Final = 5
RECORD_END: Final = 6
PLACES: Final = 7

#: Beyond this a time in ms has no place in µs.
_MS_MAX: Final = 2**63 // 1000 - 1

Ints = np.ndarray[Any, np.dtype[np.int64]]


@compiled()
def varint(data, at, end):  # type: ignore[no-untyped-def]
    """(the number that begins at `at`, the place after it), or (0, −1) where there is none before `end`."""
    found, shift = uint64(0), uint64(0)
    while at < end and shift < uint64(70):
        byte = uint64(data[uint64(at)])
        at += 1
        found |= (byte & uint64(127)) << shift
        if byte < uint64(128):
            return int64(found >> uint64(1)) ^ -int64(found & uint64(1)), at
        shift += uint64(7)
    return int64(0), int64(-1)


@compiled(int64(BYTES, int64[:, ::1], int64, int64, int64[::1], int64[::1], int32[::1], int64[:, ::1]))
def scan(data, table, from_offset, to_offset, offsets, times, kinds, places):  # type: ignore[no-untyped-def]
    """Note every record from `from_offset` up to, not including, `to_offset`. Returns how many, or −1 − the row of a broken batch.

    `table` is that of `batches`; the outputs have room for all records it counts. A batch's records must fill it, with rising
    offsets up to its last; headers are looked at when they are gathered. Times are in µs, those out of its range at its ends.
    """
    rows = int64(0)
    for row in range(len(table)):
        at, end_of_all = table[row, RECORDS], table[row, RECORDS_END]
        base, base_time = table[row, BASE], table[row, BASE_TIME]
        before, last = base - 1, table[row, LAST]
        appended = (table[row, ATTRIBUTES] & LOG_APPEND_TIME) != 0
        for _ in range(table[row, COUNT]):
            size, at = varint(data, at, end_of_all)
            if at < 0 or size < 6 or size > end_of_all - at:
                return -1 - row
            end = at + size
            time, at = varint(data, at + 1, end)
            if at < 0:
                return -1 - row
            delta, at = varint(data, at, end)
            offset = base + delta
            if at < 0 or offset <= before or offset > last:
                return -1 - row
            before = offset
            key_size, at = varint(data, at, end)
            if at < 0 or key_size < -1 or key_size > end - at:
                return -1 - row
            key = at
            at += max(key_size, int64(0))
            value_size, at = varint(data, at, end)
            if at < 0 or value_size < -1 or value_size > end - at:
                return -1 - row
            value = at
            at += max(value_size, int64(0))
            count, at = varint(data, at, end)
            # A header is two bytes at least; without any, the record ends here.
            if at < 0 or count < 0 or count > (end - at) >> 1 or (count == 0 and at != end):
                return -1 - row
            if from_offset <= offset < to_offset:
                offsets[rows] = offset
                time = table[row, MAX_TIME] if appended else base_time + time
                times[rows] = min(max(time, int64(-_MS_MAX)), int64(_MS_MAX)) * 1000
                kinds[rows] = int32(1) if appended else int32(0)
                places[rows, KEY] = key
                places[rows, KEY_SIZE] = key_size
                places[rows, VALUE] = value
                places[rows, VALUE_SIZE] = value_size
                places[rows, HEADERS] = at
                places[rows, HEADER_COUNT] = count
                places[rows, RECORD_END] = end
                rows += 1
            at = end
        if at != end_of_all:
            return -1 - row
    return rows


@compiled(int64(int64[:, ::1], int64, int64, int64))
def cut(places, begin, rows_max, bytes_max):  # type: ignore[no-untyped-def]
    """Where a RecordBatch that begins with this row ends: within both limits, and with one row at least."""
    end = min(begin + rows_max, len(places))
    held = int64(0)
    for row in range(begin, end):
        held += places[row, RECORD_END] - places[row, KEY]
        if held > bytes_max and row > begin:
            return row
    return end
