"""What a consumer has of its group: a seat, which it keeps by signs of life and may lose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from levada.broker.delivery.wanted import Wanted
from levada.broker.streams import Assignment, Committer, Positions, StreamGroups
from levada.engine.port import At, Committed
from levada.errors import InvalidRequest, LevadaError


class Membership(Protocol):
    """A seat. `assigned` is called with what it owns, at once on joining and at every change; `fenced` with why it lost it."""

    assigned: Callable[[Assignment], None]
    fenced: Callable[[LevadaError], None]

    @property
    def member_id(self) -> str: ...

    @property
    def generation(self) -> int: ...

    def join(self) -> None: ...

    def alive(self) -> None: ...

    def leave(self) -> None: ...

    async def commit(self, offsets: Mapping[At, Committed]) -> Mapping[At, LevadaError]: ...

    async def durable(self, receipt: int) -> None:
        """Until this generation is kept for good: only then is it told."""
        ...


def _nobody(_: object) -> None:
    """Called before anybody listens."""


class Seat:
    """In a group: among others, or as the numbered consumer of a fixed one."""

    def __init__(
        self, groups: StreamGroups, positions: Positions, wanted: Wanted, now_ms: Callable[[], int]
    ) -> None:
        self._groups = groups
        self._positions = positions
        self._wanted = wanted
        self._now_ms = now_ms
        self._is_seated = False
        self.member_id = ""
        self.generation = 0
        self.assigned: Callable[[Assignment], None] = _nobody
        self.fenced: Callable[[LevadaError], None] = _nobody

    def join(self) -> None:
        """GroupKindMismatch, InvalidGroupId, UnknownTopic, InvalidSessionTimeout, IllegalGeneration …: no seat was taken."""
        wanted, now_ms = self._wanted, self._now_ms()
        self._is_seated = True
        try:
            if wanted.consumer is None:
                self._groups.join(
                    wanted.group,
                    wanted.topics,
                    client_id=wanted.client_id,
                    host=wanted.host,
                    session_timeout_ms=wanted.session_timeout_ms,
                    now_ms=now_ms,
                    changed=self._changed,
                )
            else:
                self._groups.attach(
                    wanted.group,
                    wanted.consumer,
                    wanted.generation,
                    client_id=wanted.client_id,
                    host=wanted.host,
                    session_timeout_ms=wanted.session_timeout_ms,
                    now_ms=now_ms,
                    changed=self._changed,
                )
        except BaseException:
            self._is_seated = False
            raise

    def _changed(self, assignment: Assignment) -> None:
        self.member_id, self.generation = assignment.member_id, assignment.generation
        if assignment.fenced is None:
            self.assigned(assignment)
        else:
            self._is_seated = False
            self.fenced(assignment.fenced)

    def alive(self) -> None:
        self._groups.alive(self._wanted.group, self.member_id, self._now_ms())

    def leave(self) -> None:
        if self._is_seated:
            self._is_seated = False
            self._groups.leave(self._wanted.group, self.member_id, self._now_ms())

    async def commit(self, offsets: Mapping[At, Committed]) -> Mapping[At, LevadaError]:
        return await self._positions.commit(
            self._wanted.group, offsets, member=Committer(self.member_id, self.generation)
        )

    async def durable(self, receipt: int) -> None:
        await self._groups.durable(receipt)


class OwnChoice:
    """Outside of any group: it owns what it chose, for ever."""

    member_id = ""
    generation = 0

    def __init__(self, wanted: Wanted) -> None:
        self._partitions = wanted.partitions
        self.assigned: Callable[[Assignment], None] = _nobody
        self.fenced: Callable[[LevadaError], None] = _nobody

    def join(self) -> None:
        self.assigned(Assignment("", 0, sorted(self._partitions)))

    def alive(self) -> None:
        """Nobody asks."""

    def leave(self) -> None:
        """There is nothing to leave."""

    async def commit(self, offsets: Mapping[At, Committed]) -> Mapping[At, LevadaError]:
        raise InvalidRequest("only a group has offsets to commit")

    async def durable(self, receipt: int) -> None:
        """Nothing is kept."""
