"""A group coordinator with a clock that stands still, and members that are one line each."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from levada.broker.groups import GroupConfig, GroupCoordinator, Join, Joined, Leaving, Sync, Synced
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.errors import LevadaError, MemberIdRequired, StorageFull


def subscription(*topics: str, version: int = 0, rest: bytes = b"") -> bytes:
    """What a consumer tells its leader."""
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + (rest or struct.pack(">i", -1))


@dataclass
class Waiting:
    """Collects the answers of one call, of which there may be one."""

    answers: list[Any] = field(default_factory=list)
    member_id: str = ""
    #: Where all answers of a coordinator are noted, in the order they came.
    log: list[Any] = field(default_factory=list)

    def __call__(self, answer: Any) -> None:
        self.log.append(answer)
        self.answers.append(answer)
        assert len(self.answers) == 1, f"answered twice: {self.answers}"

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    @property
    def answer(self) -> Any:
        assert self.answers, "not answered yet"
        return self.answers[0]

    @property
    def error(self) -> type[LevadaError] | None:
        error = self.answer.error
        return None if error is None else type(error)


@dataclass
class Seat:
    """A member as the client knows it after it joined."""

    group_id: str
    joined: Joined
    instance_id: str | None = None

    @property
    def member_id(self) -> str:
        return self.joined.member_id

    @property
    def generation(self) -> int:
        return self.joined.generation

    @property
    def leads(self) -> bool:
        return self.joined.leader_id == self.joined.member_id


class Groups:
    """The coordinator under test. After every call what is due at this moment is done, as its driver would."""

    def __init__(self, **config: int) -> None:
        self.now_ms = 1_000_000
        self.kept: dict[str, GroupSnapshot] = {}
        self.saves: list[GroupSnapshot] = []
        self.answers: list[Joined | Synced] = []
        self.with_offsets: set[str] = set()
        self.disk_is_full = False
        self.config = GroupConfig(**config)
        self.coordinator = self._coordinator()

    def _coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, self._save, self._forget, lambda: self.with_offsets | self.kept.keys())

    def _save(self, snapshot: GroupSnapshot) -> int:
        if self.disk_is_full:
            raise StorageFull
        # Through its bytes, as it will be read after a restart.
        self.kept[snapshot.group_id] = GroupSnapshot.of(snapshot.group_id, snapshot.value())
        self.saves.append(snapshot)
        return len(self.saves)

    def _forget(self, group_id: str) -> int:
        if self.disk_is_full:
            raise StorageFull
        self.kept.pop(group_id, None)
        return len(self.saves)

    def restart(self) -> None:
        """The broker is killed and starts again."""
        self.coordinator = self._coordinator()
        self.coordinator.load(self.kept.values(), self.now_ms)
        self.coordinator.tick(self.now_ms)

    def after(self, ms: int) -> None:
        """Let time pass, stopping at every deadline."""
        until_ms = self.now_ms + ms
        while (deadline_ms := self.coordinator.next_deadline()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.coordinator.tick(self.now_ms)
        self.now_ms = until_ms

    # -- calls ---------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        knows_id: bool = True,
        knows_skip: bool = True,
        client_id: str = "client",
    ) -> Waiting:
        """One JoinGroup, just as it is sent."""
        waiting = Waiting(member_id=member_id, log=self.answers)
        request = Join(
            group_id=group,
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=tuple((protocols or {"range": subscription("t")}).items()),
            knows_member_id_required=knows_id,
            knows_skip_assignment=knows_skip,
        )
        self.coordinator.join(request, self.now_ms, waiting)
        self.coordinator.tick(self.now_ms)
        return waiting

    def enter(self, **join: Any) -> Waiting:
        """A new member joins the way clients do: it fetches its id and comes back with it."""
        first = self.join(**join)
        if first.is_answered and first.error is MemberIdRequired:
            return self.join(first.answer.member_id, **join)
        return first

    def again(self, seat: Seat, **join: Any) -> Waiting:
        return self.join(seat.member_id, group=seat.group_id, instance_id=seat.instance_id, **join)

    def sync(
        self, seat: Seat, assignments: Mapping[str, bytes] | None = None, *, generation: int | None = None, **sync: Any
    ) -> Waiting:
        waiting = Waiting(member_id=seat.member_id, log=self.answers)
        request = Sync(
            group_id=seat.group_id,
            member_id=seat.member_id,
            generation=seat.generation if generation is None else generation,
            instance_id=seat.instance_id,
            assignments=assignments or {},
            **sync,
        )
        self.coordinator.sync(request, self.now_ms, waiting)
        self.coordinator.tick(self.now_ms)
        return waiting

    def beat(self, seat: Seat, generation: int | None = None) -> type[LevadaError] | None:
        """A heartbeat, and the error it brings."""
        try:
            self.coordinator.heartbeat(
                seat.group_id,
                seat.member_id,
                seat.generation if generation is None else generation,
                seat.instance_id,
                now_ms=self.now_ms,
            )
        except LevadaError as error:
            return type(error)
        return None

    def leave(self, *leaving: Leaving | Seat, group: str = "g") -> list[type[LevadaError] | None]:
        who = [Leaving(one.member_id, one.instance_id) if isinstance(one, Seat) else one for one in leaving]
        left = self.coordinator.leave(group, who, self.now_ms)
        self.coordinator.tick(self.now_ms)
        return [None if one.error is None else type(one.error) for one in left]

    # -- whole scenes --------------------------------------------------------------------------------------------

    def stable(self, *instances: str | None, group: str = "g", **join: Any) -> list[Seat]:
        """A stable group with these members (None for a dynamic one), the first of whom leads it."""
        seats: list[Seat] = []
        for instance_id in instances:
            newcomer = self.enter(group=group, instance_id=instance_id, **join)
            # Members that were there hear of it in the answers to their heartbeats, and join again.
            again = [self.again(seat, **join) for seat in seats]
            seats = [Seat(group, call.answer, seat.instance_id) for seat, call in zip(seats, again, strict=True)]
            seats.append(Seat(group, newcomer.answer, instance_id))
        self.assign(seats)
        return seats

    def assign(self, seats: list[Seat]) -> list[Synced]:
        """Everybody syncs, and is assigned bytes that name it."""
        waiting = [self.sync(seat) for seat in seats if not seat.leads]
        leader = next(seat for seat in seats if seat.leads)
        waiting.append(self.sync(leader, {seat.member_id: f"part of {seat.member_id}".encode() for seat in seats}))
        return [one.answer for one in waiting]

    def state(self, group: str = "g") -> str:
        return self.coordinator.describe(group).state.value
