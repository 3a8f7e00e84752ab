"""The partitions of this broker: opened when first used, kept open, removed with their topic.

A topic's directories are made when a partition is first used, so a topic that nobody wrote to costs one record in the
registry. A directory belongs to a topic if its `partition.metadata` has the topic's id. Deletion renames first: what a
crash leaves behind is found again by its name, or by the id of a topic that the registry says was deleted. Directories of
topics that nobody deleted are put aside and kept.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from levada.config import MiB, TopicConfig
from levada.engine.embedded import partition_metadata
from levada.engine.embedded.datadir import DataDir, storage_error
from levada.engine.embedded.partition import Partition
from levada.engine.embedded.registry import Registry
from levada.engine.embedded.syncer import Syncer
from levada.engine.embedded.workers import Workers
from levada.engine.port import At, TopicInfo
from levada.errors import LevadaError, ShuttingDown, StorageFailed, UnknownPartition, UnknownTopic
from levada.log.files import Files
from levada.log.log import Log

#: After a crash, so many partitions at a time are brought in order; two workers are left for cold reads.
RECOVERED_AT_ONCE: Final = 6
#: For so long nobody is served meanwhile: the first that clients do is to ask for all they used before.
RECOVERY_WAIT_S: Final = 3.0
#: After a crash, partitions with a last segment beyond this are opened before the broker serves: scanning them takes time
#: that the loop should not spend later.
EAGER_BYTES: Final = MiB

_log = structlog.get_logger("levada.partitions")


class Partitions:
    """All open partitions, by place.

    `opened` is called with each one when it has been opened, `rolled` when a closed segment of one has become durable.
    """

    def __init__(
        self,
        data: DataDir,
        registry: Registry,
        *,
        config_of: Callable[[TopicInfo], TopicConfig],
        syncer: Syncer,
        workers: Workers,
        now_ms: Callable[[], int],
        producer_expiration_ms: Callable[[], int],
        opened: Callable[[Partition], None],
        rolled: Callable[[], None],
    ) -> None:
        self._data = data
        self._registry = registry
        self._config_of = config_of
        self._syncer = syncer
        self._workers = workers
        self._now_ms = now_ms
        self._producer_expiration_ms = producer_expiration_ms
        self._opened = opened
        self._rolled = rolled
        self._files = Files()
        self._open: dict[At, Partition] = {}
        self._closing = False
        self._checkpointing = asyncio.Lock()
        self._saved = (dict(data.recovery.points), dict(data.recovery.unrecovered))
        #: Of each partition that a crash left: held by whoever opens it, the loop or a worker.
        self._turns = {at: threading.Lock() for at in data.recovery.unrecovered}
        self._recovering: asyncio.Task[None] | None = None
        #: Of partitions whose topic was deleted since the start.
        self._records_in_gone = self._records_out_gone = 0
        #: Directories that look like a partition of no topic, and do not say whose they are. They are left alone.
        self._strays: set[str] = set()

    def all(self) -> list[Partition]:
        """Those that are open now."""
        return list(self._open.values())

    def get(self, topic: str, index: int) -> Partition:
        """UnknownTopic, UnknownPartition; StorageFull or StorageFailed when it cannot be opened."""
        found = self._open.get((topic, index))  # type: ignore[call-overload]  # an At is that tuple
        return found if found is not None else self._open_first(topic, index)

    def end_of(self, at: At) -> int:
        """The end of what readers see; of a partition that was closed well without opening it. UnknownTopic, UnknownPartition."""
        partition = self._open.get(at)
        if partition is not None:
            return partition.end
        info, recovery = self._registry.get(at.topic), self._data.recovery
        if info is None or at.partition >= info.partitions or at in recovery.unrecovered or at not in recovery.points:
            return self.get(*at).end
        return recovery.points[at]

    def records(self) -> tuple[int, int]:
        """How many came in and went out since the start, of all topics together."""
        partitions = self._open.values()
        return (
            self._records_in_gone + sum(partition.records_in for partition in partitions),
            self._records_out_gone + sum(partition.records_out for partition in partitions),
        )

    @property
    def unrecovered(self) -> int:
        """How many are still to be brought in order after a crash."""
        working = self._recovering is not None and not self._recovering.done()
        return len(self._data.recovery.unrecovered) if working else 0

    def if_open(self, at: At) -> Partition | None:
        return self._open.get(at)

    def of_topic(self, info: TopicInfo) -> list[Partition]:
        """Those of a topic that are open."""
        found = (self._open.get(At(info.name, index)) for index in range(info.partitions))
        return [partition for partition in found if partition is not None]

    def settings_changed(self) -> None:
        """Have the open ones follow the broker's settings; others do when they are opened."""
        expiration_ms = self._producer_expiration_ms()
        for at, partition in self._open.items():
            info = self._registry.get(at.topic)
            if info is not None and partition.config != (config := self._config_of(info)):
                partition.alter(config)
            partition.log.forget_producers_after(expiration_ms)

    def _open_first(self, topic: str, index: int) -> Partition:
        info = self._registry.get(topic)
        if info is None:
            raise UnknownTopic(f"there is no topic {topic}")
        if not 0 <= index < info.partitions:
            raise UnknownPartition(f"topic {topic} has partitions 0 to {info.partitions - 1}, not {index}")
        if self._closing:
            raise ShuttingDown
        at = At(topic, index)
        with self._turn(at):
            opened = self._open_log(at, info)
        return self._install(at, info, *opened)

    def _turn(self, at: At) -> AbstractContextManager[object]:
        return self._turns.get(at) or nullcontext()

    def _open_log(self, at: At, info: TopicInfo) -> tuple[Log, bool]:
        """The log, and whether its directory is known to be durable. Takes as long as verifying what was not closed well."""
        known = self._data.recovery.of(at)
        path = self._data.partition_path(at)
        try:
            was_there = self._claim(at, path, info.id)
            if not known.clean:
                # What can be read after this start must be there after the next.
                partition_metadata.settle(self._data.disk, path)
            log = Log.open(
                str(path),
                self._config_of(info),
                self._data.disk,
                now_ms=self._now_ms(),
                recovery_point=known.point,
                clean=known.clean,
                same_boot=known.same_boot,
                files=self._files,
                producer_expiration_ms=self._producer_expiration_ms(),
            )
        except OSError as reason:
            raise storage_error(at, reason) from reason
        return log, was_there or not known.clean

    def _install(self, at: At, info: TopicInfo, log: Log, is_settled: bool) -> Partition:
        settle = partial(partition_metadata.settle, self._data.disk, self._data.partition_path(at))
        partition = self._open[at] = Partition(
            at,
            info.id,
            log,
            leader_epoch=self._data.broker_epoch,
            syncer=self._syncer,
            workers=self._workers,
            now_ms=self._now_ms,
            settle=None if is_settled else settle,
            rolled=self._rolled,
        )
        self._data.recovery.opened(at, log.synced_offset)
        self._opened(partition)
        return partition

    def _claim(self, at: At, path: Path, topic_id: UUID) -> bool:
        """Make the directory this topic's, or find that it is: True. One of another topic of that name is put aside."""
        disk = self._data.disk
        found = partition_metadata.read(disk, path)
        if found == topic_id:
            return True
        if found is not None:
            self._put_aside(at, path, found)
        disk.mkdir(str(path))
        partition_metadata.write(disk, path, topic_id)
        return False

    def _put_aside(self, at: At, path: Path, topic_id: UUID) -> Path | None:
        """Rename a directory that is no topic's any more; return where it is if it may be removed."""
        if topic_id in self._registry.deleted:
            _log.info("directory of a deleted topic put aside", directory=str(path), topic_id=str(topic_id))
            target = doomed = self._data.deleted_path(topic_id, at.partition)
        else:
            target, doomed = self._data.unknown_path(at, topic_id), None
            _log.warning("directory of an unknown topic put aside", directory=str(path), kept_as=str(target))
        self._data.disk.rename(str(path), str(target))
        return doomed

    # Removal

    async def drop(self, info: TopicInfo) -> None:
        """Close the partitions of a deleted topic and remove their files; all gone when it returns."""
        for partition in self.of_topic(info):
            gone = partial(UnknownTopic, f"topic {info.name} was deleted")
            partition.retire(gone)
            await partition.shrinker.stop(gone())
            await self._syncer.quiet(partition)
            self._records_in_gone += partition.records_in
            self._records_out_gone += partition.records_out
            del self._open[partition.at]
            partition.log.abandon()
        try:
            await self._workers(partial(self._remove, info))
            self._registry.deleted.discard(info.id)
            await self._forget([At(info.name, index) for index in range(info.partitions)])
        except OSError as reason:
            raise storage_error(info.name, reason) from reason

    async def _forget(self, ats: Sequence[At]) -> None:
        """A topic of the same name starts at 0: after a crash it must not be taken for the rest of a longer one."""
        for at in ats:
            self._data.recovery.forget(at)
        if any(at in self._saved[0] for at in ats):
            try:
                await self.checkpoint()
            except OSError as reason:
                _log.warning("checkpoint not written, so it goes", reason=str(reason))
                await self._workers(self._data.drop_checkpoint)

    def _remove(self, info: TopicInfo) -> None:
        disk, doomed = self._data.disk, []
        for index in range(info.partitions):
            at = At(info.name, index)
            path = self._data.partition_path(at)
            with self._turn(at):
                if disk.exists(str(path)):
                    target = self._data.deleted_path(info.id, index)
                    disk.rename(str(path), str(target))
                    doomed.append(str(target))
        if doomed:
            disk.fsync_dir(str(self._data.topics))
        for directory in doomed:
            disk.remove_tree(directory)

    def remove_deleted(self) -> None:
        """Finish deletions that got as far as the new name."""
        for path in self._data.deleted():
            self._data.disk.remove_tree(str(path))

    def remove_leftovers(self) -> None:
        """After a crash: finish deletions that it cut short. Nothing is removed that is not known to have been deleted."""
        for at in self._data.partitions():
            if self._registry.get(at.topic) is None:
                self._remove_unregistered(at)

    def _remove_unregistered(self, at: At) -> None:
        path = self._data.partition_path(at)
        topic_id = partition_metadata.read(self._data.disk, path)
        if topic_id is None or self._data.disk.exists(str(self._data.unknown_path(at, topic_id))):
            _log.warning("directory belongs to no topic; left alone", directory=str(path))
            self._strays.add(at.topic)
            return
        doomed = self._put_aside(at, path, topic_id)
        if doomed is not None:
            self._data.disk.remove_tree(str(doomed))
        self._data.recovery.forget(at)

    def check_free(self, name: str) -> None:
        """Raise StorageFailed if a new topic of this name would take up a directory that is not its own."""
        if name in self._strays:
            raise StorageFailed(
                f"{self._data.topics} has a directory {name}-<partition> that belongs to no topic; "
                "move it away and restart the broker"
            )

    # Start and stop

    async def recover(self) -> None:
        """After a crash: open what would take long to open later, several at a time."""
        await asyncio.gather(*(self._recover(at) for at in sorted(self._data.recovery.unrecovered)))

    async def _recover(self, at: At) -> None:
        info = self._registry.get(at.topic)
        if info is None or at.partition >= info.partitions or at in self._open:
            return
        opened = await self._workers(lambda: self._open_log(at, info) if self._tail_bytes(at) > EAGER_BYTES else None)
        if opened is not None:
            self._install(at, info, *opened)

    async def recover_rest(self) -> None:
        """After a crash: bring the other partitions in order as well, a few at a time; after a while, while the broker serves.

        Opening one that was not closed well waits for the disk, and the loop opens those that are used.
        """
        if self._data.recovery.unrecovered:
            self._recovering = asyncio.create_task(self._recover_rest(), name="levada-recovery")
            await asyncio.wait([self._recovering], timeout=RECOVERY_WAIT_S)

    async def _recover_rest(self) -> None:
        left = iter(sorted(self._data.recovery.unrecovered))

        async def take_turns() -> None:
            for at in left:
                if self._closing:
                    return
                await self.look_after(at)

        await asyncio.gather(*(take_turns() for _ in range(RECOVERED_AT_ONCE)))

    async def look_after(self, at: At) -> None:
        """Bring a partition in order that a crash left, and close it again; from then on opening it is quick."""
        info = self._registry.get(at.topic)
        if info is None or at.partition >= info.partitions or at not in self._data.recovery.unrecovered:
            return
        try:
            log = await self._workers(partial(self._close_well, at, info))
        except LevadaError as reason:
            _log.warning("partition not recovered yet", partition=str(at), reason=str(reason))
            return
        if log is None or at in self._open or self._registry.by_id(info.id) is None or self._closing:
            return
        if log.damage is not None:
            # A damaged one stays open: it is to be seen.
            self._install(at, info, log, True)
        else:
            self._data.recovery.opened(at, log.synced_offset)

    def _close_well(self, at: At, info: TopicInfo) -> Log | None:
        """In a worker thread. None when somebody else has opened or deleted it."""
        with self._turn(at):
            if at in self._open or self._registry.by_id(info.id) is None:
                return None
            log, _ = self._open_log(at, info)
            if log.damage is None:
                log.close()
            return log

    def _tail_bytes(self, at: At) -> int:
        segments = self._data.segments(at)
        return self._data.disk.size(segments[-1].path) if segments else 0

    async def close(self) -> None:
        """Sync and close everything, several at a time."""
        self._closing = True
        if self._recovering is not None:
            await asyncio.wait([self._recovering])
        await asyncio.gather(*(self._close(partition) for partition in self._open.values()))
        self._open.clear()

    async def _close(self, partition: Partition) -> None:
        """One that cannot be closed well is looked at again on the next start."""
        await self._syncer.quiet(partition)
        partition.retire(ShuttingDown)
        try:
            await self._workers(partition.close)
            self._data.recovery.reached(partition.at, partition.log.synced_offset)
        except (OSError, LevadaError) as reason:
            _log.error("partition not closed", partition=str(partition.at), reason=str(reason))
            self._data.recovery.unrecovered[partition.at] = 0

    async def checkpoint(self) -> None:
        """Save how far each partition is durable, if that has changed."""
        async with self._checkpointing:
            recovery = self._data.recovery
            for at, partition in self._open.items():
                recovery.reached(at, partition.log.synced_offset)
            points, unrecovered = dict(recovery.points), dict(recovery.unrecovered)
            if (points, unrecovered) != self._saved:
                await self._workers(partial(self._data.checkpoint, points, unrecovered))
                self._saved = (points, unrecovered)
