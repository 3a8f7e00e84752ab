"""What a producer has to send: a lane for each partition, the requests that are on their way, and what becomes of both.

Plain state: whoever owns it does the sending. One request carries parcels of several lanes; they are answered in the order they left in.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from levada.client.draft import Draft, Landed
from levada.client.lane import Lane
from levada.client.parcel import Parcel
from levada.client.parts import PART_BYTES
from levada.client.refusals import is_passing, of_message
from levada.errors import ConnectionLost, LevadaError, Overloaded, TimedOut
from levada.v1 import stream_pb2 as pb

#: Most requests on their way.
_REQUESTS_MAX: Final = 64
_PAUSE_S: Final = 0.05


class Request:
    """On its way. `since` is when it last got on: a part of it left, or the one before it was answered."""

    __slots__ = ("number", "parcels", "since", "size")

    def __init__(self, number: int, parcels: list[tuple[Lane, Parcel]], size: int, now: float) -> None:
        self.number = number
        self.parcels = parcels
        #: Of its batches.
        self.size = size
        self.since = now


class Lanes:
    """`settled` is called for each draft that is done, `answered` for the bytes a parcel gives back.

    `doubted` is called with a topic that a refusal puts in doubt, `grown` with one and the number of partitions it has.
    """

    def __init__(
        self,
        *,
        acks: pb.Acks,
        settled: Callable[[Draft], None],
        answered: Callable[[int], None],
        doubted: Callable[[str], None],
        grown: Callable[[str, int], None],
    ) -> None:
        self._acks = acks
        self._settled = settled
        self._answered = answered
        self._doubted = doubted
        self._grown = grown
        self._lanes: dict[tuple[str, int], Lane] = {}
        #: Those with something to send, in turn.
        self._active: dict[Lane, None] = {}
        self._sent: deque[Request] = deque()
        self._numbers = 0

    def add(self, parcels: Iterable[Parcel]) -> None:
        for parcel in parcels:
            where = (parcel.topic, parcel.partition)
            lane = self._lanes.get(where)
            if lane is None:
                lane = self._lanes[where] = Lane(*where)
            lane.add(parcel)
            self._active[lane] = None

    @property
    def has_waiting(self) -> bool:
        return bool(self._active)

    @property
    def without_identity(self) -> list[Lane]:
        return [each for each in self._active if each.needs_identity]

    @property
    def oldest(self) -> Request | None:
        """The one that is answered next."""
        return self._sent[0] if self._sent else None

    def next(self, later: Callable[[float], object]) -> tuple[Request, pb.PublishRequest] | None:
        """As many parcels of one topic as go into one request, which is on its way from now on; None where nothing may be sent now.

        `later` is called with the seconds after which to ask again for what must wait.
        """
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
                    later(lane.not_before - now)
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
        message = pb.PublishRequest(
            topic=topic,
            batches=[pb.Batch(partition=parcel.partition, data=parcel.data) for _, parcel in taken],
            acks=self._acks,
            id=self._numbers,
        )
        request = Request(self._numbers, taken, size, now)
        self._sent.append(request)
        return request, message

    # What the broker answers

    def take(self, answer: pb.PublishResponse) -> None:
        """The oldest was answered. ConnectionLost where another was."""
        request = self._sent.popleft()
        if self._sent:
            self._sent[0].since = time.monotonic()
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
            # Of those that were refused together one was meant. The others may even be stored: each asks again for itself, if by its
            # sequence the broker knows it again.
            again = self._acks != pb.ACKS_NONE if together else passing or lane.follows_a_refusal(error)
            if again:
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

    def cut(self) -> None:
        """All that was on its way is sent again, or fails where that could store it twice."""
        self._sent.clear()
        for lane in self._lanes.values():
            lane.cut()
            self._settle_lane(lane)
            if self._acks == pb.ACKS_NONE:
                while (parcel := lane.uncertain) is not None:
                    self._fail(
                        lane, parcel, ConnectionLost("the connection was lost; with acks=none nothing is sent again")
                    )
                self._settle_lane(lane)

    def fail_largest(self, error: LevadaError) -> None:
        """Cut; and the largest that was on its way fails, if it did not with another."""
        largest = max((each for sent in self._sent for each in sent.parcels), key=_size, default=None)
        self.cut()
        if largest is not None and largest[0].awaits(largest[1]):
            self._fail(*largest, error)
            self._settle_lane(largest[0])

    def fail_all(self, error: LevadaError) -> None:
        self.cut()
        for lane in self._lanes.values():
            while lane.has_waiting:
                self._fail(lane, lane.next_in_line, error)
            self._settle_lane(lane)

    def expire(self, error: LevadaError) -> None:
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
