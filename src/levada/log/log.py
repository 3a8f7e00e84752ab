"""The log of one partition: batches in segments, by offset.

Written by one thread, the event loop. `read`, `offset_at`, `max_timestamp`, `sync`, `scrub` and `close` may run in worker
threads beside it. Three offsets say how far it goes:

    start_offset     the first that is held
    synced_offset    all below is durable
    end_offset       the next to be written

An append is one write to the page cache. `sync` makes durable all that was appended before it was called: the segments'
bytes, then the files beside closed segments, then the names in the directory. Indexes of the active segment live in memory;
they become files when the segment or the log is closed.
"""

from __future__ import annotations

import os.path
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

import structlog

from levada.config import TopicConfig
from levada.errors import DamagedIndex, DamagedLog, OffsetOutOfRange, StorageFailed, StorageFull
from levada.log import directory, lookup, retention
from levada.log.aborted import AbortedIndex, AbortedTransaction, aborted
from levada.log.disk import Disk
from levada.log.epochs import FILE_NAME as EPOCHS_FILE
from levada.log.files import SHARED, Files
from levada.log.recovery import (
    BrokenSegment,
    Recovered,
    Recovery,
    producers_at,
    rebuild_aborted,
    remove_segment,
)
from levada.log.results import Aborted, Appended, Damage, Found
from levada.log.scan import Unreadable
from levada.log.segment import NO_ROOM, Data, Segment
from levada.records.batch import LOG_APPEND_TIME, Batch

_log = structlog.get_logger("levada.log")


class Layout(NamedTuple):
    """A log's segments in order, and their base offsets."""

    bases: list[int]
    segments: list[Segment]

    @classmethod
    def of(cls, segments: list[Segment]) -> Layout:
        return cls([segment.base_offset for segment in segments], segments)

    def find(self, offset: int) -> int:
        """The number of the segment that holds this offset, or would."""
        return max(0, bisect_right(self.bases, offset) - 1)


class Log:
    """One partition on disk. A refusal changes nothing."""

    def __init__(self, path: str, config: TopicConfig, disk: Disk, files: Files, found: Recovered) -> None:
        self.path = path
        self.config = config
        self.producers = found.producers
        self.epochs = found.epochs
        self.start_offset = found.start_offset
        self.end_offset = found.end_offset
        self.synced_offset = found.end_offset
        #: Where it is broken, if it is: it is read up to there and takes no writes.
        self.damage: Damage | None = None
        #: How much was cut when it was opened, because it was not whole.
        self.cut_bytes = found.cut_bytes
        self._disk = disk
        self._files = files
        #: Replaced as a whole, never changed: readers in other threads hold on to the one they began with.
        self._layout = Layout.of(found.segments)
        self._cleaned_to = found.cleaned_to
        self._snapshots = found.snapshots
        #: Closed segments that are not settled yet, then the active one.
        self._unsynced = tuple(found.unsynced or found.segments[-1:])
        #: Small files that the next sync is to write: path → content.
        self._pending: dict[str, bytes] = {}
        self._sync_lock = threading.Lock()
        #: How far syncs have reached; truncating takes it back.
        self._durable_to = -1 if found.unsynced else found.end_offset
        #: Counts the changes to the directory, and how many of them are durable.
        self._names = 0
        self._names_synced = 0
        #: True from the first append on: then the active segment's index files are out of date.
        self._appended = False
        self._failure = ""
        #: (when to remove them, files)
        self._deleted: deque[tuple[int, list[str]]] = deque()

    @classmethod
    def open(
        cls,
        path: str,
        config: TopicConfig,
        disk: Disk,
        *,
        now_ms: int,
        recovery_point: int | None = None,
        clean: bool = False,
        same_boot: bool = True,
        files: Files = SHARED,
    ) -> Log:
        """Open the log in this directory, making both if need be. Afterwards all of it that can be read is durable.

        `clean`: it was closed properly, and its tail is trusted. Otherwise it is verified from the segment that holds
        `recovery_point` on (None: all of it), and cut or found damaged as recovery.py says; `same_boot`: the machine has
        not been down since it was written. StorageFull, StorageFailed.
        """
        try:
            made = disk.mkdir(path)
            recovery = Recovery(disk, files, path, config, now_ms)
            found = recovery.recover(recovery_point=recovery_point, clean=clean, same_boot=same_boot)
            log = cls(path, config, disk, files, found)
            if made:
                disk.fsync_dir(os.path.dirname(path))
            if found.damage is not None:
                log._break(found.damage)
            elif not log.segments:
                log._add_segment(now_ms)
            elif found.unsynced:
                log._pending[os.path.join(path, EPOCHS_FILE)] = log.epochs.encode()
                log._names += 1
                log._appended = True
                log.sync()
        except OSError as reason:
            raise _storage_error(path, reason) from reason
        return log

    # What it holds

    @property
    def segments(self) -> Sequence[Segment]:
        """In order; the last one is active: it is appended to."""
        return self._layout.segments

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def rolled(self) -> bool:
        """True while a closed segment has not been synced."""
        return len(self._unsynced) > 1

    @property
    def first_unstable_offset(self) -> int | None:
        """The lowest first offset of an open transaction."""
        return self.producers.first_undecided_offset

    # Writing

    def append(self, batch: Batch, *, leader_epoch: int, now_ms: int, sequences: bool = True) -> Appended:
        """Give a valid batch the next offsets and write it, to the page cache. It needs a writable buffer.

        A producer's repeat is not written again: its first copy is the answer. Errors of `Producers.check`; StorageFull
        and StorageFailed leave the log as it was, and after StorageFailed it takes no more; DamagedLog.
        """
        if self.damage is not None or self._failure:
            self._refuse()
        if batch.producer_id >= 0:
            repeat = self.producers.check(batch, sequences=sequences)
            if repeat is not None:
                return repeat._replace(start_offset=self.start_offset)
        base_offset = self.end_offset
        last_offset = base_offset + batch.last_offset_delta
        segment = self._layout.segments[-1]
        if segment.wants_roll(self.config, batch, last_offset, now_ms):
            segment = self.roll(now_ms)
        batch.stamp(base_offset, leader_epoch)
        try:
            if not self._appended:
                self._disown_files(segment)
            size = segment.append(batch, last_offset)
        except OSError as reason:
            self._write_failed(segment, reason)
        if leader_epoch != self.epochs.latest:
            self._enter_epoch(leader_epoch, base_offset)
        if batch.producer_id >= 0:
            completed = self.producers.applied(batch, now_ms)
            if completed is not None and not completed.commit:
                segment.aborted().append(AbortedTransaction.of(completed))
        # In this order: a reader in another thread takes the size first, and must not see beyond the end offset.
        self.end_offset = last_offset + 1
        segment.size = size
        timestamp_ms = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else -1
        return Appended(base_offset, last_offset, timestamp_ms, self.start_offset)

    def roll(self, now_ms: int) -> Segment:
        """Close the active segment and go on in a new one. StorageFull when there is no room for another file."""
        snapshot = self.producers.snapshot()
        segment = self._add_segment(now_ms)
        self._pending[directory.snapshot_path(self.path, self.end_offset)] = snapshot
        self._snapshots.append(self.end_offset)
        return segment

    def _add_segment(self, now_ms: int) -> Segment:
        base_offset = self.end_offset
        stem = directory.stem(self.path, base_offset)
        segment = Segment(self._disk, self._files, stem, base_offset, size=0, created_ms=now_ms, config=self.config)
        try:
            segment.create()
        except OSError as reason:
            raise _storage_error(segment.path, reason) from reason
        self._names += 1
        self._appended = True
        self._layout = Layout.of([*self.segments, segment])
        self._unsynced = (*self._unsynced, segment)
        return segment

    def _disown_files(self, segment: Segment) -> None:
        """Before the first append to a segment that has index files: they will not be its own any more."""
        segment.disown_companions()
        self._names += 1
        self._appended = True

    def _enter_epoch(self, leader_epoch: int, base_offset: int) -> None:
        if self.epochs.assign(leader_epoch, base_offset):
            self._pending[os.path.join(self.path, EPOCHS_FILE)] = self.epochs.encode()

    def _write_failed(self, segment: Segment, reason: OSError) -> NoReturn:
        """Cut what was written of the batch, and say what it means."""
        try:
            segment.cut_back()
        except OSError as cut_reason:
            self._fail(cut_reason)
        if reason.errno not in NO_ROOM:
            self._fail(reason)
        raise _storage_error(segment.path, reason) from reason

    def _fail(self, reason: OSError) -> None:
        if not self._failure:
            self._failure = f"{self.path}: {reason}; it takes no more writes until it is opened again"
            _log.error("log failed", path=self.path, reason=str(reason))

    def _refuse(self) -> NoReturn:
        if self.damage is not None:
            raise DamagedLog(f"{self.damage}; it takes no writes", file=self.damage.file, position=self.damage.position)
        raise StorageFailed(self._failure)

    # Reading

    def read(self, offset: int, max_bytes: int, end_offset: int, *, nowait: bool = False) -> Data:
        """Whole batches from the one that holds `offset` on, all below `end_offset`: as many as fit, at least one if any.

        With `nowait` from the page cache alone: WouldBlock where that is not enough. What this process neither wrote nor
        read before is verified. OffsetOutOfRange; DamagedLog from the damage on.
        """
        while True:
            damage = self.damage
            if damage is not None and offset >= damage.offset:
                raise DamagedLog(str(damage), file=damage.file, position=damage.position)
            if not self.start_offset <= offset <= self.end_offset:
                raise OffsetOutOfRange(
                    f"{self.path}: offset {offset} is not within {self.start_offset} to {self.end_offset}",
                    start=self.start_offset,
                    end=self.end_offset,
                )
            try:
                return self._read(
                    offset, max_bytes, end_offset if damage is None else min(end_offset, damage.offset), nowait
                )
            except BrokenSegment as broken:
                if not broken.segment.retired:
                    self._found_broken(broken)
            except OSError as reason:
                # Deleted or compacted meanwhile? If not, the disk failed.
                gone = isinstance(reason, FileNotFoundError)
                if not gone or any(segment.path == reason.filename for segment in self.segments):
                    raise StorageFailed(f"{self.path}: {reason}") from reason

    def _read(self, offset: int, max_bytes: int, end_offset: int, nowait: bool) -> Data:
        layout = self._layout
        number = layout.find(offset)
        while offset < end_offset:
            segment = layout.segments[number]
            try:
                position = segment.locate(offset, nowait=nowait)
                limit = self._limit(layout, number, end_offset, nowait)
                data = segment.read(offset, position, limit, max_bytes, nowait=nowait) if position < limit else b""
            except Unreadable as where:
                raise BrokenSegment(segment, where) from None
            if segment.retired:
                layout = self._layout
                number = layout.find(offset)
            elif data or number + 1 == len(layout.segments):
                return data
            else:
                # Nothing is left of this segment from the offset on: compaction leaves gaps.
                number += 1
                offset = max(offset, layout.bases[number])
        return b""

    def _limit(self, layout: Layout, number: int, end_offset: int, nowait: bool) -> int:
        """Where in the segment the batches below `end_offset` end."""
        segment = layout.segments[number]
        # Before the end offset is looked at: both grow while another thread reads, the size last.
        size = segment.size
        following = layout.bases[number + 1] if number + 1 < len(layout.bases) else self.end_offset
        return size if end_offset >= following else min(size, segment.locate(end_offset, nowait=nowait))

    def _found_broken(self, broken: BrokenSegment) -> None:
        where = broken.where
        self._break(Damage(broken.segment.path, where.position, where.offset, where.reason))

    def _break(self, damage: Damage) -> None:
        """From now on the log is read up to here and takes no writes, also when it is opened again."""
        if self.damage is not None and self.damage.offset <= damage.offset:
            return
        self.damage = damage
        segment = self._layout.segments[self._layout.find(damage.offset)]
        segment.remember(damage.offset, damage.position)
        _log.error(
            "log damaged", file=damage.file, position=damage.position, offset=damage.offset, reason=damage.reason
        )
        try:
            directory.write_checkpoint(self._disk, self.path, directory.DAMAGED_FILE, damage.offset)
        except OSError as reason:
            _log.warning("damage not written down", path=self.path, reason=str(reason))

    def scrub(self) -> Damage | None:
        """Verify what of the last segment this process has neither written nor read yet. For a worker thread."""
        segment = self._layout.segments[-1]
        try:
            segment.scrub()
        except Unreadable as where:
            if not segment.retired:
                self._found_broken(BrokenSegment(segment, where))
        return self.damage

    def aborted(self, offset: int, end_offset: int) -> list[Aborted]:
        """The aborted transactions that a reader of [offset, end_offset) has to skip, by first offset."""
        layout = self._layout
        return aborted(map(self._aborted_of, layout.segments[layout.find(offset) :]), offset, end_offset)

    def _aborted_of(self, segment: Segment) -> AbortedIndex:
        try:
            return segment.aborted()
        except DamagedIndex as reason:
            _log.warning("index of aborted transactions rebuilt", file=segment.path, reason=str(reason))
        try:
            rebuilt = rebuild_aborted(self._disk, self.path, self.segments, self._snapshots, segment)
        except BrokenSegment as broken:
            self._found_broken(broken)
            raise DamagedLog(str(self.damage), file=broken.segment.path, position=broken.where.position) from None
        segment.set_aborted(rebuilt)
        return rebuilt

    def offset_at(self, timestamp_ms: int, end_offset: int | None = None) -> Found | None:
        """The first record at or after this time, below `end_offset`."""
        return lookup.offset_at(self, timestamp_ms, self.end_offset if end_offset is None else end_offset)

    def max_timestamp(self, end_offset: int | None = None) -> Found | None:
        """The first record that has the largest timestamp of all."""
        return lookup.max_timestamp(self, self.end_offset if end_offset is None else end_offset)

    # Durability

    def sync(self) -> int:
        """Make all that is appended durable; return the end offset up to which it is now. For a worker thread.

        StorageFailed when the disk says no: what was not synced before may be gone, and the log takes no more writes.
        """
        with self._sync_lock:
            # In this order: everything below the end lies in these segments, whatever is appended or rolled meanwhile.
            end_offset = self.end_offset
            segments = self._unsynced
            try:
                self._sync_files(segments, end_offset)
            except OSError as reason:
                self._fail(reason)
                raise StorageFailed(self._failure) from reason
            self._durable_to = end_offset
        return end_offset

    def _sync_files(self, segments: tuple[Segment, ...], end_offset: int) -> None:
        names = self._names
        if end_offset != self._durable_to:
            for segment in segments:
                segment.sync()
        for segment in segments[:-1]:
            if segment.is_held and segment.settle():
                names = -1
        if self._write_pending():
            names = -1
        if names != self._names_synced:
            names = self._names
            self._disk.fsync_dir(self.path)
            self._names_synced = names

    def _write_pending(self) -> bool:
        """Write the small files that wait for it; those that find no room go on waiting."""
        refused = {}
        count = 0
        while self._pending:
            path, data = self._pending.popitem()
            try:
                self._disk.replace(path, data)
                count += 1
            except OSError as reason:
                if reason.errno not in NO_ROOM:
                    raise
                refused[path] = data
        for path, data in refused.items():
            self._pending.setdefault(path, data)
        return count > 0

    def mark_synced(self, offset: int) -> None:
        """What `sync` returned, told on the loop."""
        self.synced_offset = max(self.synced_offset, min(offset, self._durable_to))
        if len(self._unsynced) > 1:
            *closed, active = self._unsynced
            self._unsynced = (*(segment for segment in closed if segment.is_held), active)

    def close(self) -> None:
        """Make everything durable, with indexes and a snapshot of the producers, and let go of the files.

        StorageFull, StorageFailed: not everything is in order, and the log must be opened as after a crash.
        """
        try:
            if self._failure:
                raise StorageFailed(self._failure)
            if self.damage is None:
                self.mark_synced(self.sync())
                if self._appended:
                    self._write_tail()
        except OSError as reason:
            raise _storage_error(self.path, reason) from reason
        finally:
            self.abandon()

    def _write_tail(self) -> None:
        self._disk.replace(directory.snapshot_path(self.path, self.end_offset), self.producers.snapshot())
        self._snapshots.append(self.end_offset)
        if not self._layout.segments[-1].write_companions():
            raise StorageFull(f"{self.path}: there is no room for the indexes")
        keep = {*self._layout.bases, self.end_offset}
        for offset in self._snapshots:
            if offset not in keep:
                self._disk.unlink(directory.snapshot_path(self.path, offset))
        self._disk.fsync_dir(self.path)

    def abandon(self) -> None:
        """Let go of the files as they are; nothing is written."""
        self._failure = self._failure or f"{self.path} is closed"
        for segment in self.segments:
            segment.release()

    # Getting shorter

    def trim(self, before: int) -> None:
        """Delete all records below this offset. Durable when it returns. OffsetOutOfRange; StorageFull, StorageFailed."""
        if not self.start_offset <= before <= self.end_offset:
            raise OffsetOutOfRange(
                f"{self.path}: cannot delete up to {before}; it holds {self.start_offset} to {self.end_offset}",
                start=self.start_offset,
                end=self.end_offset,
            )
        if before > self.start_offset:
            try:
                directory.write_checkpoint(self._disk, self.path, directory.START_FILE, before)
            except OSError as reason:
                raise _storage_error(self.path, reason) from reason
            self._start_at(before)

    def _start_at(self, offset: int) -> None:
        self.start_offset = offset
        if self.epochs.trim(offset):
            self._pending[os.path.join(self.path, EPOCHS_FILE)] = self.epochs.encode()

    def retain(self, now_ms: int, *, floor: int | None = None) -> int:
        """Delete segments that need not be kept (see retention.py), none that reaches beyond `floor`; returns their bytes.

        Their files are renamed first; `purge` removes them. A damaged log keeps all it has.
        """
        if self.damage is not None or self._failure:
            return 0
        count = retention.expired(
            self.segments,
            self.config,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            now_ms=now_ms,
            floor=floor,
        )
        if count == len(self.segments):
            try:
                self.roll(now_ms)
            except StorageFull:
                count -= 1
        if count == 0:
            return 0
        try:
            self._leave(count)
            return self._delete_segments(count, now_ms)
        except OSError as reason:
            raise _storage_error(self.path, reason) from reason

    def _leave(self, count: int) -> None:
        """The log starts after this many segments, and will also if their files come back."""
        offset = self._layout.bases[count]
        if offset > self.start_offset:
            try:
                directory.write_checkpoint(self._disk, self.path, directory.START_FILE, offset)
            except OSError as reason:
                # Deleting is how room is made. The oldest go first, so what comes back is whole.
                if reason.errno not in NO_ROOM:
                    raise
            self._start_at(offset)

    def _delete_segments(self, count: int, now_ms: int) -> int:
        with self._sync_lock:
            doomed = self._layout.segments[:count]
            self._layout = Layout.of(self._layout.segments[count:])
            self._unsynced = tuple(segment for segment in self._unsynced if segment not in doomed)
            first = self._layout.bases[0]
            old = [offset for offset in self._snapshots if offset < first]
            self._snapshots = [offset for offset in self._snapshots if offset >= first]
            stems = [*(segment.stem for segment in doomed), *(directory.stem(self.path, offset) for offset in old)]
            for path in map(directory.snapshot_path, [self.path] * len(old), old):
                self._pending.pop(path, None)
            for segment in doomed:
                segment.retire()
            self._put_aside(stems, now_ms)
        return sum(segment.size for segment in doomed)

    def _put_aside(self, stems: Iterable[str], now_ms: int) -> None:
        """Rename files to .deleted; they are removed when nobody can be reading them any more."""
        aside = []
        for stem in dict.fromkeys(stems):
            for ending in (*directory.SEGMENT_ENDINGS, ".snapshot"):
                path = stem + ending
                if self._disk.exists(path):
                    self._disk.rename(path, path + ".deleted")
                    aside.append(path + ".deleted")
        self._names += 1
        self._deleted.append((now_ms + self.config.file_delete_delay_ms, aside))

    def purge(self, now_ms: int) -> None:
        """Remove the files that were put aside file.delete.delay.ms ago."""
        while self._deleted and self._deleted[0][0] <= now_ms:
            for path in self._deleted.popleft()[1]:
                self._disk.unlink(path)

    def truncate(self, to: int, now_ms: int) -> None:
        """Cut the log before the batch that holds this offset. Durable when it returns. StorageFailed."""
        if to >= self.end_offset:
            return
        if self.damage is not None or self._failure:
            self._refuse()
        try:
            with self._sync_lock:
                self._truncate(max(to, self.start_offset), now_ms)
            self.mark_synced(self.sync())
        except OSError as reason:
            self._fail(reason)
            raise StorageFailed(self._failure) from reason

    def _truncate(self, to: int, now_ms: int) -> None:
        layout = self._layout
        number = layout.find(to)
        segment = layout.segments[number]
        for later in reversed(layout.segments[number + 1 :]):
            remove_segment(self._disk, later)
        self._layout = Layout.of(layout.segments[: number + 1])
        self.end_offset = segment.cut(to)
        self._durable_to = -1
        self.synced_offset = min(self.synced_offset, self.end_offset)
        self._unsynced = (*(each for each in self._unsynced if each.base_offset < segment.base_offset), segment)
        self._appended = True
        self._names += 1
        for offset in [offset for offset in self._snapshots if offset > self.end_offset]:
            self._pending.pop(directory.snapshot_path(self.path, offset), None)
            self._disk.unlink(directory.snapshot_path(self.path, offset))
            self._snapshots.remove(offset)
        if self.epochs.truncate(self.end_offset):
            self._pending[os.path.join(self.path, EPOCHS_FILE)] = self.epochs.encode()
        self.producers = producers_at(self._disk, self.path, self.segments, self._snapshots, self.end_offset, now_ms)


def _storage_error(path: str, reason: OSError) -> StorageFull | StorageFailed:
    """What an error of the disk means."""
    if reason.errno in NO_ROOM:
        return StorageFull(f"{path}: there is no room on the disk; writes are refused until there is")
    return StorageFailed(f"{path}: {reason}")
