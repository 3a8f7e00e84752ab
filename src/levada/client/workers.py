"""Handlers at work: a line for each partition, so that its records are handled in order, and partitions beside one another."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Final

from levada.client.chunk import Chunk, Opener
from levada.client.records import At, Record
from levada.client.tasks import is_told_to_end
from levada.errors import InvalidRequest, LevadaError

Handler = Callable[[Record], Awaitable[Any]] | Callable[[Record], Any]

#: With so many chunks waiting, the broker is asked to hold the partition back.
_CHUNKS_WAITING: Final = 2

#: Whose handler is at work here. What a handler calls on the loop finds it too.
_at_work: ContextVar[Workers | None] = ContextVar("levada-workers", default=None)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it returns a coroutine; also of an object that has such a method to be called by."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class _Line:
    """One partition's chunks, and the task that works them off."""

    def __init__(self) -> None:
        self.chunks: deque[Chunk] = deque()
        self.task: asyncio.Task[None] | None = None
        self.is_held = False


class Workers:
    """`pause` and `resume` are asked to hold a partition back whose handler does not keep up, so that it takes nobody's room.

    `broken` is called when a handler has raised, `idle` when all there was of a partition is handled.
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
        idle: Callable[[], None],
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
        self._idle = idle
        #: Read by the threads between two records.
        self._stopping = False
        self._pool: ThreadPoolExecutor | None = None
        if not is_async(handler):
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
        elif len(line.chunks) > _CHUNKS_WAITING and not line.is_held:
            line.is_held = True
            self._pause(at)

    def revoke(self, ats: Iterable[At]) -> None:
        """These are somebody else's now: what was not begun is left to them."""
        for at in ats:
            line = self._lines.get(at)
            if line is not None:
                line.chunks.clear()
                line.is_held = False

    def is_at(self, at: At) -> bool:
        """Whether a handler is at a record of this partition."""
        line = self._lines.get(at)
        return line is not None and line.task is not None

    def stop(self) -> None:
        """Begin no further record. From any thread."""
        self._stopping = True

    async def close(self) -> None:
        """Finish the records that handlers are at, and no others."""
        self.stop()
        try:
            if tasks := [line.task for line in self._lines.values() if line.task is not None]:
                await asyncio.wait(tasks)
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False)
            for at, line in self._lines.items():
                if line.is_held:
                    self._resume(at)

    @property
    def left(self) -> list[Chunk]:
        """What is not handled, in order."""
        return [chunk for line in self._lines.values() for chunk in line.chunks]

    @property
    def is_asked_from_a_handler(self) -> bool:
        """True where whoever asks is one of these handlers, or was called by one."""
        return _at_work.get() is self

    async def _work(self, at: At, line: _Line) -> None:
        _at_work.set(self)
        try:
            while line.chunks and not self._stopping:
                await self._work_off(at, line)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also sys.exit, which would end the loop
            if isinstance(error, asyncio.CancelledError):
                if is_told_to_end():
                    raise
                cancelled = LevadaError("the handler was cancelled by something that it waited for")
                cancelled.__cause__ = error
                error = cancelled
            self._failure = self._failure or error
            self._stopping = True
            self._broken()
        finally:
            line.task = None
            self._idle()

    async def _work_off(self, at: At, line: _Line) -> None:
        """The first chunk. It stays the first until it is finished: whatever ends this early, what is left of it is left there."""
        chunk = line.chunks[0]
        if line.is_held and len(line.chunks) == 1:
            line.is_held = False
            self._resume(at)
        if self._pool is None:
            await self._handle_here(chunk)
        else:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._handle, chunk)
        if chunk.error is not None and not chunk.is_stale:
            if chunk.is_failure:
                line.chunks.popleft()
            raise chunk.error
        if chunk.is_used_up or chunk.is_stale:
            chunk.settle()
            if line.chunks and line.chunks[0] is chunk:  # unless it was revoked
                line.chunks.popleft()
        elif chunk.track.paused and not self._stopping:
            chunk.track.held.extendleft(reversed(line.chunks))
            line.chunks.clear()

    async def _handle_here(self, chunk: Chunk) -> None:
        chunk.open(self._opener)
        for record in chunk.unhandled():
            if self._stopping:
                return
            await self._handler(record)
            chunk.track.done(record.offset + 1, chunk.turn)

    def _handle(self, chunk: Chunk) -> None:
        """In a thread."""
        _at_work.set(self)
        chunk.open(self._opener)
        handler, done, turn = self._handler, chunk.track.done, chunk.turn
        for record in chunk.unhandled():
            if self._stopping:
                return
            if (outcome := handler(record)) is not None and inspect.isawaitable(outcome):
                if inspect.iscoroutine(outcome):
                    outcome.close()
                raise InvalidRequest(
                    f"the handler {handler!r} returned something to await and nobody awaits it: it must be an `async def`"
                )
            done(record.offset + 1, turn)
