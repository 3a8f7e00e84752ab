"""Which batches of a fetch are wanted, whether they are whole, and their records unpacked, many batches in one buffer."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from crc32c import crc32c

from levada.errors import CorruptBatch, RecordError
from levada.records.batch import CODEC_MASK, CONTROL, CRC_START, RECORD_SIZE_MIN, TRANSACTIONAL
from levada.records.compression import UNPACKED_BYTES_MAX, decompress_into
from levada.spark.columns.batches import (
    ATTRIBUTES,
    BASE,
    COUNT,
    CRC,
    END,
    LAST,
    PRODUCER,
    RECORDS,
    RECORDS_END,
    START,
    batch_table,
)
from levada.spark.columns.scan import Ints

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

#: So much is unpacked before it is made columns of; one batch may be larger. About 64k rows of 100 bytes: with less it stays
#: in the processor's cache, with more Spark gets larger batches.
_UNPACKED_AT_ONCE: Final = 8 << 20
_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def unpacked(
    data: memoryview, from_offset: int, to_offset: int, aborted: Sequence[tuple[int, int]] | None
) -> Iterator[tuple[Bytes, Ints]]:
    """The batches with records a consumer would see: a buffer, and the table of what lies where in it.

    The buffer may be used again for the next ones. With `aborted`, transactions in it are left out. CorruptBatch.
    """
    whole: Bytes = np.frombuffer(data, np.uint8)
    table = batch_table(whole)
    _check(data, table)
    table = table[_wanted(table, from_offset, to_offset, aborted)]
    if not (table[:, ATTRIBUTES] & CODEC_MASK).any():
        _check_counts(table)
        yield whole, table
    else:
        yield from _decompressed(data, table)


def _check(data: memoryview, table: Ints) -> None:
    """Raise CorruptBatch unless these are whole batches, one after the other, with the checksums they say."""
    end = int(table[-1, END]) if len(table) else 0
    if end != len(data):
        raise CorruptBatch(f"after offset {table[-1, LAST] if len(table) else -1} a batch is cut short")
    for start, stop, crc, base in table[:, (START, END, CRC, BASE)].tolist():
        if crc32c(data[start + CRC_START : stop]) != crc:
            raise CorruptBatch(f"the checksum of the batch at offset {base} does not match")
    backwards = np.flatnonzero(table[1:, BASE] <= table[:-1, LAST])
    if len(backwards):
        raise CorruptBatch(f"the batch at offset {table[backwards[0] + 1, BASE]} does not follow the one before it")


def _wanted(
    table: Ints, from_offset: int, to_offset: int, aborted: Sequence[tuple[int, int]] | None
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    # Compaction and dedup leave batches with nothing behind their headers.
    empty = (table[:, COUNT] == 0) & (table[:, RECORDS] == table[:, RECORDS_END])
    inside = (table[:, LAST] >= from_offset) & (table[:, BASE] < to_offset) & ~empty
    wanted: np.ndarray[Any, np.dtype[np.bool_]] = inside & (table[:, ATTRIBUTES] & CONTROL == 0)
    if aborted:
        # An aborted transaction is its producer's batches from its first offset on until the producer's next marker.
        pending = sorted(((first, producer) for producer, first in aborted), reverse=True)
        ignored: set[int] = set()
        for row, (last, attributes, producer) in enumerate(table[:, (LAST, ATTRIBUTES, PRODUCER)].tolist()):
            while pending and pending[-1][0] <= last:
                ignored.add(pending.pop()[1])
            if attributes & CONTROL:
                ignored.discard(producer)
            elif attributes & TRANSACTIONAL and producer in ignored:
                wanted[row] = False
    return wanted


def _check_counts(table: Ints) -> None:
    """Raise CorruptBatch where a batch says it has more records than fit into it, before room is made for them."""
    counts = table[:, COUNT]
    wrong = np.flatnonzero((counts < 0) | (counts > (table[:, RECORDS_END] - table[:, RECORDS]) // RECORD_SIZE_MIN))
    if len(wrong):
        row = table[wrong[0]]
        raise CorruptBatch(f"the batch at offset {row[BASE]} says it has {row[COUNT]} records, more than fit into it")


def _decompressed(data: memoryview, table: Ints) -> Iterator[tuple[Bytes, Ints]]:
    """Unpack batch after batch into one stretch of memory, of which only the pages that are written to cost anything."""
    room = memoryview(mmap.mmap(-1, _UNPACKED_AT_ONCE + UNPACKED_BYTES_MAX, flags=_PRIVATE))
    buffer: Bytes = np.frombuffer(room, np.uint8)
    used, first = 0, 0
    for row, (start, end, attributes, base) in enumerate(table[:, (RECORDS, RECORDS_END, ATTRIBUTES, BASE)].tolist()):
        try:
            size = decompress_into(attributes & CODEC_MASK, data[start:end], room[used : used + UNPACKED_BYTES_MAX])
        except RecordError as error:
            raise CorruptBatch(f"in the batch at offset {base}, {error}") from error
        table[row, RECORDS], table[row, RECORDS_END] = used, used + size
        used += size
        if used >= _UNPACKED_AT_ONCE or row == len(table) - 1:
            _check_counts(table[first : row + 1])
            yield buffer, table[first : row + 1]
            used, first = 0, row + 1
