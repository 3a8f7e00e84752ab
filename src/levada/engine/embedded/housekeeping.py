"""What a broker does by itself: delete what is old, compact, forget who is gone, save how far it has come.

One task, asleep until the next job is due; a job that fails is reported and comes again. No partition has a timer of its
own, and none is opened just to look: whether there is something to do in one that is not open is told by its file names.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from levada.config import MINUTE_MS, SECOND_MS, TopicConfig
from levada.engine.embedded.datadir import DataDir
from levada.engine.embedded.partition import Workers
from levada.engine.embedded.partitions import Partitions
from levada.engine.port import At
from levada.errors import LevadaError

CHECKPOINT_MS: Final = MINUTE_MS
PURGE_MS: Final = 10 * SECOND_MS
PRODUCER_EXPIRY_MS: Final = 10 * MINUTE_MS

_log = structlog.get_logger("levada.housekeeping")


@dataclass(frozen=True, slots=True)
class Job:
    """Something to be done every so often. The pause is asked for each time, because settings change."""

    name: str
    pause_ms: Callable[[], int]
    run: Callable[[], Awaitable[None]]


class Timetable:
    """Runs jobs when they are due, one after the other."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def add(self, name: str, pause_ms: Callable[[], int], run: Callable[[], Awaitable[None]]) -> None:
        self._jobs.append(Job(name, pause_ms, run))

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="levada-housekeeping")

    async def stop(self) -> None:
        """Start no more jobs, and wait for the one that runs."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = [(loop.time() + job.pause_ms() / 1000, number) for number, job in enumerate(self._jobs)]
        heapq.heapify(due)
        while not await self._stopped_before(due[0][0]):
            job = self._jobs[due[0][1]]
            try:
                await job.run()
            except Exception as error:
                _log.error("job failed", job=job.name, reason=str(error), kind=type(error).__name__)
            heapq.heapreplace(due, (loop.time() + job.pause_ms() / 1000, due[0][1]))

    async def _stopped_before(self, when: float) -> bool:
        try:
            async with asyncio.timeout_at(when):
                return await self._stopping.wait()
        except TimeoutError:
            return False


class Upkeep:
    """The jobs that keep the logs in order."""

    def __init__(
        self,
        data: DataDir,
        partitions: Partitions,
        *,
        config_of: Callable[[str], TopicConfig | None],
        floor_of: Callable[[At], int | None],
        workers: Workers,
        now_ms: Callable[[], int],
    ) -> None:
        self._data = data
        self._partitions = partitions
        self._config_of = config_of
        self._floor_of = floor_of
        self._workers = workers
        self._now_ms = now_ms
        self._saved: dict[At, int] = {}
        self._stopping = False

    async def retain(self) -> None:
        """Delete what is older, or more, than its topic keeps."""
        await self._open_where(_has_expired)
        for partition in self._partitions.all():
            if partition.config.delete:
                try:
                    freed = await partition.retain(self._floor_of(partition.at))
                    if freed:
                        _log.info("old segments deleted", partition=str(partition.at), bytes=freed)
                except LevadaError as reason:
                    _log.warning("old segments not deleted", partition=str(partition.at), reason=str(reason))
            await asyncio.sleep(0)

    async def compact(self) -> None:
        """Compact what has become worth it, one partition at a time, in a worker thread."""
        await self._open_where(_may_be_compacted)
        for partition in self._partitions.all():
            if partition.config.compact and not partition.is_gone and not self._stopping:
                try:
                    await partition.compact()
                except LevadaError as reason:
                    _log.warning("not compacted", partition=str(partition.at), reason=str(reason))

    async def stop(self) -> None:
        """End what takes long."""
        self._stopping = True
        for partition in self._partitions.all():
            await partition.stop_compacting()

    async def purge(self) -> None:
        """Remove files whose time under their `.deleted` name is over."""
        now_ms = self._now_ms()
        for partition in self._partitions.all():
            partition.log.purge(now_ms)

    async def expire_producers(self) -> None:
        now_ms = self._now_ms()
        for partition in self._partitions.all():
            partition.log.producers.expire(now_ms)

    async def checkpoint(self) -> None:
        """Save how far each partition is durable, if that has changed."""
        points = self._partitions.recovery_points()
        if points != self._saved:
            await self._workers(partial(self._data.checkpoint, points, dict(self._data.recovery.unrecovered)))
            self._saved = points

    async def _open_where(self, is_due: Callable[[DataDir, At, TopicConfig, int], bool]) -> None:
        """Open the partitions that are closed and whose files look as if there were something to do."""
        closed = [
            (at, config)
            for at in await self._workers(self._data.partitions)
            if self._partitions.if_open(at) is None and (config := self._config_of(at.topic)) is not None
        ]
        now_ms = self._now_ms()
        due = await self._workers(lambda: [at for at, config in closed if is_due(self._data, at, config, now_ms)])
        for at in due:
            try:
                self._partitions.get(*at)
            except LevadaError as reason:
                _log.warning("partition not opened", partition=str(at), reason=str(reason))
            await asyncio.sleep(0)


def _has_expired(data: DataDir, at: At, config: TopicConfig, now_ms: int) -> bool:
    """Whether retention may find something in a partition that is not open."""
    segments = data.segments(at) if config.delete else []
    if not segments:
        return False
    try:
        size = sum(data.disk.size(segment.path) for segment in segments)
        if config.retention_bytes >= 0 and len(segments) > 1 and size > config.retention_bytes:
            return True
        age_ms = now_ms - data.disk.modified_ms(segments[0].path)
        return size > 0 and 0 <= config.retention_ms < age_ms
    except FileNotFoundError:
        return False


def _may_be_compacted(data: DataDir, at: At, config: TopicConfig, now_ms: int) -> bool:
    """Compaction leaves the active segment alone."""
    return config.compact and len(data.segments(at)) > 1
