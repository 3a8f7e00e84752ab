"""The segment that compaction writes to take the place of others."""

from __future__ import annotations

from typing import Final, NamedTuple

from levada.config import TopicConfig
from levada.log import directory
from levada.log.aborted import AbortedIndex
from levada.log.disk import Disk, File
from levada.log.index import RELATIVE_OFFSET_MAX, Indexes, OffsetIndex, TimeIndex
from levada.log.scan import whole_batches
from levada.log.segment import Segment
from levada.records.batch import Batch

#: Being written: removed when found after a crash.
CLEANED: Final = ".cleaned"
#: Durable and decided: put in place when found after a crash.
SWAP: Final = ".swap"


class Rewritten(NamedTuple):
    """What takes the place of some neighbouring segments: files `<base offset>.log.swap` and so on, all of them durable."""

    replaced: tuple[Segment, ...]
    base_offset: int
    size: int
    aborted: AbortedIndex


class Room:
    """What still fits into one segment and its indexes."""

    def __init__(self, config: TopicConfig) -> None:
        self._bytes = config.segment_bytes
        self._offsets = config.segment_index_bytes // OffsetIndex.ENTRY_SIZE
        self._times = config.segment_index_bytes // TimeIndex.ENTRY_SIZE

    def takes(self, segment: Segment, offsets: int) -> bool:
        indexes = segment.opened().indexes
        return segment.size == 0 or (
            segment.size <= self._bytes
            and len(indexes.offsets) <= self._offsets
            and len(indexes.times) <= self._times
            and offsets <= RELATIVE_OFFSET_MAX
        )

    def take(self, segment: Segment) -> None:
        indexes = segment.opened().indexes
        self._bytes -= segment.size
        self._offsets -= len(indexes.offsets)
        self._times -= len(indexes.times)


class Successor:
    """The files of a segment that is being written to take the place of others."""

    def __init__(self, disk: Disk, path: str, first: Segment, config: TopicConfig) -> None:
        self._disk = disk
        self._stem = directory.stem(path, first.base_offset)
        self.base_offset = first.base_offset
        self._file: File = disk.create(self._stem + ".log" + CLEANED)
        self._indexes = Indexes.empty(first.base_offset, config.index_interval_bytes)

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, data: bytearray | memoryview) -> None:
        batch = Batch(memoryview(data))
        position = self._file.append(batch.view)
        self._indexes.add(position, batch.size, batch.last_offset, batch.max_timestamp)

    def copy(self, segment: Segment, end: int) -> None:
        """What did not change at the beginning of a segment, up to this position."""
        for _, batch in whole_batches(segment.opened().file, 0, end, segment.base_offset, dense=False):
            self.append(batch.view)

    def finish(self, aborted: AbortedIndex) -> None:
        """Write the indexes, and make everything durable but the names."""
        self._indexes.seal()
        self._file.sync()
        self._file.close()
        self._write(".timeindex", self._indexes.times.pack())
        self._write(".index", self._indexes.offsets.pack())
        if len(aborted):
            self._write(".txnindex", aborted.encode())

    def _write(self, ending: str, data: bytes) -> None:
        file = self._disk.create(self._stem + ending + CLEANED)
        file.append(data)
        file.sync()
        file.close()
