"""Keeping the logs in order: deleting what is old, compacting, removing what was deleted, forgetting who is gone.

No partition is opened just to look: whether there is something to do in one that is not open is told by its file names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from levada.config import TopicConfig
from levada.engine.embedded.datadir import DataDir
from levada.engine.embedded.partitions import Partitions
from levada.engine.embedded.workers import Workers
from levada.engine.port import At, TopicInfo, TopicView
from levada.errors import LevadaError, ShuttingDown

_log = structlog.get_logger("levada.upkeep")


class Upkeep:
    """The jobs, each to be called from time to time."""

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
        self._stopping = False

    async def retain(self) -> None:
        """Delete what is older, or more, than its topic keeps."""
        await self._open_where("delete", _has_expired)
        for partition in self._partitions.all():
            try:
                # Of compacted topics too: segments below the start offset are of no use to anybody.
                freed = await partition.shrinker.retain(self._now_ms(), self._floor_of(partition.at))
                if freed:
                    _log.info("old segments deleted", partition=str(partition.at), bytes=freed)
                if waiting := partition.shrinker.waiting_bytes:
                    _log.warning(
                        "old segments kept: they are not archived yet", partition=str(partition.at), bytes=waiting
                    )
            except LevadaError as reason:
                _log.warning("old segments not deleted", partition=str(partition.at), reason=str(reason))
            await asyncio.sleep(0)

    async def compact(self) -> None:
        """Compact what has become worth it, one partition at a time, in a worker thread."""
        await self._open_where("compact", _may_be_compacted)
        for partition in self._partitions.all():
            if partition.config.compact and not self._stopping:
                try:
                    await partition.shrinker.compact(self._now_ms)
                except LevadaError as reason:
                    _log.warning("not compacted", partition=str(partition.at), reason=str(reason))

    async def stop(self) -> None:
        """End what takes long."""
        self._stopping = True
        for partition in self._partitions.all():
            await partition.shrinker.stop(ShuttingDown())

    async def purge(self) -> None:
        """Remove files whose time under their `.deleted` name is over."""
        now_ms = self._now_ms()
        for partition in self._partitions.all():
            partition.log.purge(now_ms)

    async def expire_producers(self) -> None:
        now_ms = self._now_ms()
        for partition in self._partitions.all():
            partition.log.producers.expire(now_ms)

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
                await self._partitions.look_after(at)
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
