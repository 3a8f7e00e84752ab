"""How much memory requests to publish may take, all calls together.

A request counts from when it was read until it is answered. While too much is held, nothing more is read: what clients send then
stays with them, by HTTP/2's flow control. How large a message is, is known only once it was read, so of the calls that bring
one each, only some are read at a time. A stream is waited on whether it brings something or not, and holds a message at most; a
large request says its size before it is read (parts.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from levada.config import MiB
from levada.errors import Overloaded, TimedOut

BYTES_MAX: Final = 128 * MiB
#: Calls that are read at the same time.
READS_MAX: Final = 64
#: Whoever has begun to send a request and does not get on with it makes room for others.
READ_TIMEOUT_S: Final = 60.0
_RETRY_AFTER_MS: Final = 250

#: Whoever waits, and how much he holds once he is let in.
_Line = deque[tuple[asyncio.Future[None], int]]


class Memory:
    """Counts, and has readers wait in line."""

    def __init__(self, bytes_max: int = BYTES_MAX, reads_max: int = READS_MAX) -> None:
        self._bytes_max = bytes_max
        self._reads_max = reads_max
        #: Who waits: streams for memory, calls with one request also for their turn to be read.
        self._streams: _Line = deque()
        self._calls: _Line = deque()
        self._reads = 0
        self.held_bytes = 0

    async def room(self) -> None:
        """Wait until more may be read: for a stream, which brings one request after the other."""
        while self.held_bytes >= self._bytes_max:
            await self._stand_in(self._streams)

    async def reserve(self, size: int) -> None:
        """Wait until more may be held, and hold so much: of a request whose size is known before it is read."""
        if not self._streams and self.held_bytes < self._bytes_max:
            self.take(size)
        else:
            await self._stand_in(self._streams, size)

    async def begin_read(self, timeout_ms: int) -> None:
        """Wait to be the one whose request is read, until `end_read`. Overloaded when that takes too long."""
        if not self._calls and self._may_read():
            self._reads += 1
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._stand_in(self._calls)
        except TimeoutError:
            raise Overloaded(
                f"{self.held_bytes} bytes of requests are held, of which at most {self._bytes_max} may be, "
                f"and there was no room for another within {timeout_ms} ms",
                retry_after_ms=_RETRY_AFTER_MS,
            ) from None

    def end_read(self) -> None:
        self._reads -= 1
        self._admit()

    def take(self, size: int) -> None:
        """A request of this size was read."""
        self.held_bytes += size

    def give(self, size: int) -> None:
        """It was answered."""
        self.held_bytes -= size
        self._admit()

    def _may_read(self) -> bool:
        return self.held_bytes < self._bytes_max and self._reads < self._reads_max

    async def _stand_in(self, line: _Line, size: int = 0) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append((turn, size))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # Let in at the very moment it gave up.
                if line is self._calls:
                    self.end_read()
                self.give(size)
            turn.cancel()
            raise

    def _admit(self) -> None:
        while self._streams and self.held_bytes < self._bytes_max:
            self._let_in(self._streams)
        while self._calls and self._may_read():
            self._reads += self._let_in(self._calls)

    def _let_in(self, line: _Line) -> bool:
        """Whoever is first; False where it has gone meanwhile."""
        turn, size = line.popleft()
        if turn.done():
            return False
        self.held_bytes += size
        turn.set_result(None)
        return True


def stalled(timeout_s: float = READ_TIMEOUT_S) -> TimedOut:
    return TimedOut(f"the request did not come whole within {timeout_s:.0f} s of its beginning")
