"""A closed segment's indexes: read from their files if those fit the segment, else built again from its headers."""

from __future__ import annotations

from typing import Final, NamedTuple

from levada.config import KiB
from levada.log.disk import Disk, File
from levada.log.index import Indexes, OffsetIndex, TimeIndex
from levada.log.scan import Unreadable, heads, whole_batches

_CHUNK: Final = 256 * KiB


class Indexed(NamedTuple):
    """Indexes that fit their segment, and what the headers told on the way."""

    indexes: Indexes
    end_offset: int
    #: Where the headers stop making sense, if they do; the indexes go up to there.
    broken: Unreadable | None
    #: True when the files did not fit.
    rebuilt: bool


def load(
    disk: Disk, stem: str, base_offset: int, file: File, size: int, interval_bytes: int, *, dense: bool
) -> Indexed:
    """Indexes of a segment to which nothing was appended since its files were written.

    The files are believed as far as the batches from their last entry on bear them out, and these are verified: what
    comes out as the end offset is right.
    """
    offsets = OffsetIndex.parse(base_offset, _read(disk, stem + ".index"))
    times = TimeIndex.parse(base_offset, _read(disk, stem + ".timeindex"))
    if offsets is not None and times is not None:
        indexes = Indexes(offsets, times, size=size, interval_bytes=interval_bytes)
        end_offset = _fits(indexes, base_offset, file, size, dense)
        if end_offset is not None:
            return Indexed(indexes, end_offset, None, rebuilt=False)
    built = build(base_offset, file, size, interval_bytes, dense=dense)
    try:
        _, start = built.indexes.offsets.last()
        for _ in whole_batches(file, start, size, base_offset, dense=False):
            pass
    except Unreadable as broken:
        if built.broken is None or broken.position < built.broken.position:
            return _verified(built, base_offset, file, size, dense)
    return built


def _verified(built: Indexed, base_offset: int, file: File, size: int, dense: bool) -> Indexed:
    """Something behind the last entry is broken: read all of it, to say where."""
    end_offset = base_offset
    try:
        for _, batch in whole_batches(file, 0, size, base_offset, dense=dense):
            end_offset = batch.next_offset
    except Unreadable as broken:
        return built._replace(end_offset=end_offset, broken=broken)
    return built


def build(base_offset: int, file: File, size: int, interval_bytes: int, *, dense: bool) -> Indexed:
    """From the headers alone, as far as they can be read."""
    indexes = Indexes.empty(base_offset, interval_bytes)
    end_offset, broken = base_offset, None
    try:
        for head in heads(file, 0, size, base_offset, dense=dense, chunk=_CHUNK):
            indexes.add(head.position, head.size, head.last_offset, head.max_timestamp)
            end_offset = head.last_offset + 1
    except Unreadable as reason:
        broken = reason
    indexes.seal()
    return Indexed(indexes, end_offset, broken, rebuilt=True)


def _read(disk: Disk, path: str) -> bytes:
    try:
        return disk.read(path)
    except FileNotFoundError:
        return b""


def _fits(indexes: Indexes, base_offset: int, file: File, size: int, dense: bool) -> int | None:
    """The segment's end offset if the indexes fit it: the last entry names a batch, no entry is missing after it, and no
    timestamp is larger than the largest."""
    last_offset, start = indexes.offsets.last()
    end_offset, max_timestamp = base_offset, -1
    try:
        for position, batch in whole_batches(file, start, size, base_offset, dense=dense and start == 0):
            if position == start and last_offset not in (-1, batch.last_offset):
                return None
            if position - start > indexes.interval_bytes or batch.max_timestamp > indexes.max_timestamp:
                return None
            end_offset, max_timestamp = batch.next_offset, max(max_timestamp, batch.max_timestamp)
        if start > size or not _largest_fits(indexes, base_offset, file, size, end_offset, max_timestamp):
            return None
    except Unreadable:
        return None
    return end_offset


def _largest_fits(
    indexes: Indexes, base_offset: int, file: File, size: int, end_offset: int, tail_timestamp: int
) -> bool:
    """Whether the batch that is said to have the largest timestamp has it."""
    timestamp, offset = indexes.max_timestamp, indexes.max_timestamp_offset
    if timestamp == tail_timestamp:
        return True
    if timestamp < 0:
        return size == 0 or next(heads(file, 0, size, base_offset)).max_timestamp < 0
    if offset >= end_offset:
        return False
    for head in heads(file, indexes.offsets.floor(offset)[1], size, base_offset):
        if head.last_offset >= offset:
            return head.last_offset == offset and head.max_timestamp == timestamp
    return False
