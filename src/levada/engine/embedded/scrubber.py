"""Looking for damage before a reader meets it: after a clean start, the last segment of every partition is verified.

A clean stop lets a start trust the tails without reading them, so a byte that a disk lost meanwhile would go unnoticed until
it is read. The look is taken in the background, one segment after the other, with a pause for every one. A partition that
is not open is not opened for it; only when its last segment is found broken is it, and then says so itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from levada.config import MiB
from levada.engine.embedded.datadir import DataDir
from levada.engine.embedded.partitions import Partitions
from levada.engine.embedded.workers import Workers
from levada.engine.port import At
from levada.errors import LevadaError
from levada.log.scan import Unreadable, whole_batches

#: Bytes verified per second, and pauses per second, at most.
BYTES_PER_SECOND: Final = 64 * MiB
PAUSE_S: Final = 0.002

_log = structlog.get_logger("levada.scrubber")


class Scrubber:
    """One pass over all partitions."""

    def __init__(
        self, data: DataDir, partitions: Partitions, *, is_topic: Callable[[str], bool], workers: Workers
    ) -> None:
        self._data = data
        self._partitions = partitions
        self._is_topic = is_topic
        self._workers = workers

    async def run(self) -> None:
        for at in sorted(await self._workers(self._data.partitions)):
            if self._is_topic(at.topic):
                size = await self._scrub(at)
                await asyncio.sleep(PAUSE_S + size / BYTES_PER_SECOND)

    async def _scrub(self, at: At) -> int:
        """Verify one; return how many bytes that were."""
        try:
            partition = self._partitions.if_open(at)
            if partition is None:
                size, is_whole = await self._workers(partial(self._look, at))
                if is_whole:
                    return size
                partition = self._partitions.get(*at)
            return await partition.scrub()
        except (OSError, LevadaError) as reason:
            _log.warning("not verified", partition=str(at), reason=str(reason))
            return 0

    def _look(self, at: At) -> tuple[int, bool]:
        """In a worker thread: the size of the last segment, and whether every batch in it is whole."""
        segments = self._data.segments(at)
        if not segments:
            return 0, True
        file = self._data.disk.open(segments[-1].path)
        try:
            for _ in whole_batches(file, 0, file.size, segments[-1].base_offset, dense=False):
                pass
        except Unreadable:
            return file.size, False
        finally:
            file.close()
        return file.size, True
