"""What a consumer has of its group: a seat, which it keeps by signs of life and may lose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from levada.broker.delivery.wanted import Wanted
from levada.broker.streams import Assignment, Committer, Member, Positions, StreamGroups
from levada.engine.port import At, Committed
from levada.errors import InvalidRequest, LevadaError


class Membership(Protocol):
    """A seat. `assigned` is called with what it owns, on joining and at every change; `fenced` with why it was lost."""

    assigned: Callable[[Assignment], None]
    fenced: Callable[[LevadaError], None]
    member_id: str

    def join(self) -> None: ...

    def alive(self) -> None: ...

    def leave(self) -> None: ...

    def hand_over(self, ats: Iterable[At]) -> None: ...

    async def commit(self, offsets: Mapping[At, Committed], generation: int) -> Mapping[At, LevadaError]: ...

    async def durable(self, receipt: int) -> None:
        """Until this generation is kept for good: only then is it told."""
        ...


def _nobody(_: object) -> None:
    """Before anybody listens."""


class Seat:
    """In a group: among others, or as the numbered consumer of a fixed one."""

    def __init__(self, groups: StreamGroups, positions: Positions, wanted: Wanted, now_ms: Callable[[], int]) -> None:
        self._groups = groups
        self._positions = positions
        self._wanted = wanted
        self._now_ms = now_ms
        self._is_seated = False
        self.member_id = ""
        self.assigned: Callable[[Assignment], None] = _nobody
        self.fenced: Callable[[LevadaError], None] = _nobody

    def join(self) -> None:
        """Whatever StreamGroups.join or attach refuses for: no seat was taken."""
        member = self._take()
        self._is_seated = True
        self.member_id = member.id
        self.assigned(member.assignment)

    def _take(self) -> Member:
        wanted = self._wanted
        if wanted.consumer is None:
            return self._groups.join(
                wanted.group,
                wanted.topics,
                session_timeout_ms=wanted.session_timeout_ms,
                now_ms=self._now_ms(),
                changed=self._changed,
                client_id=wanted.client_id,
                host=wanted.host,
                hand_over_ms=wanted.hand_over_ms,
            )
        return self._groups.attach(
            wanted.group,
            wanted.consumer,
            wanted.generation,
            session_timeout_ms=wanted.session_timeout_ms,
            now_ms=self._now_ms(),
            changed=self._changed,
            topics=wanted.topics,
            client_id=wanted.client_id,
            host=wanted.host,
        )

    def _changed(self, assignment: Assignment) -> None:
        if assignment.fenced is None:
            self.assigned(assignment)
        else:
            self._is_seated = False
            self.fenced(assignment.fenced)

    def alive(self) -> None:
        self._groups.alive(self._wanted.group, self.member_id, self._now_ms())

    def hand_over(self, ats: Iterable[At]) -> None:
        self._groups.hand_over(self._wanted.group, self.member_id, ats)

    def leave(self) -> None:
        if self._is_seated:
            self._is_seated = False
            self._groups.leave(self._wanted.group, self.member_id, self._now_ms())

    async def commit(self, offsets: Mapping[At, Committed], generation: int) -> Mapping[At, LevadaError]:
        return await self._positions.commit(
            self._wanted.group, offsets, Committer(self.member_id, generation), self._now_ms()
        )

    async def durable(self, receipt: int) -> None:
        await self._groups.durable(receipt)


class OwnChoice:
    """Outside of any group: it owns what it chose, for ever."""

    def __init__(self, wanted: Wanted) -> None:
        self._partitions = wanted.partitions
        self.member_id = ""
        self.assigned: Callable[[Assignment], None] = _nobody
        self.fenced: Callable[[LevadaError], None] = _nobody

    def join(self) -> None:
        self.assigned(Assignment("", 0, sorted(self._partitions)))

    def alive(self) -> None:
        """Nobody asks."""

    def leave(self) -> None:
        """There is nothing to leave."""

    def hand_over(self, ats: Iterable[At]) -> None:
        """Nor to anybody."""

    async def commit(self, offsets: Mapping[At, Committed], generation: int) -> Mapping[At, LevadaError]:
        raise InvalidRequest("only a group has offsets to commit")

    async def durable(self, receipt: int) -> None:
        """Nothing is kept."""
