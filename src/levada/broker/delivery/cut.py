"""How much of what was read is delivered now: whole batches, counted by their headers, never opened."""

from __future__ import annotations

from typing import NamedTuple

from levada.records.batch import Batch, batches


class Cut(NamedTuple):
    """The first batches of a buffer: their bytes, the offset behind them, and how many records they count for."""

    data: memoryview
    to_offset: int
    records: int


def cut(buffer: bytes | bytearray | memoryview, offset: int, room: int) -> Cut:
    """Batches up to and including the one that fills the room; at least one, where there is one.

    Records below `offset`, which the reader has had, do not count, nor do transaction markers. Of a batch that begins below it,
    and that compaction thinned out, the count is the most there can be.
    """
    view = memoryview(buffer)
    size, count, to_offset = 0, 0, offset
    for batch in batches(view):
        size += batch.size
        count += _records_from(batch, offset)
        to_offset = max(to_offset, batch.next_offset)
        if count >= room:
            break
    return Cut(view[:size], to_offset, count)


def _records_from(batch: Batch, offset: int) -> int:
    if batch.is_control:
        return 0
    return max(0, min(batch.record_count, batch.next_offset - max(offset, batch.base_offset)))
