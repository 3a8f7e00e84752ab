"""One partition: the rules of its topic over its log, who waits for it, and how far it may be seen.

The event loop is the lock. `append` writes to the page cache and returns; the syncer makes it durable; whoever waits for
that, or for something to read, is called on the loop. With `fsync` the visible end is the synced end, with `interval` and
`os` the written end. Readers at the end are woken, never polling.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import structlog

from levada.config import TopicConfig
from levada.engine.embedded.intake import Intake
from levada.engine.embedded.shrinker import Shrinker
from levada.engine.embedded.syncer import Syncer
from levada.engine.embedded.workers import Workers
from levada.engine.port import Aborted, At, Bounds, Isolation, Slice
from levada.errors import (
    CorruptBatch,
    DamagedLog,
    LevadaError,
    OffsetOutOfRange,
    RecordError,
    StorageFailed,
    StorageFull,
)
from levada.log.log import Log
from levada.log.results import Appended, Damage, Found
from levada.log.stretch import Stretch
from levada.records.batch import Batch, end_of
from levada.records.build import end_marker

_COMMITTED: Final = Isolation.READ_COMMITTED

_log = structlog.get_logger("levada.partition")


class Waiter(Protocol):
    """Someone who waits for a partition to move."""

    def advanced(self, partition: Partition, bytes_added: int) -> None:
        """Called on the loop when there is more to read, and on damage, trimming or deletion. May unwatch itself."""
        ...


class Partition:
    """An open partition. The engine makes it and closes it; everything but `sync` is called on the loop.

    `settle` is called in a worker thread before the first sync: what must be durable before any record is. `rolled` is called
    when a closed segment has become durable.
    """

    def __init__(
        self,
        at: At,
        topic_id: UUID,
        log: Log,
        *,
        leader_epoch: int,
        syncer: Syncer,
        workers: Workers,
        now_ms: Callable[[], int],
        settle: Callable[[], None] | None = None,
        rolled: Callable[[], None] | None = None,
    ) -> None:
        self.at = at
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self._syncer = syncer
        self._workers = workers
        self._now_ms = now_ms
        self._settle = settle
        self._rolled = rolled
        self._segments = len(log.segments)
        self._end = log.end_offset
        self._unsynced_bytes = 0
        #: Bytes that are visible, but not yet to read_committed readers.
        self._held_bytes = 0
        self._waiters: dict[Waiter, None] = {}
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._refusal: Callable[[], LevadaError] | None = None
        self._gone = False
        #: Told what the broker itself has written here: ends of transactions, and what they hold. For whoever keeps a memory of it.
        self.observer: Callable[[Batch], None] | None = None
        #: Since it was opened, for measuring: transaction markers count, what was not stored again does not.
        self.records_in = self.bytes_in = 0
        self.records_out = self.bytes_out = 0
        #: Why it takes no writes since a sync failed, and when the disk last had no room for one.
        self.sync_error: str | None = None
        self.full_ms = 0
        self.shrinker = Shrinker(at, log, workers, shrunk=lambda: self._wake(0), broken=self.found_damage)
        self._take(log.config)
        if log.damage is not None:
            self._break(log.damage)

    @property
    def is_gone(self) -> bool:
        """True once its topic was deleted, or the broker is closing."""
        return self._gone

    # How far it goes

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end(self) -> int:
        """The end of what readers see; Kafka's high watermark."""
        return self._end

    @property
    def stable_end(self) -> int:
        """The end of what read_committed readers see; Kafka's last stable offset."""
        first = self.log.producers.first_unstable_offset(self._end)
        return self._end if first is None or first > self._end else first

    @property
    def log_end(self) -> int:
        """Where the next record goes."""
        return self.log.end_offset

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.log.start_offset, self.stable_end, self._end)

    @property
    def damage(self) -> Damage | None:
        """Where the log is broken, if it is."""
        return self.log.damage

    # Writing

    def append(self, batch: Batch, *, internal: bool = False) -> Appended:
        """Check the batch by the topic's rules, stamp it and write it to the page cache. Needs a writable buffer.

        A refusal stores nothing. `internal` is for what the broker itself writes: no rule but the producer's epoch holds.
        """
        if self._refusal is not None:
            raise self._refusal()
        now_ms = self._now_ms()
        if not internal:
            try:
                batch = self._intake.admit(batch, now_ms)
            except RecordError as refusal:
                return self._first_copy(batch, refusal)
        try:
            appended = self.log.append(batch, leader_epoch=self.leader_epoch, now_ms=now_ms, sequences=not internal)
        except StorageFull:
            self.full_ms = now_ms
            raise
        if not appended.duplicate:
            self._written(batch)
        if internal and self.observer is not None:
            self.observer(batch)
        return appended

    def append_screened(self, batch: Batch, screen: Callable[[Batch, int], Batch | None]) -> Appended | None:
        """As `append`, of what `screen` leaves of the batch; None, and nothing is written, where it leaves nothing.

        It is asked once all other rules have let the batch pass, with the batch as it would be stored and the offset that is
        next. A producer's repeat never gets there: its first copy is the answer.
        """
        if self._refusal is not None:
            raise self._refusal()
        now_ms = self._now_ms()
        try:
            batch = self._intake.admit(batch, now_ms)
        except RecordError as refusal:
            return self._first_copy(batch, refusal)
        repeat = self.log.producers.check(batch) if batch.has_producer else None
        if repeat is not None:
            return repeat._replace(start_offset=self.log.start_offset)
        left = screen(batch, self.log.end_offset)
        if left is None:
            return None
        try:
            appended = self.log.append(left, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except StorageFull:
            self.full_ms = now_ms
            raise
        self._written(left)
        return appended

    def _first_copy(self, batch: Batch, refusal: RecordError) -> Appended:
        """A repeat of what was taken before the topic's rules changed is answered as ever; all else is refused."""
        producer = self.log.producers.get(batch.producer_id) if batch.has_producer else None
        seen = producer.repeat_of(batch) if producer is not None else None
        if seen is None or isinstance(refusal, CorruptBatch):
            raise refusal
        return Appended(seen.first_offset, seen.last_offset, start_offset=self.log.start_offset, duplicate=True)

    def admit(self, batch: Batch) -> Batch:
        """The batch as this topic would store it, or a refusal, without storing it."""
        if self._refusal is not None:
            raise self._refusal()
        return self._intake.admit(batch, self._now_ms())

    def append_marker(self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int) -> Appended:
        """End the producer's transaction in this partition."""
        marker = end_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=self._now_ms(),
        )
        return self.append(Batch(memoryview(marker)), internal=True)

    def when_durable(self, end_offset: int) -> asyncio.Future[None] | None:
        """Done when everything below `end_offset` is as durable as the topic's policy says; None if it is already."""
        if end_offset <= self._end:
            return None
        return self._when(end_offset)

    def when_synced(self, end_offset: int) -> asyncio.Future[None] | None:
        """Done when everything below `end_offset` is on disk, whatever the topic's policy; None if it is already."""
        if end_offset <= self.log.synced_offset:
            return None
        future = self._when(end_offset)
        self._syncer.soon(self)
        return future

    def _when(self, end_offset: int) -> asyncio.Future[None]:
        if self._refusal is not None:
            raise self._refusal()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end_offset, future))
        return future

    def _written(self, batch: Batch) -> None:
        size = batch.size
        self.records_in += batch.record_count
        self.bytes_in += size
        self._unsynced_bytes += size
        if self._mode == "fsync":
            self._syncer.soon(self)
            return
        self._advance(self.log.end_offset)
        if self._mode == "interval":
            self._syncer.within(self, self.config.durability.interval_ms)
        elif self.log.rolled:
            self._syncer.soon(self)

    # Reading

    def read(self, offset: int, max_bytes: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> Slice:
        """Whole batches from `offset` on, from the page cache alone: WouldBlock where the disk would have to be asked."""
        bounds = self._check_offset(offset)
        limit = bounds.stable_end if isolation == _COMMITTED else bounds.end
        if offset >= limit:
            return Slice(b"", bounds)
        try:
            if isolation == _COMMITTED:
                return _slice(bounds, *self.log.read_committed(offset, max_bytes, limit, nowait=True))
            return Slice(self.log.read(offset, max_bytes, limit, nowait=True), bounds)
        except DamagedLog:
            self.found_damage()
            raise

    async def read_cold(self, offset: int, max_bytes: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> Slice:
        """The same, in a worker thread."""
        bounds = self._check_offset(offset)
        limit = bounds.stable_end if isolation == _COMMITTED else bounds.end
        if offset >= limit:
            return Slice(b"", bounds)
        try:
            if isolation == _COMMITTED:
                return _slice(bounds, *await self._workers(partial(self.log.read_committed, offset, max_bytes, limit)))
            return Slice(await self._workers(partial(self.log.read, offset, max_bytes, limit)), bounds)
        except DamagedLog:
            self.found_damage()
            raise

    def count_out(self, offset: int, batches: Stretch | bytes | bytearray | memoryview) -> None:
        """These batches go to a reader who asked for `offset`. Records are counted by their offsets."""
        self.bytes_out += len(batches)
        self.records_out += (batches.end_offset if isinstance(batches, Stretch) else end_of(batches)) - offset

    async def offset_at(self, timestamp_ms: int) -> Found | None:
        """The first visible record at or after this time."""
        self._check_here()
        return await self._workers(partial(self.log.offset_at, timestamp_ms, self._end))

    async def max_timestamp(self) -> Found | None:
        """The first record that has the latest timestamp; waits until it is visible."""
        self._check_here()
        found = await self._workers(self.log.max_timestamp)
        if found is not None and (waiting := self.when_durable(found.offset + 1)) is not None:
            await waiting
        return found

    def _check_offset(self, offset: int) -> Bounds:
        self._check_here()
        start, end, damage = self.log.start_offset, self.log.end_offset, self.log.damage
        if damage is not None and offset >= damage.offset:
            raise DamagedLog(f"{self.at}: {damage}", file=damage.file, position=damage.position)
        if not start <= offset <= end:
            raise OffsetOutOfRange(f"{self.at}: offset {offset} is not within {start} to {end}", start=start, end=end)
        return self.bounds

    # Waiting

    def watch(self, waiter: Waiter) -> None:
        """Call the waiter whenever `end` moves, or with it `stable_end`, and when the partition breaks, shrinks or goes."""
        self._waiters[waiter] = None

    def unwatch(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)

    def _advance(self, end: int) -> None:
        if end <= self._end:
            return
        added, self._unsynced_bytes = self._unsynced_bytes, 0
        self._end = end
        if self.log.producers.first_unstable_offset(end) is not None:
            self._held_bytes += added
        elif self._held_bytes:
            added, self._held_bytes = added + self._held_bytes, 0
        self._wake(added)

    def _wake(self, added: int) -> None:
        for waiter in tuple(self._waiters):
            try:
                waiter.advanced(self, added)
            except Exception:  # a reader's bug is not the writer's
                _log.exception("a waiting reader failed", partition=str(self.at))

    # The syncer's side

    def sync(self) -> int:
        """In a worker thread: make what is written durable."""
        if self._settle is not None:
            self._settle()
            self._settle = None
        return self.log.sync()

    def synced(self, offset: int) -> None:
        self.log.mark_synced(offset)
        self._advance(offset)
        if len(self.log.segments) != self._segments:
            self._segments = len(self.log.segments)
            if self._rolled is not None:
                self._rolled()
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(None)

    def sync_failed(self, error: Exception) -> None:
        reason = f"{self.at}: the disk could not make it durable: {error}; no more is written until the broker restarts"
        self.sync_error = reason
        _log.error("sync failed", partition=str(self.at), reason=str(error))
        self._refuse(lambda: StorageFailed(reason))

    # Changes from above

    def alter(self, config: TopicConfig) -> None:
        """Take new settings of the topic."""
        self.log.config = config
        self._take(config)
        if self._mode == "fsync":
            if self.log.synced_offset < self.log.end_offset:
                self._syncer.soon(self)
        else:
            self._advance(self.log.end_offset)

    def _take(self, config: TopicConfig) -> None:
        self.config = config
        self._intake = Intake(config)
        self._mode = config.durability.mode
        #: Whether messages that were seen before are not to be stored again.
        self.remembers = config.dedup != "off"

    async def trim(self, before: int) -> int:
        """Delete what lies below `before`; return the new start offset, which is durable then."""
        return await self.shrinker.trim(before, self._end)

    def close(self) -> None:
        """In a worker thread, with nobody writing: make all of it durable."""
        if self._settle is not None:
            self._settle()
            self._settle = None
        self.log.close()

    def retire(self, refusal: Callable[[], LevadaError]) -> None:
        """The partition is going away: everything is refused from now on, and whoever waits is told."""
        self._gone = True
        self._refuse(refusal)

    def _refuse(self, refusal: Callable[[], LevadaError]) -> None:
        self._refusal = refusal
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(refusal())
        self._wake(0)

    def _check_here(self) -> None:
        if self._gone and self._refusal is not None:
            raise self._refusal()

    # Damage

    async def scrub(self) -> int:
        """Verify what of the last segment was not verified yet; return its size."""
        await self._workers(self.log.scrub)
        self.found_damage()
        return self.log.segments[-1].size if self.log.segments else 0

    def found_damage(self) -> None:
        """A read met bytes that are not what was written."""
        if self.log.damage is not None and self._refusal is None:
            self._break(self.log.damage)

    def _break(self, damage: Damage) -> None:
        message = f"{self.at}: {damage}; it takes no writes"
        self._refuse(lambda: DamagedLog(message, file=damage.file, position=damage.position))


def _slice(bounds: Bounds, data: bytes | bytearray | memoryview, aborted: Sequence[Aborted]) -> Slice:
    return Slice(data, bounds, aborted if data else ())
