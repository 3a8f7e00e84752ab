"""Making a partition's log smaller: by request, by age or size, by key.

The start offset is on the disk too, so whoever moves it waits for whoever does; compaction goes on beside that. Before a
topic's files are removed, `stop` sees to it that nothing here still writes to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from levada.engine.embedded.workers import Workers
from levada.engine.port import At
from levada.errors import LevadaError, OffsetOutOfRange
from levada.log.compaction import Compaction
from levada.log.log import Log
from levada.log.steps import Steps

T = TypeVar("T")


class Shrinker:
    """Of one partition. `shrunk` is called when the start offset has moved, `broken` when damage was met."""

    def __init__(
        self, at: At, log: Log, workers: Workers, *, shrunk: Callable[[], None], broken: Callable[[], None]
    ) -> None:
        self._at = at
        self._log = log
        self._workers = workers
        self._shrunk = shrunk
        self._broken = broken
        self._moving = asyncio.Lock()
        self._compacting = asyncio.Lock()
        self._compaction: Compaction | None = None
        self._stopped: LevadaError | None = None
        #: What retention found too old, or too much, the last time, and kept because it is still needed.
        self.waiting_bytes = 0

    async def trim(self, before: int, end: int) -> int:
        """Delete what lies below `before`, which is at most the visible `end`; return the start, durable by then."""
        async with self._moving:
            self._check()
            start = self._log.start_offset
            if not 0 <= before <= end:
                raise OffsetOutOfRange(
                    f"{self._at}: cannot delete up to {before}; it holds {start} to {end}", start=start, end=end
                )
            if before > start:
                await self._workers(partial(self._log.trim, before))
                self._shrunk()
            return self._log.start_offset

    async def retain(self, now_ms: int, floor: int | None) -> int:
        """Delete what is older, or more, than the topic keeps, below `floor` alone; return the bytes freed."""
        async with self._moving:
            if self._stopped is not None:
                return 0
            start = self._log.start_offset
            freed = await self._drive(self._log.retaining(now_ms, floor=floor))
            if self._log.start_offset != start:
                self._shrunk()
            self.waiting_bytes = await self._overdue(now_ms) if floor is not None else 0
            return freed

    async def _overdue(self, now_ms: int) -> int:
        return await self._workers(partial(self._log.overdue_bytes, now_ms))

    async def compact(self, now_ms: Callable[[], int]) -> None:
        """Compact the log if that is due."""
        async with self._compacting:
            self._compaction = self._log.compaction(now_ms()) if self._stopped is None else None
            if self._compaction is None:
                return
            try:
                if await self._workers(self._compaction.run):
                    async with self._moving:
                        if self._stopped is None:
                            await self._drive(self._log.installing(self._compaction, now_ms()))
            finally:
                self._compaction = None
                self._broken()

    async def _drive(self, steps: Steps[T]) -> T:
        """Take the steps here, and in worker threads what waits for the disk; to the end, also when the caller gives up."""
        taking = asyncio.ensure_future(self._take(steps))
        try:
            return await asyncio.shield(taking)
        finally:
            # Whoever holds the lock must not let go of it before.
            await asyncio.wait([taking])

    async def _take(self, steps: Steps[T]) -> T:
        try:
            work = next(steps)
            while True:
                try:
                    await self._workers(work)
                except Exception as error:
                    work = steps.throw(error)
                else:
                    work = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result

    async def stop(self, reason: LevadaError) -> None:
        """End a compaction that is under way, changing nothing, and take no more requests. Nothing runs when it returns."""
        self._stopped = reason
        if self._compaction is not None:
            self._compaction.cancel()
        async with self._compacting, self._moving:
            pass

    def _check(self) -> None:
        if self._stopped is not None:
            raise self._stopped
