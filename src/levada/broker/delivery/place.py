"""One partition that a consumer owns: where reading goes on, and whether there is anything to read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from levada.engine.port import At, Slice


class Place:
    """Where a consumer stands in a partition. It is in its consumer's line, or somebody waits for it, or neither: then nothing of
    it is read."""

    __slots__ = ("_waiting", "at", "error", "found", "in_line", "offset", "rests", "topic_id", "turn")

    def __init__(self, at: At, offset: int, topic_id: UUID | None) -> None:
        self.at = at
        self.offset = offset
        #: Of the topic as it was when reading began: another one of its name begins anew.
        self.topic_id = topic_id
        self.in_line = False
        #: Paused, or not this consumer's any more: nothing of it is delivered.
        self.rests = False
        #: Grows whenever it is stopped: what was begun before counts no more.
        self.turn = 0
        #: What waiting brought, for `offset`.
        self.found: Slice | None = None
        self.error: Exception | None = None
        self._waiting: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Let nobody wait, and forget what was found."""
        self.turn += 1
        self.found = self.error = None
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def move(self, offset: int) -> None:
        """Go on from there."""
        self.stop()
        self.offset = offset

    def wait(self, patience: Callable[[], Awaitable[Slice | None]], done: Callable[[Place], None]) -> None:
        """Wait in a task for something to read, or for a reason why not; then call `done`, unless stopped before."""
        self._waiting = asyncio.create_task(self._wait(patience, done), name=f"levada-wait-{self.at}")

    async def _wait(self, patience: Callable[[], Awaitable[Slice | None]], done: Callable[[Place], None]) -> None:
        try:
            self.found = await patience()
        except Exception as error:  # whatever it is, it is for the one who reads
            self.error = error
        self._waiting = None
        done(self)
