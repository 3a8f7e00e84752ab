"""The snapshots of a log's producers: one where each segment begins, one where the log was closed.

What a snapshot says is true of its offset for ever, so it is never changed; one that cannot be read is passed over, and
the batches after an older one are read instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import structlog

from levada.config import INT64_MAX
from levada.errors import DamagedIndex
from levada.log import directory
from levada.log.aborted import AbortedIndex, AbortedTransaction
from levada.log.disk import Disk
from levada.log.producers import Producers
from levada.log.scan import Unreadable, whole_batches
from levada.log.segment import Segment
from levada.records.batch import Batch

_log = structlog.get_logger("levada.log")


class BrokenSegment(Exception):
    """A segment cannot be read on."""

    def __init__(self, segment: Segment, where: Unreadable) -> None:
        super().__init__(str(where))
        self.segment = segment
        self.where = where


class Snapshots:
    """The offsets at which there is a snapshot, in order."""

    def __init__(self, disk: Disk, path: str, offsets: Sequence[int], producer_expiration_ms: int) -> None:
        self.offsets = list(offsets)
        self.producer_expiration_ms = producer_expiration_ms
        self._disk = disk
        self._path = path

    def add(self, offset: int) -> str:
        """There is one at this offset from now on; returns the name of its file, which the caller writes."""
        if offset not in self.offsets:
            self.offsets.append(offset)
        return directory.name(offset, ".snapshot")

    def drop(self, unwanted: Callable[[int], bool]) -> list[str]:
        """Forget some; returns the names of their files, for the caller to remove."""
        dropped = [offset for offset in self.offsets if unwanted(offset)]
        self.offsets = [offset for offset in self.offsets if not unwanted(offset)]
        return [directory.name(offset, ".snapshot") for offset in dropped]

    def producers_at(self, offset: int, segments: Sequence[Segment], now_ms: int) -> Producers:
        """Producers as they were at this offset. BrokenSegment."""
        producers = Producers(expiration_ms=self.producer_expiration_ms)
        start = self._load_latest(producers, offset, now_ms)
        for batch in batches_between(segments, start, offset):
            producers.applied(batch, now_ms)
        return producers

    def _load_latest(self, producers: Producers, offset: int, now_ms: int) -> int:
        for candidate in sorted(self.offsets, reverse=True):
            if candidate <= offset:
                try:
                    producers.load(self._disk.read(directory.stem(self._path, candidate) + ".snapshot"), now_ms)
                    return candidate
                except FileNotFoundError:
                    continue  # not written yet
                except DamagedIndex as reason:
                    _log.warning("snapshot ignored", path=self._path, offset=candidate, reason=str(reason))
        return 0

    def aborted_in(self, segment: Segment, segments: Sequence[Segment]) -> AbortedIndex:
        """The aborted transactions whose markers lie in this segment, from the log alone. BrokenSegment."""
        producers = self.producers_at(segment.base_offset, segments, now_ms=0)
        found = AbortedIndex()
        for batch in batches_between([segment], segment.base_offset, INT64_MAX):
            completed = producers.applied(batch, 0)
            if completed is not None and not completed.commit:
                found.append(AbortedTransaction.of(completed))
        return found


def batches_between(segments: Sequence[Segment], start: int, end: int) -> Iterator[Batch]:
    """Every batch that begins in [start, end), verified. BrokenSegment."""
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else INT64_MAX
        if following <= start or segment.base_offset >= end or start == end:
            continue
        try:
            file = segment.opened().file
            for _, batch in whole_batches(file, 0, segment.size, segment.base_offset, dense=segment.dense):
                if batch.base_offset >= end:
                    return
                if batch.base_offset >= start:
                    yield batch
        except Unreadable as where:
            raise BrokenSegment(segment, where) from None
