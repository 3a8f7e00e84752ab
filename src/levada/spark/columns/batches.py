"""Where the batches of a fetch lie and what their headers say: one row of a table for each, read in one compiled pass."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import int64

from levada.errors import CorruptBatch
from levada.records.batch import HEADER_SIZE, LENGTH_END, MAGIC
from levada.spark.compiling import BYTES, compiled

#: The columns of the table.
START: Final = 0  #: where the batch begins
END: Final = 1
BASE: Final = 2  #: base offset
LAST: Final = 3  #: last offset
ATTRIBUTES: Final = 4
CRC: Final = 5
BASE_TIME: Final = 6
MAX_TIME: Final = 7
PRODUCER: Final = 8
COUNT: Final = 9  #: records
RECORDS: Final = 10  #: where its records begin, unpacked
RECORDS_END: Final = 11
WIDTH: Final = 12


@compiled()
def _int32(data, at):  # type: ignore[no-untyped-def]
    word = (int64(data[at]) << 24) | (int64(data[at + 1]) << 16) | (int64(data[at + 2]) << 8) | int64(data[at + 3])
    return word - ((word & 0x80000000) << 1)


@compiled()
def _int64(data, at):  # type: ignore[no-untyped-def]
    return (_int32(data, at) << 32) | (_int32(data, at + 4) & 0xFFFFFFFF)


@compiled(int64(BYTES))
def _count(data):  # type: ignore[no-untyped-def]
    """How many whole batches there are, or −1 − the place of one whose length is nonsense."""
    at, count = int64(0), int64(0)
    while at + LENGTH_END <= len(data):
        size = LENGTH_END + _int32(data, at + 8)
        if size < HEADER_SIZE:
            return -1 - at
        if at + size > len(data):
            break
        at += size
        count += 1
    return count


@compiled(int64(BYTES, int64[:, ::1]))
def _fill(data, table):  # type: ignore[no-untyped-def]
    """Read the headers. Returns how many were of format 2 before one that is not."""
    at = int64(0)
    for row in range(len(table)):
        if data[at + 16] != MAGIC:
            return row
        end = at + LENGTH_END + _int32(data, at + 8)
        base = _int64(data, at)
        table[row, START] = at
        table[row, END] = end
        table[row, BASE] = base
        table[row, LAST] = base + _int32(data, at + 23)
        table[row, ATTRIBUTES] = (int64(data[at + 21]) << 8) | int64(data[at + 22])
        table[row, CRC] = _int32(data, at + 17) & 0xFFFFFFFF
        table[row, BASE_TIME] = _int64(data, at + 27)
        table[row, MAX_TIME] = _int64(data, at + 35)
        table[row, PRODUCER] = _int64(data, at + 43)
        table[row, COUNT] = _int32(data, at + 57)
        table[row, RECORDS] = at + HEADER_SIZE
        table[row, RECORDS_END] = end
        at = end
    return len(table)


def batch_table(data: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The whole batches of this buffer, a row each; it may end with one that is cut short. Their checksums are not looked at.

    CorruptBatch where a length or the format makes no sense.
    """
    count = _count(data)
    if count < 0:
        raise CorruptBatch(f"the batch at byte {-1 - count} of a fetch says it is shorter than its header")
    table: np.ndarray[Any, np.dtype[np.int64]] = np.empty((count, WIDTH), np.int64)
    filled = _fill(data, table)
    if filled < count:
        at = int(table[filled - 1, END]) if filled else 0
        raise CorruptBatch(f"the batch at byte {at} of a fetch has magic {data[at + 16]}, not {MAGIC}")
    return table
