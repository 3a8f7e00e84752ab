"""Opening a log: what is there, how much of it is whole, and what it tells about producers and epochs.

After a clean stop the tail is trusted: the last segment's indexes are read and the headers behind their last entry, older
segments not at all. Otherwise every batch is verified from the segment that holds the recovery point on. At the first
that is not whole:

- If the machine has been up since it was written, only the last write can be torn: when a whole batch follows, it is damage.
- Below the recovery point everything had been synced: it is damage.
- Else it was never acknowledged as durable: the log is cut there.

A damaged log keeps all its files as they are.
"""

from __future__ import annotations

import os.path
from dataclasses import dataclass, field

import structlog

from levada.config import INT64_MAX, TopicConfig
from levada.errors import DamagedIndex
from levada.log import directory
from levada.log.aborted import AbortedIndex, AbortedTransaction
from levada.log.disk import Disk
from levada.log.epochs import FILE_NAME as EPOCHS_FILE
from levada.log.epochs import LeaderEpochs
from levada.log.files import Files
from levada.log.index import Indexes
from levada.log.producers import Producers
from levada.log.results import Damage
from levada.log.scan import Unreadable, batch_follows, whole_batches
from levada.log.segment import Segment
from levada.log.snapshots import BrokenSegment, Snapshots
from levada.records.batch import Batch

_log = structlog.get_logger("levada.log")


@dataclass(slots=True, kw_only=True)
class Recovered:
    """A log as it was found, in order."""

    segments: list[Segment]
    producers: Producers
    epochs: LeaderEpochs
    snapshots: Snapshots
    start_offset: int = 0
    end_offset: int = 0
    #: Segments below have been compacted, and have gaps.
    cleaned_to: int = 0
    damage: Damage | None = None
    #: How much was cut because it was not whole.
    cut_bytes: int = 0
    #: Files that have yet to be synced: those of the last segments.
    unsynced: list[Segment] = field(default_factory=list)


class Recovery:
    """Opens one log. `recover` once, and the result is all there is."""

    def __init__(
        self, disk: Disk, files: Files, path: str, config: TopicConfig, *, now_ms: int, producer_expiration_ms: int
    ) -> None:
        self._disk = disk
        self._files = files
        self._path = path
        self._config = config
        self._now_ms = now_ms
        self._producer_expiration_ms = producer_expiration_ms
        self._found = Recovered(
            segments=[],
            producers=Producers(expiration_ms=producer_expiration_ms),
            epochs=LeaderEpochs(),
            snapshots=Snapshots(disk, path, [], producer_expiration_ms),
        )

    def recover(self, *, recovery_point: int | None, clean: bool, same_boot: bool) -> Recovered:
        found = self._found
        contents = directory.tidy(self._disk, self._path)
        found.snapshots = Snapshots(self._disk, self._path, contents.snapshots, self._producer_expiration_ms)
        found.start_offset = self._checkpoint(directory.START_FILE)
        found.cleaned_to = self._checkpoint(directory.CLEANED_FILE)
        found.epochs = self._read_epochs()
        found.segments = [self._segment(offset, size) for offset, size in contents.segments.items()]
        if not (clean or same_boot) and self._lost_its_beginning(recovery_point):
            self._start_anew()
        elif found.segments:
            found.start_offset = max(found.start_offset, found.segments[0].base_offset)
            scan_from, durable_to = self._doubt(recovery_point, clean)
            if scan_from is None:
                self._trust()
            else:
                self._scan(self._first_doubtful(scan_from, contents.indexed), durable_to, same_boot)
        if found.end_offset < found.start_offset and found.damage is None:
            # What lies below the start was lost before it was durable. Its offsets are not given out again.
            self._start_anew()
        self._forget_beyond()
        return found

    def _lost_its_beginning(self, recovery_point: int | None) -> bool:
        """Nothing was ever synced, and of several new segments only later ones made it to the disk."""
        segments, start_offset = self._found.segments, self._found.start_offset
        is_new = recovery_point is not None and recovery_point <= start_offset
        return is_new and bool(segments) and segments[0].base_offset > start_offset

    def _start_anew(self) -> None:
        found = self._found
        found.cut_bytes += sum(segment.size for segment in found.segments)
        for segment in reversed(found.segments):
            remove_segment(self._disk, segment)
        found.segments.clear()
        found.unsynced.clear()
        found.producers.clear()
        found.end_offset = found.start_offset

    # What is there

    def _checkpoint(self, name: str) -> int:
        try:
            return directory.read_checkpoint(self._disk, self._path, name) or 0
        except DamagedIndex as reason:
            _log.warning("checkpoint ignored", reason=str(reason))
            return 0

    def _read_epochs(self) -> LeaderEpochs:
        try:
            return LeaderEpochs.decode(self._disk.read(os.path.join(self._path, EPOCHS_FILE)))
        except FileNotFoundError:
            return LeaderEpochs()
        except DamagedIndex as reason:
            _log.warning("leader epochs ignored", path=self._path, reason=str(reason))
            return LeaderEpochs()

    def _segment(self, base_offset: int, size: int) -> Segment:
        stem = directory.stem(self._path, base_offset)
        segment = Segment(
            self._disk, self._files, stem, base_offset, size=size, created_ms=self._now_ms, config=self._config
        )
        segment.dense = base_offset >= self._found.cleaned_to
        return segment

    def _forget_beyond(self) -> None:
        """Snapshots and epochs of what the log does not hold tell about something that is gone."""
        found = self._found
        if found.damage is None:
            for file in found.snapshots.drop(lambda offset: offset > found.end_offset):
                self._disk.unlink(os.path.join(self._path, file))
            found.epochs.truncate(found.end_offset)

    # How far to trust it

    def _doubt(self, recovery_point: int | None, clean: bool) -> tuple[int | None, int]:
        """From which offset on to verify, None for not at all; and below which everything was durable."""
        try:
            broken = directory.read_checkpoint(self._disk, self._path, directory.DAMAGED_FILE)
        except DamagedIndex:
            broken = 0
        if broken is None:
            return (None, INT64_MAX) if clean else (recovery_point or 0, recovery_point or 0)
        if clean:
            return broken, INT64_MAX
        return min(broken, recovery_point or 0), max(broken + 1, recovery_point or 0)

    def _first_doubtful(self, offset: int, indexed: set[int]) -> int:
        """The segment that holds the offset, or an earlier one that was not closed properly."""
        segments = self._found.segments
        for position, segment in enumerate(segments):
            following = segments[position + 1].base_offset if position + 1 < len(segments) else INT64_MAX
            if following > offset or segment.base_offset not in indexed:
                return position
        return len(segments) - 1

    def _trust(self) -> None:
        found = self._found
        last = found.segments[-1]
        indexed = last.load()
        found.end_offset = indexed.end_offset
        if indexed.broken is not None:
            self._break(last, indexed.broken)
        self._load_producers(found.end_offset)
        try:
            last.aborted()
        except DamagedIndex as reason:
            _log.warning("index of aborted transactions rebuilt", file=last.path, reason=str(reason))
            self._rebuild_aborted(last)

    def _rebuild_aborted(self, segment: Segment) -> None:
        found = self._found
        segment.set_aborted(AbortedIndex())
        try:
            segment.set_aborted(found.snapshots.aborted_in(segment, found.segments))
        except BrokenSegment as broken:
            self._break(broken.segment, broken.where)

    def _load_producers(self, to: int) -> None:
        """Producers as they were at this offset."""
        found = self._found
        try:
            found.producers = found.snapshots.producers_at(to, found.segments, self._now_ms)
        except BrokenSegment as broken:
            self._break(broken.segment, broken.where)

    # Verifying

    def _scan(self, first: int, durable_to: int, same_boot: bool) -> None:
        found = self._found
        found.end_offset = found.segments[first].base_offset
        self._load_producers(found.end_offset)
        if found.damage is None:
            broken = self._scan_segments(first)
            if broken is not None:
                self._judge(broken, durable_to, same_boot)
            elif max(found.end_offset, found.start_offset) < durable_to < INT64_MAX:
                last = found.segments[-1]
                reason = f"the log had been synced up to offset {durable_to}"
                self._break(last, Unreadable(last.size, found.end_offset, reason))
        if found.damage is None:
            self._disk.unlink(os.path.join(self._path, directory.DAMAGED_FILE))

    def _scan_segments(self, first: int) -> BrokenSegment | None:
        found = self._found
        before: Segment | None = None
        for segment in found.segments[first:]:
            # Below the start some may have been deleted and others not.
            if before is not None and segment.base_offset > found.start_offset:
                gap = segment.base_offset - found.end_offset
                if gap < 0 or (gap > 0 and before.dense):
                    reason = f"the log goes on at offset {segment.base_offset} where {found.end_offset} should follow"
                    return BrokenSegment(before, Unreadable(before.size, found.end_offset, reason))
            elif before is not None:
                # What the deleted ones told of producers is in the snapshot where a later one begins.
                self._load_producers(segment.base_offset)
            found.end_offset = segment.base_offset
            broken = self._scan_segment(segment)
            if broken is not None:
                return BrokenSegment(segment, broken)
            before = segment
        return None

    def _scan_segment(self, segment: Segment) -> Unreadable | None:
        """Verify every batch and learn from it; returns where it breaks."""
        found = self._found
        file = self._disk.open_append(segment.path)
        indexes = Indexes.empty(segment.base_offset, segment.interval_bytes)
        aborted = AbortedIndex()
        segment.hold(file, indexes)
        segment.set_aborted(aborted)
        segment.trusted_from = 0
        found.unsynced.append(segment)
        try:
            for position, batch in whole_batches(file, 0, segment.size, segment.base_offset, dense=segment.dense):
                indexes.add(position, batch.size, batch.last_offset, batch.max_timestamp)
                self._learn(batch, aborted)
        except Unreadable as broken:
            return broken
        return None

    def _learn(self, batch: Batch, aborted: AbortedIndex) -> None:
        found = self._found
        found.end_offset = batch.next_offset
        if batch.leader_epoch > found.epochs.latest:
            found.epochs.assign(batch.leader_epoch, batch.base_offset)
        completed = found.producers.applied(batch, self._now_ms)
        if completed is not None and not completed.commit:
            aborted.append(AbortedTransaction.of(completed))

    def _judge(self, broken: BrokenSegment, durable_to: int, same_boot: bool) -> None:
        """Torn or damaged?"""
        segment, where = broken.segment, broken.where
        segments = self._found.segments
        later = segments[segments.index(segment) + 1 :]
        if where.offset < durable_to or (same_boot and self._something_follows(segment, where, later)):
            self._break(segment, where)
        else:
            self._cut(segment, where.position, later)

    def _something_follows(self, segment: Segment, where: Unreadable, later: list[Segment]) -> bool:
        if batch_follows(segment.opened().file, where.position, segment.size, where.offset):
            return True
        return any(batch_follows(self._disk.open(each.path), -1, each.size, where.offset) for each in later)

    def _cut(self, segment: Segment, position: int, later: list[Segment]) -> None:
        found = self._found
        # The latest first: stopped half-way, what is left is still the beginning of the log.
        for each in reversed(later):
            found.cut_bytes += each.size
            remove_segment(self._disk, each)
            found.segments.remove(each)
        if position < segment.size:
            found.cut_bytes += segment.size - position
            segment.held.file.truncate(position)
            segment.size = position
        _log.warning("torn tail cut", file=segment.path, position=position, bytes=found.cut_bytes)

    def _break(self, segment: Segment, where: Unreadable) -> None:
        found = self._found
        if found.damage is None or where.offset < found.damage.offset:
            found.damage = Damage(segment.path, where.position, where.offset, where.reason)
        for each in found.unsynced:
            each.release()
        found.unsynced.clear()


def remove_segment(disk: Disk, segment: Segment) -> None:
    segment.retire()
    # The segment itself first: what is left of one without it is nothing.
    for ending in directory.SEGMENT_ENDINGS:
        disk.unlink(segment.stem + ending)
