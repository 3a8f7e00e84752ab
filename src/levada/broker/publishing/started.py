"""A request that is on its way, and where it landed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from levada.broker.dedup import Stored
from levada.broker.publishing.record import Position, Repeat
from levada.engine.port import Appended, At

#: What became of a batch: all of it was stored, or, where messages are remembered, what was new in it.
Landed = Appended | Stored


class Started:
    """Batches being appended. They go on to their end whether anybody waits for them or not."""

    def __init__(
        self,
        writes: Sequence[tuple[At, asyncio.Task[Landed]]],
        places: Sequence[int] | None,
        partitions: int,
        took: Callable[[], None],
    ) -> None:
        self._writes = writes
        self._took = took
        #: As many as the topic had when it was begun.
        self.partitions = partitions
        #: Whose position comes next, batch by batch; None where the batches are what was asked about.
        self._places = places

    async def positions(self) -> list[Position]:
        """When all is as durable as was asked for. An error of one batch is told once the others have landed."""
        waiting = [task for _, task in self._writes if not task.done()]
        if waiting:
            await asyncio.wait(waiting)
        self._took()
        landed = [(at.partition, task.result()) for at, task in self._writes]
        if self._places is None:
            return [_of_batch(partition, each) for partition, each in landed]
        found: list[Position] = [Position(-1, -1)] * len(self._places)
        places = iter(self._places)
        for partition, each in landed:
            for position in _of_records(partition, each):
                found[next(places)] = position
        return found


def _of_records(partition: int, landed: Landed) -> Iterator[Position]:
    if isinstance(landed, Stored):
        for place in landed.offsets(partition):
            yield Position(*place)
    else:
        for offset in range(landed.base_offset, landed.last_offset + 1):
            yield Position(partition, offset, landed.duplicate)


def _of_batch(partition: int, landed: Landed) -> Position:
    """Of its first record, and which of its records were there before. One that was there as a whole is a duplicate."""
    if isinstance(landed, Appended):
        return Position(partition, landed.base_offset, landed.duplicate)
    appended = landed.appended
    repeats = [Repeat(index, first.at.partition, first.offset) for index, first in sorted(landed.repeats.items())]
    if len(repeats) == landed.brought:
        return Position(repeats[0].partition, repeats[0].offset, True, repeats)
    assert appended is not None, "something was new"
    return Position(partition, appended.base_offset, appended.duplicate, repeats)
