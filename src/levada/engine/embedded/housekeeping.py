"""What a broker does by itself: delete what is old, compact, forget who is gone, save how far it has come.

One task a job, asleep until it is due; one that fails is reported and comes again. No partition has a timer of its own, and none is opened just to look: whether there is something to do in one that is not open is told by its file names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import structlog

from levada.config import MINUTE_MS, SECOND_MS, TopicConfig
from levada.engine.embedded.datadir import DataDir
from levada.engine.embedded.partition import Workers
from levada.engine.embedded.partitions import Partitions
from levada.engine.port import At, TopicInfo, TopicView
from levada.errors import LevadaError

#: Between a wish to hurry and the job: whatever else is wished for meanwhile is served by the same run.
HURRY_S: Final = 1.0
CHECKPOINT_MS: Final = MINUTE_MS
PURGE_MS: Final = 10 * SECOND_MS
PRODUCER_EXPIRY_MS: Final = 10 * MINUTE_MS

_log = structlog.get_logger("levada.housekeeping")


class Job:
    """Something that is done every so often, and sooner when `hurry` is called. The pause is asked for each time, because
    settings change."""

    def __init__(self, name: str, pause_ms: Callable[[], int], run: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self._pause_ms = pause_ms
        self._run = run
        self._wake = asyncio.Event()
        self._hurrying = False
        self._stopping = False

    def hurry(self) -> None:
        """Do it in a moment; asking again until then changes nothing."""
        if not self._hurrying:
            self._hurrying = True
            self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    async def repeat(self) -> None:
        """Until it is stopped. A failure is reported, and the job comes again."""
        while True:
            await self._pause()
            if self._stopping:
                return
            try:
                await self._run()
            except Exception as error:
                _log.error("job failed", job=self.name, reason=str(error), kind=type(error).__name__)

    async def _pause(self) -> None:
        if await self._woken_within(self._pause_ms() / 1000) and not self._stopping:
            self._wake.clear()
            await self._woken_within(HURRY_S)  # by `stop` alone
        self._hurrying = False
        self._wake.clear()

    async def _woken_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._wake.wait()
        except TimeoutError:
            return False


class Timetable:
    """Runs jobs when they are due, side by side, each never beside itself."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, name: str, pause_ms: Callable[[], int], run: Callable[[], Awaitable[None]]) -> Job:
        job = Job(name, pause_ms, run)
        self._jobs.append(job)
        return job

    def start(self) -> None:
        self._tasks = [asyncio.create_task(job.repeat(), name=f"levada-{job.name}") for job in self._jobs]

    async def stop(self) -> None:
        """Start no more jobs, and wait for those that run."""
        for job in self._jobs:
            job.stop()
        await asyncio.gather(*self._tasks)


class Upkeep:
    """The jobs that keep the logs in order."""

    def __init__(
        self,
        data: DataDir,
        partitions: Partitions,
        *,
        view: TopicView,
        config_of: Callable[[TopicInfo], TopicConfig],
        floor_of: Callable[[At], int | None],
        workers: Workers,
        now_ms: Callable[[], int],
    ) -> None:
        self._data = data
        self._partitions = partitions
        self._view = view
        self._config_of = config_of
        self._kinds: dict[str, tuple[int, Sequence[tuple[TopicInfo, TopicConfig]]]] = {}
        self._floor_of = floor_of
        self._workers = workers
        self._now_ms = now_ms
        self._saved: dict[At, int] = {}
        self._stopping = False

    async def retain(self) -> None:
        """Delete what is older, or more, than its topic keeps."""
        await self._open_where("delete", _has_expired)
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
        await self._open_where("compact", _may_be_compacted)
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

    async def _open_where(self, kind: str, is_due: Callable[[DataDir, At, TopicConfig, int], bool]) -> None:
        """Open the partitions of topics of this kind that are closed and whose files look as if there were something to do."""
        closed = [
            (at, config)
            for info, config in await self._topics_that(kind)
            for at in (At(info.name, index) for index in range(info.partitions))
            if self._partitions.if_open(at) is None
        ]
        if not closed:
            return
        now_ms = self._now_ms()
        due = await self._workers(lambda: [at for at, config in closed if is_due(self._data, at, config, now_ms)])
        for at in due:
            try:
                self._partitions.get(*at)
            except LevadaError as reason:
                _log.warning("partition not opened", partition=str(at), reason=str(reason))
            await asyncio.sleep(0)

    async def _topics_that(self, kind: str) -> Sequence[tuple[TopicInfo, TopicConfig]]:
        """The topics that are to `delete` or to `compact`; looked through again only when topics have changed."""
        version = self._view.version
        known = self._kinds.get(kind)
        if known is None or known[0] != version:
            found = []
            for number, info in enumerate(self._view.all()):
                config = self._config_of(info)
                if config.delete if kind == "delete" else config.compact:
                    found.append((info, config))
                if number % 500 == 499:  # ten thousand topics are a moment too long for one turn of the loop
                    await asyncio.sleep(0)
            known = self._kinds[kind] = (version, found)
        return known[1]


def _has_expired(data: DataDir, at: At, config: TopicConfig, now_ms: int) -> bool:
    """Whether retention may find something in a partition that is not open."""
    segments = data.segments(at)
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
    return len(data.segments(at)) > 1
