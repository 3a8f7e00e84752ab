"""Handlers at work: a line for each partition, so that its records are handled in order, and partitions beside one another."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from levada.client.chunk import Chunk, Opener
from levada.client.records import At, Record
from levada.errors import InvalidRequest

Handler = Callable[[Record], Awaitable[Any]] | Callable[[Record], Any]

#: With so many chunks waiting, the broker is asked to hold the partition back.
_CHUNKS_WAITING: Final = 2


class _Line:
    """One partition's chunks, and the task that works them off."""

    def __init__(self) -> None:
        self.chunks: deque[Chunk] = deque()
        self.task: asyncio.Task[None] | None = None
        self.is_held = False


class Workers:
    """`pause` and `resume` are asked to hold a partition back whose handler does not keep up, so that it takes nobody's room.

    `broken` is called when a handler has raised.
    """

    def __init__(
        self,
        handler: Handler,
        workers: int,
        opener: Opener,
        *,
        pause: Callable[[At], None],
        resume: Callable[[At], None],
        broken: Callable[[], None],
    ) -> None:
        if workers < 1:
            raise InvalidRequest(f"workers is {workers}; at least 1 is needed")
        self._handler: Callable[[Record], Any] = handler
        self._opener = opener
        self._pause = pause
        self._resume = resume
        self._lines: dict[At, _Line] = {}
        self._failure: BaseException | None = None
        self._broken = broken
        #: Read by the threads between two records.
        self._stopping = False
        self._pool: ThreadPoolExecutor | None = None
        if not inspect.iscoroutinefunction(handler):
            self._pool = ThreadPoolExecutor(workers, thread_name_prefix="levada-worker")

    @property
    def is_broken(self) -> bool:
        """True once a handler has raised."""
        return self._failure is not None

    def check(self) -> None:
        """Raise what a handler has raised."""
        if self._failure is not None:
            raise self._failure

    def add(self, chunk: Chunk) -> None:
        """Behind what its partition has to do already."""
        at = chunk.track.at
        line = self._lines.setdefault(at, _Line())
        line.chunks.append(chunk)
        if line.task is None:
            line.task = asyncio.get_running_loop().create_task(self._work(at, line), name=f"levada-worker-{at}")
        elif len(line.chunks) >= _CHUNKS_WAITING and not line.is_held:
            line.is_held = True
            self._pause(at)

    def revoke(self, ats: Iterable[At]) -> None:
        """These are somebody else's now: what was not begun is left to them."""
        for at in ats:
            line = self._lines.get(at)
            if line is not None:
                line.chunks.clear()

    async def close(self) -> None:
        """Finish the records that handlers are at, and no others."""
        self._stopping = True
        for line in self._lines.values():
            line.chunks.clear()
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    async def _work(self, at: At, line: _Line) -> None:
        try:
            while line.chunks and not self._stopping:
                chunk = line.chunks.popleft()
                if line.is_held and not line.chunks:
                    line.is_held = False
                    self._resume(at)
                if self._pool is None:
                    await self._handle_here(chunk)
                else:
                    await asyncio.get_running_loop().run_in_executor(self._pool, self._handle, chunk)
        except Exception as error:
            self._failure = self._failure or error
            self._stopping = True
            self._broken()
        finally:
            line.task = None

    async def _handle_here(self, chunk: Chunk) -> None:
        chunk.open(self._opener)
        for record in chunk:
            if self._stopping or chunk.is_stale:
                return
            await self._handler(record)
            chunk.track.done(record.offset + 1, chunk.turn)
        self._finish(chunk)

    def _handle(self, chunk: Chunk) -> None:
        """In a thread."""
        chunk.open(self._opener)
        handler, done, turn = self._handler, chunk.track.done, chunk.turn
        for record in chunk:
            if self._stopping or chunk.is_stale:
                return
            handler(record)
            done(record.offset + 1, turn)
        self._finish(chunk)

    def _finish(self, chunk: Chunk) -> None:
        if chunk.error is not None:
            raise chunk.error
        chunk.settle()
