"""What hands a consumer its records: its partitions in turn, as far as there is room.

One task delivers everything and awaits each delivery. So a slow transport holds back its own consumer and nobody else, and what
is told of the assignment is told in order with the records. Where a partition has nothing to read, somebody waits for it in the
engine; nothing polls. What is read and not yet taken by the transport is at most `bytes_max`, or one batch of each partition.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NoReturn

from levada.broker.delivery.beginnings import Beginnings
from levada.broker.delivery.credit import Credit
from levada.broker.delivery.deliveries import Assigned, Delivery, Failed
from levada.broker.delivery.parcels import Parcels
from levada.broker.delivery.place import Place
from levada.broker.delivery.wanted import Wanted
from levada.broker.streams import Assignment
from levada.engine.port import At, Engine, Slice, TopicView
from levada.errors import LevadaError, OffsetOutOfRange, RecordError, StorageError, UnknownPartition, UnknownTopic

#: How long the engine is asked to wait before it is asked again.
_PATIENCE_MS: Final = 600_000

Deliver = Callable[[Delivery], Awaitable[None]]


class Pump:
    """Of one consumer. Everything but `run` is done at once; `run` tells and delivers, until it is cancelled or cannot go on."""

    def __init__(
        self,
        engine: Engine,
        view: TopicView,
        wanted: Wanted,
        credit: Credit,
        deliver: Deliver,
        *,
        durable: Callable[[int], Awaitable[None]],
        parcels: Parcels,
    ) -> None:
        self._engine = engine
        self._view = view
        self._wanted = wanted
        self._credit = credit
        self._deliver = deliver
        self._durable = durable
        self._beginnings = Beginnings(engine, view, wanted)
        self._parcels = parcels
        self._assignment: Assignment | None = None
        #: Something has changed that the consumer does not know yet.
        self._untold = False
        #: The generation that the consumer knows of; 0 before the first.
        self.generation_told = 0
        self._places: dict[At, Place] = {}
        self._line: deque[Place] = deque()
        self._awake = asyncio.Event()
        credit.wake = self.wake

    # What others do to it

    def wake(self) -> None:
        self._awake.set()

    def owns(self, at: At) -> bool:
        return at in self._places

    def assign(self, assignment: Assignment) -> None:
        """Own these partitions from now on. Of what was lost nothing more is delivered; where nothing moved, reading goes on."""
        self._assignment = assignment
        for at in self._places.keys() - set(assignment.partitions):
            self._rest(self._places.pop(at))
        self.move({at: offset for at, offset in assignment.moved.items() if at in self._places})
        self._tell_soon()

    def move(self, offsets: Mapping[At, int]) -> None:
        """Go on from these offsets, and tell the consumer before any record from there."""
        for at, offset in offsets.items():
            place = self._places[at]
            place.move(offset)
            self._queue(place)
        if offsets:
            self._tell_soon()

    def pause(self, ats: Iterable[At]) -> None:
        for at in ats:
            self._rest(self._places[at])

    def resume(self, ats: Iterable[At]) -> None:
        for at in ats:
            place = self._places[at]
            place.rests = False
            self._queue(place)

    def free(self) -> None:
        """From now on, what the transport took counts as granted."""
        self._parcels.free = True
        self._credit.grant(self._credit.out)

    def stop(self) -> None:
        """Nobody waits any more."""
        for place in self._places.values():
            self._rest(place)

    def _tell_soon(self) -> None:
        self._untold = True
        self.wake()

    def _rest(self, place: Place) -> None:
        place.rests = True
        place.stop()

    def _queue(self, place: Place) -> None:
        if not place.rests and not place.in_line:
            place.in_line = True
            self._line.append(place)
            self.wake()

    # The task

    async def run(self) -> NoReturn:
        """LevadaError: why it cannot go on. Whatever `deliver` raises comes through."""
        while True:
            if self._untold:
                await self._tell()
            elif self._line and self._credit.room() > 0:
                place = self._line.popleft()
                place.in_line = False
                await self._advance(place)
                await asyncio.sleep(0)  # neither reading nor delivering need have waited: the others' turn
            else:
                await self._awake.wait()
                self._awake.clear()

    async def _tell(self) -> None:
        self._untold = False
        assignment = self._assignment
        if assignment is None:
            return
        await self._durable(assignment.receipt)
        begun = await self._begin([at for at in assignment.partitions if at not in self._places])
        if assignment is not self._assignment:
            return  # it has changed meanwhile, and is told as it is then
        if begun:
            self._places.update((place.at, place) for place in begun)
            for place in self._places.values():
                place.stop()  # those who wait have too large a share of the bytes now
                self._queue(place)
        standing = {at: self._places[at].offset for at in assignment.partitions}
        self._untold = False
        self.generation_told = assignment.generation
        await self._deliver(Assigned(assignment.member_id, assignment.generation, standing))

    async def _begin(self, ats: Sequence[At]) -> list[Place]:
        if not ats:
            return []
        kept = await self._beginnings.kept()
        return [await self._begin_at(at, kept.get(at)) for at in ats]

    async def _begin_at(self, at: At, kept: int | None) -> Place:
        info = self._view.get(at.topic)
        try:
            return Place(at, await self._beginnings.of(at, kept), info.id if info is not None else None)
        except (UnknownTopic, UnknownPartition):
            return Place(at, 0, None)  # gone since it was assigned: see _missing

    async def _advance(self, place: Place) -> None:
        """Deliver what comes next, or find out why nothing does."""
        turn, found, error = place.turn, place.found, place.error
        place.found = place.error = None
        try:
            if error is not None:
                raise error
            if found is None:
                found = await self._read(place)
        except OffsetOutOfRange:
            await self._jump(place, turn)
        except (UnknownTopic, UnknownPartition):
            await self._missing(place, turn)
        except StorageError as reason:
            await self._fail(place, turn, reason)
        else:
            if place.turn == turn and not place.rests:
                await self._hand_over(place, found)

    async def _read(self, place: Place) -> Slice:
        info = self._view.get(place.at.topic)
        if info is None or info.id != place.topic_id:
            raise UnknownTopic(f"topic {place.at.topic} was deleted")
        size = self._parcels.read_bytes(self._credit.room())
        return await self._engine.read(place.at, place.offset, size, 0, self._wanted.isolation)

    async def _hand_over(self, place: Place, found: Slice) -> None:
        if not found.batches:
            place.wait(partial(self._more, place), self._queue)
            return
        turn = place.turn
        try:
            if self._credit.room() > 0:
                await self._parcels.send(place, found)
            else:
                place.found = found  # others of the group took it meanwhile
        except RecordError as reason:
            await self._fail(place, turn, reason)
        else:
            self._queue(place)

    async def _more(self, place: Place) -> Slice:
        """Wait for something to read: a share of what may be held, since all partitions may have waited."""
        size = self._parcels.wait_bytes(len(self._places))
        while True:
            found = await self._engine.read(place.at, place.offset, size, _PATIENCE_MS, self._wanted.isolation)
            if found.batches:
                return found

    # When there is nothing to deliver

    async def _jump(self, place: Place, turn: int) -> None:
        """Retention, or whoever deletes records, has passed the reader: go on by its policy."""
        offset = await self._beginnings.of(place.at, place.offset)
        if place.turn == turn:
            place.move(offset)
            self._queue(place)
            self._tell_soon()

    async def _missing(self, place: Place, turn: int) -> None:
        """The topic was deleted. A group's member reads it again if it comes back, from its new beginning."""
        if not self._wanted.group:
            raise UnknownTopic(f"topic {place.at.topic} was deleted")
        info = self._view.get(place.at.topic)
        if info is None or place.at.partition >= info.partitions:
            if place.turn == turn:
                place.wait(partial(self._topic_back, place.at), self._queue)
            return
        [begun] = await self._begin([place.at])
        if place.turn == turn:
            place.topic_id = begun.topic_id
            place.move(begun.offset)
            self._queue(place)
            self._tell_soon()

    async def _topic_back(self, at: At) -> None:
        while True:
            version, info = self._view.version, self._view.get(at.topic)
            if info is not None and at.partition < info.partitions:
                return
            await self._view.changed(version)

    async def _fail(self, place: Place, turn: int, reason: LevadaError) -> None:
        """This partition cannot be read on: the consumer is told, and the others go on. Seeking or resuming tries again."""
        if place.turn == turn:
            await self._deliver(Failed(place.at, reason))
