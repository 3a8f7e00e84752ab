"""Sends parcels over one PublishStream, several requests at once, and sends again what was refused for now or cut off."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from levada.client.channel import STREAM, Backoff, Channel
from levada.client.draft import Draft, Landed
from levada.client.lane import NOBODY, Identity, Lane
from levada.client.parcel import Parcel
from levada.client.parts import PART_BYTES, messages
from levada.client.refusals import is_passing, of_message
from levada.client.tasks import end
from levada.errors import ConnectionLost, LevadaError, Overloaded, RecordTooLarge, TimedOut
from levada.v1 import stream_pb2 as pb

#: Most requests on their way.
_REQUESTS_MAX: Final = 64
_PAUSE_S: Final = 0.05


class _Request:
    """On its way. `since` is when it last got on: a part of it left, or, for the first in line, the one before it was answered."""

    __slots__ = ("number", "parcels", "since")

    def __init__(self, number: int, parcels: list[tuple[Lane, Parcel]], now: float) -> None:
        self.number = number
        self.parcels = parcels
        self.since = now


class Talk(Protocol):
    """Requests and their answers, in one order."""

    async def write(self, request: pb.PublishRequest) -> None: ...
    async def read(self) -> pb.PublishResponse | None: ...
    def cancel(self) -> None: ...


class Sender:
    """`settled` is called for each draft that is done, `answered` for the bytes a parcel gives back.

    `doubted` is called with a topic that a refusal puts in doubt, `grown` with one and the number of partitions it has.
    """

    def __init__(
        self,
        channel: Channel,
        open_: Callable[[], Talk],
        *,
        acks: pb.Acks,
        request_timeout_s: float,
        settled: Callable[[Draft], None],
        answered: Callable[[int], None],
        doubted: Callable[[str], None],
        grown: Callable[[str, int], None],
    ) -> None:
        self._channel = channel
        self._open = open_
        self._acks = acks
        self._request_timeout_s = request_timeout_s
        self._settled = settled
        self._answered = answered
        self._doubted = doubted
        self._grown = grown
        self._identity: Identity | None = NOBODY if acks == pb.ACKS_NONE else None
        self._lanes: dict[tuple[str, int], Lane] = {}
        #: Those with something to send, in turn.
        self._active: dict[Lane, None] = {}
        self._sent: deque[_Request] = deque()
        self._numbers = 0
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff()

    def add(self, parcels: list[Parcel]) -> None:
        for parcel in parcels:
            where = (parcel.topic, parcel.partition)
            lane = self._lanes.get(where)
            if lane is None:
                lane = self._lanes[where] = Lane(*where)
            lane.add(parcel)
            self._active[lane] = None
        self._work.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="levada-sender")

    async def close(self) -> None:
        """Stop. What is not answered yet fails with ConnectionLost."""
        task, self._task = self._task, None
        if task is not None:
            await end(task)
        self._cut()
        error = ConnectionLost(
            "the producer was closed before the broker had answered: the record may be stored or not"
        )
        for lane in self._lanes.values():
            while lane.has_waiting:
                parcel = lane.next_in_line
                self._fail(lane, parcel, error)

    # The conversation

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            try:
                await self._converse()
            except LevadaError as error:
                largest = max((each for sent in self._sent for each in sent.parcels), key=_size, default=None)
                self._cut()
                if isinstance(error, RecordTooLarge) and largest is not None and largest[0].awaits(largest[1]):
                    # Said of a request that was not read to its end: sent again, it would end every conversation.
                    self._fail(*largest, error)
                    self._settle_lane(largest[0])
                self._expire(error)
                if not self._active:
                    self._work.clear()
                await asyncio.sleep(self._backoff.after(error))

    async def _converse(self) -> None:
        """Send and hear until the connection fails. Raises why."""
        if self._identity is None:
            self._identity = await self._new_identity()
        stream = self._open()
        hearing = asyncio.ensure_future(self._hear(stream))
        hearing.add_done_callback(lambda _: self._work.set())
        try:
            while not hearing.done():
                self._work.clear()
                for lane in [each for each in self._active if each.needs_identity]:
                    # The first of a lane is the producer's own; one that lost track of its sequences begins anew.
                    lane.begin(self._identity if lane.is_new else await self._new_identity())
                while (made := self._next_request()) is not None:
                    request = self._sent[-1]
                    for message in messages(*made):
                        await stream.write(message)
                        request.since = time.monotonic()
                await self._work.wait()
            hearing.result()
            raise ConnectionLost(f"the broker at {self._channel.address} ended the conversation")
        finally:
            stream.cancel()
            await end(hearing)

    async def _new_identity(self) -> Identity:
        answer = await self._channel.call(f"{STREAM}/InitProducer", pb.InitProducerRequest(), pb.InitProducerResponse)
        return answer.producer_id, answer.epoch

    async def _hear(self, stream: Talk) -> None:
        watch = asyncio.ensure_future(self._watch(stream))
        try:
            while (answer := await stream.read()) is not None:
                self._take(answer)
                self._backoff.reset()
        finally:
            watch.cancel()

    async def _watch(self, stream: Talk) -> None:
        """End the conversation when an answer is overdue. (A read cannot be given a time limit: it ends the call.)"""
        while True:
            await asyncio.sleep(self._request_timeout_s / 4)
            if self._sent and time.monotonic() - self._sent[0].since >= self._request_timeout_s:
                stream.cancel()

    def _next_request(self) -> tuple[pb.PublishRequest, int] | None:
        """As many parcels of one topic as go into one request, and their bytes; None where nothing may be sent now."""
        if len(self._sent) >= _REQUESTS_MAX:
            return None
        now = time.monotonic()
        taken: list[tuple[Lane, Parcel]] = []
        size = 0
        topic = ""
        for lane in list(self._active):
            if topic and lane.topic != topic:
                continue
            parcel = lane.next(now)
            if parcel is None:
                if lane.has_waiting and lane.not_before > now:
                    asyncio.get_running_loop().call_later(lane.not_before - now, self._work.set)
                continue
            if taken and (parcel.alone or size + parcel.size > PART_BYTES):
                continue
            taken.append((lane, lane.send()))
            topic, size = lane.topic, size + len(parcel.data)
            # The next turn is the others'.
            del self._active[lane]
            if lane.has_waiting:
                self._active[lane] = None
            if parcel.alone:
                break
        if not taken:
            return None
        self._numbers += 1
        self._sent.append(_Request(self._numbers, taken, now))
        request = pb.PublishRequest(
            topic=topic,
            batches=[pb.Batch(partition=parcel.partition, data=parcel.data) for _, parcel in taken],
            acks=self._acks,
            id=self._numbers,
        )
        return request, size

    # What the broker answers

    def _take(self, answer: pb.PublishResponse) -> None:
        request = self._sent.popleft()
        parcels = request.parcels
        if answer.id != request.number:
            raise ConnectionLost(f"the broker answered request {answer.id} where {request.number} was next")
        if answer.HasField("error"):
            self._refused(parcels, of_message(answer.error))
        else:
            self._grown(parcels[0][0].topic, answer.partitions)
            for (lane, parcel), position in zip(parcels, answer.positions, strict=True):
                if lane.awaits(parcel):
                    self._landed(lane, parcel, position)
        if self._active:
            self._work.set()

    def _landed(self, lane: Lane, parcel: Parcel, position: pb.Position) -> None:
        duplicates = {each.index: (each.partition, each.offset) for each in position.duplicates} or None
        # A repeat of what was sent before is no duplicate to whoever published it once.
        duplicate = position.duplicate and not parcel.may_be_stored
        done = lane.landed(
            parcel, Landed(position.partition, position.offset, duplicate=duplicate, duplicates=duplicates)
        )
        self._answered(parcel.size)
        if done:
            self._settled(parcel.draft)
        self._settle_lane(lane)

    def _refused(self, parcels: list[tuple[Lane, Parcel]], error: LevadaError) -> None:
        now = time.monotonic()
        for lane, parcel in parcels:
            if not lane.awaits(parcel):
                continue
            passing = is_passing(error) and parcel.deadline > now
            together = len(parcels) > 1
            lane.refused(parcel, error, together=together)
            if together:
                # One of them was meant. The others may even be stored: each asks again for itself.
                lane.again(parcel, self._not_before(error, now))
            elif passing or lane.follows_a_refusal(error):
                lane.again(parcel, self._not_before(error, now))
            else:
                self._doubted(lane.topic)
                self._fail(lane, parcel, error)
            self._settle_lane(lane)

    def _not_before(self, error: LevadaError, now: float) -> float:
        if isinstance(error, Overloaded):
            return now + error.retry_after_ms / 1000
        return now + _PAUSE_S if is_passing(error) else 0.0

    def _fail(self, lane: Lane, parcel: Parcel, error: LevadaError) -> None:
        told = lane.verdict(parcel, error)
        for each in lane.failed(parcel, error):
            done = each.failed(told)
            self._answered(each.size)
            if done:
                self._settled(each.draft)

    def _settle_lane(self, lane: Lane) -> None:
        if lane.has_waiting:
            self._active[lane] = None
        else:
            self._active.pop(lane, None)

    # When the connection is gone

    def _cut(self) -> None:
        self._sent.clear()
        for lane in self._lanes.values():
            lane.cut()
            self._settle_lane(lane)
            if self._acks == pb.ACKS_NONE:
                # Without sequences, sending again could store twice.
                while (parcel := lane.uncertain) is not None:
                    self._fail(
                        lane, parcel, ConnectionLost("the connection was lost; with acks=none nothing is sent again")
                    )
                self._settle_lane(lane)

    def _expire(self, error: LevadaError) -> None:
        """Give up what has waited for longer than its producer is willing to."""
        now = time.monotonic()
        for lane in self._lanes.values():
            while (parcel := lane.expired(now)) is not None:
                said = TimedOut(
                    f"topic {lane.topic}, partition {lane.partition}: not delivered in time; the last try: {error}"
                )
                said.__cause__ = error
                self._fail(lane, parcel, said)
            self._settle_lane(lane)


def _size(sent: tuple[Lane, Parcel]) -> int:
    return len(sent[1].data)
