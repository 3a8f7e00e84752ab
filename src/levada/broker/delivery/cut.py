"""How much of what was read is delivered now: whole batches, counted by their headers, never opened."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from levada.errors import CorruptBatch
from levada.records.batch import CODEC_MASK, CONTROL, HEADER_SIZE, LENGTH_END

#: Base offset, length, attributes, last offset delta, record count: what is asked of a header here, at a fifth of what a Batch
#: costs. Records that were published one by one are a batch each.
_HEADER: Final = Struct(">qi9xhi30xi")
assert _HEADER.size == HEADER_SIZE


class Cut(NamedTuple):
    """The first batches of a buffer: their bytes, the offset behind them, how many records they count for."""

    data: memoryview
    to_offset: int
    records: int
    #: Whether one of them is.
    is_compressed: bool


def cut(buffer: bytes | bytearray | memoryview, offset: int, room: int) -> Cut:
    """Batches up to and including the one that fills the room; at least one, where there is one. The buffer holds whole ones.

    Records below `offset`, which the reader has had, do not count, nor do transaction markers. Of a batch that begins below it,
    and that compaction thinned out, the count is the most there can be. CorruptBatch.
    """
    view = memoryview(buffer)
    position, end, records, to_offset, codecs = 0, len(view), 0, offset, 0
    while position < end and (records < room or not position):
        if end - position < HEADER_SIZE:
            raise CorruptBatch(f"{end - position} bytes behind the batch before offset {to_offset} are none")
        base_offset, length, attributes, last_offset_delta, count = _HEADER.unpack_from(view, position)
        if not HEADER_SIZE <= LENGTH_END + length <= end - position:
            raise CorruptBatch(f"the batch at offset {base_offset} says it has {LENGTH_END + length} bytes")
        position += LENGTH_END + length
        codecs |= attributes & CODEC_MASK
        next_offset = base_offset + last_offset_delta + 1
        if not attributes & CONTROL:
            records += max(0, min(count, next_offset - max(offset, base_offset)))
        to_offset = max(to_offset, next_offset)
    return Cut(view[:position], to_offset, records, bool(codecs))
