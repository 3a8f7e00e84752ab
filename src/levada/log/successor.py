"""The segment that compaction writes to take the place of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from levada.config import TopicConfig
from levada.log import directory
from levada.log.aborted import AbortedIndex
from levada.log.disk import Disk, File
from levada.log.index import RELATIVE_OFFSET_MAX, Indexes, OffsetIndex, TimeIndex
from levada.log.scan import whole_batches
from levada.log.segment import Segment
from levada.log.swap import CLEANED
from levada.records.batch import Batch


class Rewritten(NamedTuple):
    """What takes the place of some neighbouring segments: files `<base offset>.log.swap` and so on, all of them durable."""

    replaced: tuple[Segment, ...]
    base_offset: int
    size: int
    aborted: AbortedIndex


def fit_together(segments: Sequence[Segment], end_offset: int, config: TopicConfig) -> bool:
    """Whether neighbouring segments, which end before this offset, and their indexes fit into one."""
    indexes = [segment.opened().indexes for segment in segments]
    return _fits(
        config,
        size=sum(segment.size for segment in segments),
        offsets=sum(len(each.offsets) for each in indexes),
        times=sum(len(each.times) for each in indexes),
        span=end_offset - segments[0].base_offset,
    )


def _fits(config: TopicConfig, *, size: int, offsets: int, times: int, span: int) -> bool:
    return (
        size <= config.segment_bytes
        and offsets <= config.segment_index_bytes // OffsetIndex.ENTRY_SIZE
        and times <= config.segment_index_bytes // TimeIndex.ENTRY_SIZE
        and span <= RELATIVE_OFFSET_MAX
    )


class Successor:
    """A segment that is being written to take the place of those in `replaced`."""

    def __init__(self, disk: Disk, path: str, base_offset: int, config: TopicConfig) -> None:
        self._disk = disk
        self._config = config
        self._stem = directory.stem(path, base_offset)
        self._base_offset = base_offset
        self._file: File = disk.create(self._stem + ".log" + CLEANED)
        self._indexes = Indexes.empty(base_offset, config.index_interval_bytes)
        self.replaced: list[Segment] = []

    def has_room(self, segment: Segment, end_offset: int) -> bool:
        """Whether all of a further segment, which ends before this offset, would fit."""
        indexes = segment.opened().indexes
        return _fits(
            self._config,
            size=self._file.size + segment.size,
            offsets=len(self._indexes.offsets) + len(indexes.offsets),
            times=len(self._indexes.times) + len(indexes.times),
            span=end_offset - self._base_offset,
        )

    def append(self, data: bytearray | memoryview) -> None:
        batch = Batch(memoryview(data))
        position = self._file.append(batch.view)
        self._indexes.add(position, batch.size, batch.last_offset, batch.max_timestamp)

    def copy(self, segment: Segment, end: int) -> None:
        """What did not change at the beginning of a segment, up to this position."""
        for _, batch in whole_batches(segment.opened().file, 0, end, segment.base_offset, dense=False):
            self.append(batch.view)

    def finish(self, aborted: AbortedIndex) -> Rewritten:
        """Write the indexes, and make everything durable but the names."""
        self._indexes.seal()
        self._file.sync()
        self._file.close()
        self._write(".timeindex", self._indexes.times.pack())
        self._write(".index", self._indexes.offsets.pack())
        if len(aborted):
            self._write(".txnindex", aborted.encode())
        return Rewritten(tuple(self.replaced), self._base_offset, self._file.size, aborted)

    def _write(self, ending: str, data: bytes) -> None:
        file = self._disk.create(self._stem + ending + CLEANED)
        file.append(data)
        file.sync()
        file.close()
