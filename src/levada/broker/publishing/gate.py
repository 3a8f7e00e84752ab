"""How much may wait in a partition: what native publishers brought and have no answer for yet.

At most 10,000 records and 64 MiB a partition. Whoever finds it full waits in line, first come, first served, and after the
topic's levada.enqueue.timeout.ms is told Overloaded with a hint when to come back; at once, if 64 MiB wait in line already, in all
lines together. What is larger than the partition's whole room waits until it is alone there, so that nothing that can be sent at
all waits for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from levada.config import MiB
from levada.engine.port import At
from levada.errors import Overloaded

RECORDS_MAX: Final = 10_000
BYTES_MAX: Final = 64 * MiB
LINE_BYTES_MAX: Final = 64 * MiB
#: When a turned-away publisher should come back: what waits now is likely to be durable by then.
_RETRY_AFTER_MS: Final = 250


class Load(NamedTuple):
    """Records, and their bytes."""

    records: int
    size: int


class _Room:
    """One partition's: what is in, and who waits."""

    __slots__ = ("bytes_in", "line", "records_in")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.line: deque[tuple[Load, asyncio.Future[None]]] = deque()

    def fits(self, load: Load) -> bool:
        if not self.records_in:
            return True
        return self.records_in + load.records <= RECORDS_MAX and self.bytes_in + load.size <= BYTES_MAX

    def take(self, load: Load) -> None:
        self.records_in += load.records
        self.bytes_in += load.size

    def give(self, load: Load) -> None:
        self.records_in -= load.records
        self.bytes_in -= load.size
        self.admit()

    def admit(self) -> None:
        """Let in whoever is first in line and fits."""
        while self.line:
            load, turn = self.line[0]
            if not turn.done():
                if not self.fits(load):
                    return
                self.take(load)
                turn.set_result(None)
            self.line.popleft()


class Gate:
    """The rooms of all partitions. Partitions where nothing waits cost nothing."""

    def __init__(self) -> None:
        self._rooms: dict[At, _Room] = {}
        self._bytes_in_line = 0

    def waiting(self) -> Mapping[At, Load]:
        """What is in, by partition: for measuring."""
        return {at: Load(room.records_in, room.bytes_in) for at, room in self._rooms.items()}

    async def enter(self, loads: Mapping[At, Load], timeout_ms: int) -> None:
        """Be let into all of these partitions, until `leave`. Overloaded: into none."""
        entered: dict[At, Load] = {}
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            # Everybody in the same order: nobody waits for somebody who waits for them.
            for at in sorted(loads):
                await self._enter(at, loads[at], deadline, timeout_ms)
                entered[at] = loads[at]
        except BaseException:
            self.leave(entered)
            raise

    def leave(self, loads: Mapping[At, Load]) -> None:
        """What had entered has been answered."""
        for at, load in loads.items():
            self._leave(at, load)

    async def _enter(self, at: At, load: Load, deadline: float, timeout_ms: int) -> None:
        room = self._rooms.get(at)
        if room is None:
            room = self._rooms[at] = _Room()
        if not room.line and room.fits(load):
            room.take(load)
            return
        if self._bytes_in_line and self._bytes_in_line + load.size > LINE_BYTES_MAX:
            raise _overloaded(at, room, f"and {self._bytes_in_line} bytes wait in line already")
        self._bytes_in_line += load.size
        try:
            await self._stand_in_line(at, room, load, deadline, timeout_ms)
        finally:
            self._bytes_in_line -= load.size

    async def _stand_in_line(self, at: At, room: _Room, load: Load, deadline: float, timeout_ms: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        room.line.append((load, turn))
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except BaseException as reason:
            if turn.done() and not turn.cancelled():
                self._leave(at, load)  # let in at the very moment it gave up
            else:
                turn.cancel()
                room.admit()  # those behind may fit where it did not
            if isinstance(reason, TimeoutError):
                raise _overloaded(at, room, f"and there was no room within {timeout_ms} ms") from None
            raise

    def _leave(self, at: At, load: Load) -> None:
        room = self._rooms[at]
        room.give(load)
        if not room.records_in and not room.line:
            del self._rooms[at]


def _overloaded(at: At, room: _Room, why: str) -> Overloaded:
    return Overloaded(
        f"{at}: {room.records_in} records, {room.bytes_in} bytes wait to be durable, {why}; "
        f"at most {RECORDS_MAX} records and {BYTES_MAX} bytes may wait",
        retry_after_ms=_RETRY_AFTER_MS,
    )
