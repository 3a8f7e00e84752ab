"""The log of one partition: batches in segments, by offset.

Written by one thread, the event loop. `read`, `offset_at`, `max_timestamp`, `sync`, `trim`, `scrub` and `close` may run in
worker threads beside it. Three offsets say how far it goes:

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
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NoReturn

import structlog

from levada.config import DAY_MS, TopicConfig
from levada.errors import DamagedIndex, DamagedLog, OffsetOutOfRange, StorageFailed, StorageFull
from levada.log import compaction, directory, lookup, retention, steps
from levada.log.aborted import AbortedIndex, AbortedTransaction, aborted
from levada.log.compaction import Compaction
from levada.log.disk import Disk, WouldBlock
from levada.log.epochs import FILE_NAME as EPOCHS_FILE
from levada.log.files import SHARED, Files
from levada.log.layout import Layout, Tail
from levada.log.layout import end_offset as end_offset_of
from levada.log.recovery import Recovered, Recovery
from levada.log.results import Aborted, Appended, Damage, Found
from levada.log.scan import Unreadable
from levada.log.segment import NO_ROOM, Data, Retired, Segment
from levada.log.snapshots import BrokenSegment
from levada.log.steps import Steps
from levada.log.store import Store
from levada.log.swap import Swap
from levada.records.batch import LOG_APPEND_TIME, Batch

_log = structlog.get_logger("levada.log")

_RETRY_S: Final = 0.001
#: Replacing segments waits for the disk once or twice.
_RETRIES_MAX: Final = 30_000


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
        #: Below this the log was compacted, and has gaps.
        self.cleaned_to = found.cleaned_to
        self._disk = disk
        self._store = Store(path, disk, files, found)
        self._unsynced = self._store.unsynced
        self._failure = ""
        self._epochs_lock = threading.Lock()

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
        producer_expiration_ms: int = DAY_MS,
    ) -> Log:
        """Open the log in this directory, making both if need be. Afterwards all of it that can be read is durable.

        `clean`: it was closed properly, and its tail is trusted. Otherwise it is verified from the segment that holds
        `recovery_point` on (None: all of it), and cut or found damaged as recovery.py says; `same_boot`: the machine has
        not been down since it was written. Producers that were idle for `producer_expiration_ms` are forgotten.
        StorageFull, StorageFailed.
        """
        try:
            made = disk.mkdir(path)
            recovery = Recovery(disk, files, path, config, now_ms=now_ms, producer_expiration_ms=producer_expiration_ms)
            found = recovery.recover(recovery_point=recovery_point, clean=clean, same_boot=same_boot)
            log = cls(path, config, disk, files, found)
            if made:
                disk.fsync_dir(os.path.dirname(path))
            if found.damage is not None:
                log._break(found.damage)
            elif not found.segments:
                log._store.add_segment(log.end_offset, now_ms, config)
            elif found.unsynced:
                log._unsynced.write(EPOCHS_FILE, log.epochs.encode())
                log.mark_synced(log.sync())
        except OSError as reason:
            raise _storage_error(path, reason) from reason
        return log

    # What it holds

    @property
    def segments(self) -> Sequence[Segment]:
        """In order; the last one is active: it is appended to."""
        return self._store.layout.segments

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def rolled(self) -> bool:
        """True while a closed segment has not been synced."""
        return len(self._unsynced.segments) > 1

    @property
    def first_unstable_offset(self) -> int | None:
        """The lowest first offset of an open transaction."""
        return self.producers.first_undecided_offset

    def forget_producers_after(self, idle_ms: int) -> None:
        """From now on."""
        self.producers.expiration_ms = self._store.snapshots.producer_expiration_ms = idle_ms

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
        segment = self._store.layout.segments[-1]
        try:
            if segment.wants_roll(self.config, batch, last_offset, now_ms):
                segment = self.roll(now_ms)
            batch.stamp(base_offset, leader_epoch)
            self._store.before_append()
            size = segment.append(batch, last_offset)
        except OSError as reason:
            self._write_failed(segment, reason)
        except Unreadable as where:
            self._found_broken(BrokenSegment(segment, where))
            self._refuse()
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
        try:
            segment = self._store.add_segment(self.end_offset, now_ms, self.config)
        except OSError as reason:
            raise _storage_error(self.path, reason) from reason
        self._unsynced.write(self._store.snapshots.add(self.end_offset), snapshot)
        return segment

    def _enter_epoch(self, leader_epoch: int, base_offset: int) -> None:
        with self._epochs_lock:
            if self.epochs.assign(leader_epoch, base_offset):
                self._unsynced.write(EPOCHS_FILE, self.epochs.encode())

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
        read before is verified. OffsetOutOfRange; DamagedLog from the damage on; StorageFailed.
        """
        return self._read(offset, max_bytes, end_offset, nowait, False)[0]

    def read_committed(
        self, offset: int, max_bytes: int, end_offset: int, *, nowait: bool = False
    ) -> tuple[Data, list[Aborted]]:
        """The same, with the aborted transactions in it that a reader has to skip, as of the same moment."""
        return self._read(offset, max_bytes, end_offset, nowait, True)

    def _read(
        self, offset: int, max_bytes: int, end_offset: int, nowait: bool, committed: bool
    ) -> tuple[Data, list[Aborted]]:
        retries = 0
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
            layout = self._store.layout
            tail = Tail(layout.segments[-1].size, self.end_offset, damage)
            visible_end = end_offset if damage is None else min(end_offset, damage.offset)
            try:
                data = layout.read(offset, max_bytes, visible_end, tail, nowait=nowait)
                # Of the segments that were read: others may hold those offsets by now, or none.
                return data, self._aborted(layout, offset, data, nowait) if committed and data else []
            except BrokenSegment as broken:
                if not broken.segment.retired:
                    self._found_broken(broken)
                    if self.damage is damage:
                        raise DamagedLog(
                            str(broken), file=broken.segment.path, position=broken.where.position
                        ) from None
            except Retired:
                if nowait:
                    raise WouldBlock from None
                retries += 1
                self._wait_for_layout(retries)
            except OSError as reason:
                raise StorageFailed(f"{self.path}: {reason}") from reason

    def _wait_for_layout(self, retries: int) -> None:
        """Something was deleted or compacted: in a moment the loop has put another layout in place, unless it failed."""
        if self._failure:
            raise StorageFailed(self._failure)
        if retries > _RETRIES_MAX:
            raise StorageFailed(f"{self.path}: segments are being replaced, and that does not end")
        time.sleep(_RETRY_S)

    def _found_broken(self, broken: BrokenSegment) -> None:
        where = broken.where
        self._break(Damage(broken.segment.path, where.position, where.offset, where.reason))

    def _break(self, damage: Damage) -> None:
        """From now on the log is read up to here and takes no writes, also when it is opened again."""
        if self.damage is not None and self.damage.offset <= damage.offset:
            return
        self.damage = damage
        _log.error(
            "log damaged", file=damage.file, position=damage.position, offset=damage.offset, reason=damage.reason
        )
        try:
            directory.write_checkpoint(self._disk, self.path, directory.DAMAGED_FILE, damage.offset)
        except OSError as reason:
            _log.warning("damage not written down", path=self.path, reason=str(reason))

    def scrub(self) -> Damage | None:
        """Verify what of the last segment this process has neither written nor read yet. For a worker thread. StorageFailed."""
        segment = self._store.layout.segments[-1]
        try:
            segment.scrub()
        except Unreadable as where:
            if not segment.retired:
                self._found_broken(BrokenSegment(segment, where))
        except Retired:
            pass  # it is gone, and need not be whole
        except OSError as reason:
            raise StorageFailed(f"{self.path}: {reason}") from reason
        return self.damage

    def aborted(self, offset: int, end_offset: int, *, nowait: bool = False) -> list[Aborted]:
        """The aborted transactions that a reader of [offset, end_offset) has to skip, by first offset.

        On the thread that changes the log; others use `read_committed`. WouldBlock with `nowait`.
        """
        return self._overlapping(self._store.layout, offset, end_offset, nowait)

    def _aborted(self, layout: Layout, offset: int, data: Data, nowait: bool) -> list[Aborted]:
        return self._overlapping(layout, offset, end_offset_of(data), nowait)

    def _overlapping(self, layout: Layout, offset: int, end_offset: int, nowait: bool) -> list[Aborted]:
        segments = layout.segments[layout.find(offset) :]
        return aborted((self._aborted_of(segment, nowait=nowait) for segment in segments), offset, end_offset)

    def _aborted_of(self, segment: Segment, *, nowait: bool = False) -> AbortedIndex:
        try:
            return segment.aborted(nowait=nowait)
        except DamagedIndex as reason:
            _log.warning("index of aborted transactions rebuilt", file=segment.path, reason=str(reason))
        try:
            rebuilt = self._store.snapshots.aborted_in(segment, self.segments)
        except BrokenSegment as broken:
            self._found_broken(broken)
            raise DamagedLog(str(self.damage), file=broken.segment.path, position=broken.where.position) from None
        segment.set_aborted(rebuilt)
        return rebuilt

    def offset_at(self, timestamp_ms: int, end_offset: int | None = None) -> Found | None:
        """The first record at or after this time, below `end_offset`. DamagedLog, StorageFailed."""
        end = self.end_offset if end_offset is None else end_offset
        return self._look_up(lambda: lookup.offset_at(self, timestamp_ms, end))

    def max_timestamp(self, end_offset: int | None = None) -> Found | None:
        """The first record that has the largest timestamp of all; None if it is not below `end_offset`."""
        end = self.end_offset if end_offset is None else end_offset
        return self._look_up(lambda: lookup.max_timestamp(self, end))

    def _look_up(self, look: Callable[[], Found | None]) -> Found | None:
        retries = 0
        while True:
            try:
                return look()
            except BrokenSegment as broken:
                if not broken.segment.retired:
                    self._found_broken(broken)
                    raise DamagedLog(str(broken), file=broken.segment.path, position=broken.where.position) from None
            except Retired:
                retries += 1
                self._wait_for_layout(retries)
            except OSError as reason:
                raise StorageFailed(f"{self.path}: {reason}") from reason

    # Durability

    def sync(self) -> int:
        """Make all that is appended durable; return the end offset up to which it is now. For a worker thread.

        StorageFailed when the disk says no: what was not synced before may be gone, and the log takes no more writes.
        """
        with self._unsynced.lock:
            # Taken first: all below lies in segments that are noted by now, whatever is appended or rolled meanwhile.
            end_offset = self.end_offset
            try:
                self._unsynced.sync(end_offset)
            except OSError as reason:
                self._fail(reason)
                raise StorageFailed(self._failure) from reason
        return end_offset

    def mark_synced(self, offset: int) -> None:
        """What `sync` returned, told on the loop."""
        self.synced_offset = max(self.synced_offset, min(offset, self._unsynced.durable_to))
        self._unsynced.forget_settled()

    def close(self) -> None:
        """Make everything durable, with indexes and a snapshot of the producers, and let go of the files.

        StorageFull, StorageFailed: not everything is in order, and the log must be opened as after a crash.
        """
        try:
            if self._failure:
                raise StorageFailed(self._failure)
            if self.damage is None:
                complete = self._store.write_tail(self.end_offset, self.producers)
                self.mark_synced(self.sync())
                if not complete:
                    raise StorageFull(f"{self.path}: there is no room for the indexes")
        except OSError as reason:
            raise _storage_error(self.path, reason) from reason
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are; nothing is written."""
        self._failure = self._failure or f"{self.path} is closed"
        self._store.release()

    # Getting shorter

    def trim(self, before: int) -> None:
        """Delete all records below this offset. Durable when it returns. OffsetOutOfRange; StorageFull, StorageFailed.

        May run in a worker thread, as long as nothing else moves the start.
        """
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
        with self._epochs_lock:
            if self.epochs.trim(offset):
                self._unsynced.write(EPOCHS_FILE, self.epochs.encode())

    def retain(self, now_ms: int, *, floor: int | None = None) -> int:
        """Delete segments that need not be kept (see retention.py), none that is needed from `floor` on; returns their bytes.

        Their files are renamed first; `purge` removes them. A damaged log keeps all it has. StorageFull, StorageFailed.
        """
        return steps.run(self.retaining(now_ms, floor=floor))

    def retaining(self, now_ms: int, *, floor: int | None = None) -> Steps[int]:
        """The same in steps. Nothing else may move the start meanwhile, or replace segments."""
        if self.damage is not None or self._failure:
            return 0
        try:
            # Looks at the segments once where that may take time, and again where they do not change meanwhile.
            yield partial(self._count_expired, now_ms, floor)
            count = self._expired(now_ms, floor)
            if count and self.segments[count - 1].is_held:
                # What follows must be durable before they may go: the snapshot there is all that is known of their producers.
                yield self.sync
                self.mark_synced(self._unsynced.durable_to)
                held = (number for number, segment in enumerate(self.segments[:count]) if segment.is_held)
                count = next(held, count)
            if count == 0:
                return 0
            offset = self._store.layout.bases[count]
            if offset > self.start_offset:
                yield partial(self._write_start, offset)
                self._start_at(offset)
            aside = self._store.drop_first(count)
            yield partial(self._store.put_aside, aside, now_ms + self.config.file_delete_delay_ms)
            self._unsynced.renamed()
            return sum(segment.size for segment in aside.segments)
        except OSError as reason:
            raise _storage_error(self.path, reason) from reason

    def overdue_bytes(self, now_ms: int) -> int:
        """What `retain` would delete if nobody needed anything. May look at the disk. StorageFailed."""
        if self.damage is not None or self._failure:
            return 0
        try:
            return sum(segment.size for segment in self.segments[: self._count_expired(now_ms, None)])
        except OSError as reason:
            raise _storage_error(self.path, reason) from reason

    def _count_expired(self, now_ms: int, floor: int | None) -> int:
        bounds = {"start_offset": self.start_offset, "end_offset": self.end_offset}
        return retention.expired(self.segments, self.config, **bounds, now_ms=now_ms, floor=floor)

    def _expired(self, now_ms: int, floor: int | None) -> int:
        """How many segments may go; not all of them, for which the log is rolled if need be."""
        count = self._count_expired(now_ms, floor)
        if count == len(self.segments):
            try:
                self.roll(now_ms)
            except StorageFull:
                count -= 1
        return count

    def _write_start(self, offset: int) -> None:
        """The log starts here, and will also if the files of what lies below come back."""
        try:
            directory.write_checkpoint(self._disk, self.path, directory.START_FILE, offset)
        except OSError as reason:
            # Deleting is how room is made, so it goes on. The oldest go first: what comes back is whole.
            if reason.errno not in NO_ROOM:
                raise
            self._unsynced.write(*directory.checkpoint(self.path, directory.START_FILE, offset))

    def purge(self, now_ms: int) -> None:
        """Remove the files that were put aside file.delete.delay.ms ago."""
        self._store.purge(now_ms)

    def truncate(self, to: int, now_ms: int) -> None:
        """Cut the log before the batch that holds this offset. Durable when it returns. StorageFailed, DamagedLog."""
        if self.damage is not None or self._failure:
            self._refuse()
        if to >= self.end_offset:
            return
        layout = self._store.layout
        self._aborted_of(layout.segments[layout.find(max(to, self.start_offset))])
        try:
            with self._unsynced.lock:
                self._end_at(self._store.cut(max(to, self.start_offset)), now_ms)
            self.mark_synced(self.sync())
        except OSError as reason:
            self._fail(reason)
            raise StorageFailed(self._failure) from reason
        except BrokenSegment as broken:
            self._found_broken(broken)
            self._refuse()

    def _end_at(self, offset: int, now_ms: int) -> None:
        self.end_offset = offset
        self.synced_offset = min(self.synced_offset, offset)
        if offset < self.start_offset:
            # A batch goes as a whole, also one that the log starts in.
            directory.write_checkpoint(self._disk, self.path, directory.START_FILE, offset)
            self.start_offset = offset
        if self.epochs.truncate(offset):
            self._unsynced.write(EPOCHS_FILE, self.epochs.encode())
        self.producers = self._store.snapshots.producers_at(offset, self.segments, now_ms)

    # Compaction

    def compaction(self, now_ms: int) -> Compaction | None:
        """A round of compaction if one is due: `run` it in a worker thread, then `install` it."""
        if not self.config.compact or self.damage is not None or self._failure:
            return None
        unstable = self.producers.first_unstable_offset(self.synced_offset)
        try:
            return compaction.plan(
                disk=self._disk,
                path=self.path,
                config=self.config,
                segments=self.segments,
                start_offset=self.start_offset,
                first_dirty_offset=self.cleaned_to,
                stable_end=self.synced_offset if unstable is None else min(unstable, self.synced_offset),
                producers=self.producers,
                aborted_of=self._aborted_of,
                found_broken=self._found_broken,
                now_ms=now_ms,
            )
        except OSError as reason:
            raise _storage_error(self.path, reason) from reason

    def install(self, done: Compaction, now_ms: int) -> int:
        """Put what a round of compaction has written in the place of what it read; returns the bytes that became free.

        StorageFailed: the log takes no more writes, and the next start finishes it.
        """
        return steps.run(self.installing(done, now_ms))

    def installing(self, done: Compaction, now_ms: int) -> Steps[int]:
        """The same in steps. Nothing else may move the start meanwhile."""
        if any(segment.retired for each in done.rewritten for segment in each.replaced):
            # Meanwhile the log deleted something of what was read: the next round begins with what is left.
            try:
                yield partial(Swap(self._disk, self.path).undo, self.cleaned_to)
            except OSError as reason:
                raise _storage_error(self.path, reason) from reason
            return 0
        replaced = [segment for each in done.rewritten for segment in each.replaced]
        added = [self._store.successor(each, now_ms, self.config) for each in done.rewritten]
        if added:
            for segment in replaced:
                segment.retire()
            try:
                yield partial(self._store.replace_files, replaced, added, now_ms + self.config.file_delete_delay_ms)
            except OSError as reason:
                # Some files have their new names and others not.
                self._fail(reason)
                raise StorageFailed(self._failure) from reason
            self._store.replaced(replaced, added)
        self.cleaned_to = max(self.cleaned_to, done.cleaned_to)
        for segment in self.segments:
            segment.dense = segment.base_offset >= self.cleaned_to
        return sum(segment.size for segment in replaced) - sum(segment.size for segment in added)


def _storage_error(path: str, reason: OSError) -> StorageFull | StorageFailed:
    """What an error of the disk means."""
    if reason.errno in NO_ROOM:
        return StorageFull(f"{path}: there is no room on the disk; writes are refused until there is")
    return StorageFailed(f"{path}: {reason}")
