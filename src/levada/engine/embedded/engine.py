"""The embedded engine: this process keeps the log on its own disk.

One data directory, one event loop, and the loop is the lock: a change is finished before the next `await`. Nothing but
reading from the page cache and writing to it happens on the loop; whatever waits for the disk runs in worker threads.
Changes go on to their end when the caller gives up: a client that hangs up does not leave a topic half made.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

import structlog

from levada.config import BrokerConfig, TopicConfig
from levada.engine.embedded import reader
from levada.engine.embedded.archived import ArchiveFloor
from levada.engine.embedded.broker_settings import BrokerSettings
from levada.engine.embedded.datadir import DataDir, DirectoryLock, raise_file_limit
from levada.engine.embedded.housekeeping import Housekeeping
from levada.engine.embedded.journal import Journal, PartitionJournal
from levada.engine.embedded.offsets import OffsetStore
from levada.engine.embedded.owners import Owners
from levada.engine.embedded.partition import Partition
from levada.engine.embedded.partitions import Partitions
from levada.engine.embedded.producer_ids import ProducerIds
from levada.engine.embedded.registry import Registry, registry_topic
from levada.engine.embedded.scrubber import Scrubber
from levada.engine.embedded.shelf import DirectoryShelf
from levada.engine.embedded.syncer import Syncer
from levada.engine.embedded.topics import Configs, Topics
from levada.engine.embedded.transaction_limits import TransactionLimits
from levada.engine.embedded.transactions import Transactions
from levada.engine.embedded.upkeep import Upkeep
from levada.engine.histogram import Histogram
from levada.engine.names import CONSUMER_OFFSETS, TOPICS, TRANSACTION_STATE
from levada.engine.port import (
    Acks,
    Appended,
    At,
    Bounds,
    Committed,
    Engine,
    Found,
    Isolation,
    Owner,
    Placement,
    Slice,
    TopicInfo,
    TopicSpec,
    TopicView,
    Write,
)
from levada.engine.settings import Level, LiveSettings
from levada.errors import UnknownTopicId
from levada.log.disk import Disk
from levada.records.batch import sole_batch

#: Threads for cold reads, compaction, checkpoints and removals. The syncer has its own.
WORKERS: Final = 8

T = TypeVar("T")

_log = structlog.get_logger("levada.engine")


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class EmbeddedEngine(Engine):
    """The engine port over a data directory. Make one with `open`."""

    def __init__(
        self, data: DataDir, config: BrokerConfig, now_ms: Callable[[], int], lock: DirectoryLock | None
    ) -> None:
        self.config = config
        self.now_ms = now_ms
        self._data = data
        self._lock = lock
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="levada-work")
        self._changes: set[asyncio.Task[Any]] = set()
        #: What holds now; `config` is what the broker was started with.
        self.settings = LiveSettings(config)
        self._configs = Configs(lambda: self.settings.topic_defaults)
        self._registry = Registry(registry_topic(data.cluster_id))
        self._syncer = Syncer()
        self._partitions = Partitions(
            data,
            self._registry,
            config_of=lambda info: self._configs.of(info.settings),
            syncer=self._syncer,
            workers=self.in_thread,
            now_ms=now_ms,
            producer_expiration_ms=lambda: self.settings.number("producer.id.expiration.ms"),
            opened=lambda partition: self.transactions.opened(partition),
            rolled=lambda: self._housekeeping.checkpoint_soon(),
        )
        self._registry_journal = PartitionJournal(
            lambda: (self._partitions.get(TOPICS, 0), 0), exists=lambda: True, now_ms=now_ms
        )
        self._topics = Topics(self._registry, self._registry_journal, self._partitions, self._configs, now_ms=now_ms)
        self._broker_settings = BrokerSettings(self.settings, self._registry_journal, config.node_id)
        self.offset_store = OffsetStore(self.internal(CONSUMER_OFFSETS), now_ms)
        self._producer_ids = ProducerIds(data.first_producer_ids, data.reserve_producer_ids, self._threads.submit)
        self.transactions = Transactions(
            self.internal(TRANSACTION_STATE),
            self._at,
            self.offset_store,
            self._producer_ids.next,
            now_ms,
            TransactionLimits.of(self.settings),
            coordinator_epoch=data.broker_epoch,
        )
        self._owners = Owners(self.transactions, self._at)
        #: Asked before retention deletes: the lowest offset of a partition that somebody still needs, or None.
        self.retention_floors: list[Callable[[At], int | None]] = [ArchiveFloor(self.config_of, self.offset_store)]
        #: Asked before an offset expires: may members of this group still read this topic?
        self.reads_topic: Callable[[str, str], bool] = lambda group, topic: False
        self._scrubber = Scrubber(
            data,
            self._partitions,
            is_topic=lambda name: self._registry.get(name) is not None,
            workers=self.in_thread,
        )
        self._scrubbing: asyncio.Task[None] | None = None
        self._upkeep = Upkeep(
            data,
            self._partitions,
            view=self._registry,
            config_of=lambda info: self._configs.of(info.settings),
            floor_of=self._floor,
            workers=self.in_thread,
            now_ms=now_ms,
        )
        self._housekeeping = Housekeeping(
            self.settings,
            upkeep=self._upkeep,
            partitions=self._partitions,
            offsets=self.offset_store,
            transactions=self.transactions,
            reads_topic=lambda group, topic: self.reads_topic(group, topic),
            now_ms=now_ms,
        )
        self.settings.watch(self._settings_changed)

    @classmethod
    async def open(
        cls,
        data: Path,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        disk: Disk | None = None,
    ) -> EmbeddedEngine:
        """Take up the directory, or make it. DataInUse, DataFormatTooNew, StorageFailed.

        A disk given by the caller is not locked: it may not be a real one.
        """
        raise_file_limit()
        lock = DirectoryLock(data) if disk is None else None
        try:
            opened = await asyncio.to_thread(DataDir.open, data, disk or Disk(), node_id=config.node_id)
            engine = cls(opened, config, now_ms, lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        try:
            await engine._start()
        except BaseException:
            await engine._let_go()
            raise
        return engine

    async def _start(self) -> None:
        self._topics.load()
        self._broker_settings.load(self._registry.others)
        await self.in_thread(self._partitions.remove_deleted)
        if not self._data.was_clean:
            _log.info("the last stop was not clean: all partitions are checked", epoch=self.broker_epoch)
            # A damaged registry does not name all topics: then nothing is known to be left over.
            if self._registry_journal.partition.damage is None:
                await self.in_thread(self._partitions.remove_leftovers)
        self.transactions.load()
        self.offset_store.load()
        await self._partitions.recover()
        self.transactions.start()
        if not self._data.was_clean:
            self._forget_offsets_of_deleted_topics()
        self._topics.deleted = self._forget_offsets
        self._housekeeping.start()
        await self._partitions.recover_rest()
        if self._data.was_clean:
            self._scrubbing = asyncio.create_task(self._scrubber.run(), name="levada-scrubber")

    def _settings_changed(self) -> None:
        self._configs.defaults_changed()
        self._partitions.settings_changed()
        self.transactions.limits = TransactionLimits.of(self.settings)
        self._housekeeping.replan()

    def _floor(self, at: At) -> int | None:
        floors = (floor(at) for floor in self.retention_floors)
        return min((floor for floor in floors if floor is not None), default=None)

    async def _forget_offsets(self, topic: str) -> None:
        await self.offset_store.durable(self.offset_store.topic_deleted(topic))

    def _forget_offsets_of_deleted_topics(self) -> None:
        """A crash may have come between the end of a topic and that of its offsets."""
        for topic in self.offset_store.topics():
            if self._registry.get(topic) is None:
                self.offset_store.topic_deleted(topic)

    async def close(self) -> None:
        """Finish what was begun, make everything durable, and say so in the directory."""
        if self._scrubbing is not None:
            self._scrubbing.cancel()
            await asyncio.wait([self._scrubbing])
        await self._housekeeping.stop()
        while self._changes:
            await asyncio.wait(self._changes)
        await self.transactions.close()
        await self._partitions.close()
        try:
            await self.in_thread(self._data.close)
        except OSError as reason:
            _log.error("the stop could not be written down; the next start is as after a crash", reason=str(reason))
        await self._let_go()

    async def _let_go(self) -> None:
        """End the threads and free the directory for the next one; what is not durable by now is as after a crash."""
        await self._syncer.close()
        self._threads.shutdown()
        if self._lock is not None:
            self._lock.release()

    # What the Kafka front uses directly

    @property
    def cluster_id(self) -> str:
        return self._data.cluster_id

    @property
    def broker_epoch(self) -> int:
        """Grows on every start after a crash; the leader epoch of every partition."""
        return self._data.broker_epoch

    @property
    def view(self) -> TopicView:
        return self._registry

    def partition(self, topic: str, index: int) -> Partition:
        """UnknownTopic, UnknownPartition. The first use opens it."""
        return self._partitions.get(topic, index)

    def _at(self, at: At) -> Partition:
        return self._partitions.get(*at)

    def partition_by_id(self, topic_id: UUID, index: int) -> Partition:
        info = self._registry.by_id(topic_id)
        if info is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        return self._partitions.get(info.name, index)

    def open_partitions(self) -> Sequence[Partition]:
        """Those in use since the start; for measuring and for naming damage."""
        return self._partitions.all()

    @property
    def sync_latency(self) -> Histogram:
        """How long syncs took."""
        return self._syncer.latency

    @property
    def unrecovered(self) -> int:
        """Partitions that are still to be brought in order after a crash."""
        return self._partitions.unrecovered

    def end_of(self, at: At) -> int:
        """As `bounds`, its end alone, for measuring: most partitions need not be opened for it."""
        return self._partitions.end_of(at)

    def records(self) -> tuple[int, int]:
        """Records that came in and went out since the start."""
        return self._partitions.records()

    def count_out(self, at: At, records: int, size: int) -> None:
        """So much of this partition was sent to a native reader."""
        if self._registry.get(at.topic) is not None:
            partition = self._partitions.get(*at)
            partition.records_out += records
            partition.bytes_out += size

    async def bytes_on_disk(self) -> int:
        """Of all logs."""
        return await self.in_thread(self._data.size_bytes)

    def place_by(self, place: Callable[[TopicInfo | None, int, int], Placement]) -> None:
        """Have this called for where a topic's partitions are to lie: the topic as it was, if it was, partitions, copies."""
        self._topics.place = place

    def admit(self, at: At, batch: bytes | bytearray | memoryview) -> None:
        """Refuse what an append would refuse by the topic's rules, and store nothing."""
        self._partitions.get(*at).admit(sole_batch(bytes(batch)))

    def config_of(self, topic: str) -> TopicConfig:
        """UnknownTopic."""
        return self._configs.of(self._topics.existing(topic).settings)

    def shelf(self, name: str) -> DirectoryShelf:
        """A directory for what can be rebuilt from the log, only not as fast."""
        return DirectoryShelf(self._data.path / name, self._data.disk)

    def internal(self, name: str) -> Journal:
        """The journal of an internal topic, which is made when it is first written."""

        def place() -> tuple[Partition, int]:
            info, registry_end = self._topics.ensure_internal(name)
            return self._partitions.get(info.name, 0), registry_end

        return PartitionJournal(
            place,
            exists=lambda: self._registry.get(name) is not None,
            now_ms=self.now_ms,
            registry=self._registry_journal,
        )

    # Topics

    async def topics(self) -> TopicView:
        return self._registry

    async def create(self, spec: TopicSpec) -> TopicInfo:
        return await self._to_the_end(self._topics.create(spec))

    async def expand(self, name: str, partitions: int) -> TopicInfo:
        return await self._to_the_end(self._topics.expand(name, partitions))

    async def alter(self, name: str, settings: Mapping[str, str | None]) -> TopicInfo:
        return await self._to_the_end(self._topics.alter(name, settings))

    async def delete(self, name: str) -> None:
        await self._to_the_end(self._topics.delete(name))

    async def alter_broker(self, level: Level, changes: Mapping[str, str | None]) -> None:
        """Set, or with None unset, broker-wide settings. Durable and in effect when it returns; all or none. InvalidConfig."""
        await self._to_the_end(self._broker_settings.alter(level, changes))

    # Records

    async def append(self, at: At, batch: bytes | bytearray | memoryview, acks: Acks = Acks.ALL) -> Appended:
        partition = self._partitions.get(*at)
        appended = partition.append(sole_batch(batch))
        if acks == Acks.NONE:
            return appended
        waiting = partition.when_durable(appended.last_offset + 1)
        if waiting is not None:
            await waiting
        return appended._replace(durable=True)

    async def read(
        self,
        at: At,
        offset: int,
        max_bytes: int,
        wait_ms: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Slice:
        return await reader.read(self._partitions.get(*at), offset, max_bytes, wait_ms, isolation)

    async def bounds(self, at: At) -> Bounds:
        return self._partitions.get(*at).bounds

    async def offset_at(self, at: At, timestamp_ms: int) -> Found | None:
        return await self._partitions.get(*at).offset_at(timestamp_ms)

    async def trim(self, at: At, before: int) -> int:
        return await self._partitions.get(*at).trim(before)

    # Groups and transactions

    async def offsets(self, group: str) -> Mapping[At, Committed]:
        return self.offset_store.fetch(group)

    async def commit_offsets(self, group: str, offsets: Mapping[At, Committed]) -> None:
        for at in offsets:
            self._topics.check_partition(at)
        await self.offset_store.commit(group, offsets)

    def own(self, shard: str) -> AbstractAsyncContextManager[Owner]:
        return self._owners.own(shard)

    async def transact(
        self, owner: Owner, writes: Sequence[Write], offsets: Mapping[str, Mapping[At, Committed]] | None = None
    ) -> list[Appended]:
        for at in itertools.chain.from_iterable((offsets or {}).values()):
            self._topics.check_partition(at)
        return await self._to_the_end(self._owners.transact(owner, writes, offsets))

    # Threads and tasks

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run something that may wait for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _to_the_end(self, change: Coroutine[Any, Any, T]) -> T:
        """Carry a change out to its end, also when whoever asked for it has gone."""
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)
