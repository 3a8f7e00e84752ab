"""The native groups of this broker: members, generations, and who reads what.

Pure: no I/O and no clock of its own. Time comes as `now_ms` (levada.broker.groups.clock), members are told by callback,
and tick() is due at next_deadline(). What must survive is handed to `save`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from levada.broker.groups.config import GroupConfig
from levada.broker.streams.generations import Generations, Topics
from levada.broker.streams.group import DynamicGroup, FixedGroup, Group
from levada.broker.streams.kinds import Kind, NoRival, Rival
from levada.broker.streams.member import Changed, Member
from levada.broker.streams.registrations import Registrations, check_client_id, check_consumer
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.engine.port import At
from levada.errors import (
    GroupFull,
    GroupKindMismatch,
    IllegalGeneration,
    InvalidRequest,
    ShuttingDown,
    UnknownMember,
)


async def _at_once(receipt: int) -> None:
    """For groups that are kept in memory alone."""


class StreamGroups(Registrations):
    """Joins, registrations, signs of life and leaves of native groups.

    A member's first assignment is in the Member that join() or attach() returns; every later one it is told through
    `changed`, which must not call back. `save` keeps a snapshot, `forget` drops it, and both return a receipt; what has
    a receipt is kept for good once durable(receipt) returns.
    """

    def __init__(
        self,
        view: Topics,
        save: Callable[[GroupSnapshot], int],
        forget: Callable[[str], int],
        rival: Rival | None = None,
        config: GroupConfig | None = None,
        durable: Callable[[int], Awaitable[None]] = _at_once,
    ) -> None:
        generations = Generations(view, save, forget, self._session_over)
        super().__init__(generations, config or GroupConfig(), rival or NoRival())
        self._durable = durable

    async def durable(self, receipt: int) -> None:
        """Wait until what gave this receipt is kept for good. StorageError when it never will be."""
        if receipt > 0:
            await self._durable(receipt)

    # Time

    def next_deadline(self) -> int | None:
        """When tick() is due; None while nothing waits."""
        return self._generations.timers.next_deadline()

    def tick(self, now_ms: int) -> None:
        """End the sessions that are over."""
        self._generations.timers.tick(now_ms)

    def on_earlier_deadline(self, wake: Callable[[], None] | None) -> None:
        """Call `wake` whenever next_deadline() moves forward."""
        self._generations.timers.on_earlier = wake

    def close(self, now_ms: int) -> None:
        """Tell every member to go, and refuse whatever comes. The groups stay as they were saved."""
        self._is_closed = True
        for group in self._groups.values():
            for member in list(group.members.values()):
                self._generations.fence(group, member, ShuttingDown(), now_ms)
        self._groups.clear()

    # Members that come and go

    def join(
        self,
        group_id: str,
        topics: Sequence[str],
        *,
        session_timeout_ms: int,
        now_ms: int,
        changed: Changed,
        client_id: str = "",
        host: str = "",
        hand_over_ms: int = 0,
    ) -> Member:
        """Become a member and begin a new generation. Whoever is given what it had waits `hand_over_ms` for it to hand that over.

        GroupKindMismatch, InvalidGroupId, UnknownTopic, InvalidSessionTimeout, GroupFull, InvalidRequest.
        """
        self._check_id(group_id)
        self._check_session(session_timeout_ms)
        check_client_id(client_id)
        if not topics:
            raise InvalidRequest(f"a member of group {group_id} must read at least one topic")
        self._check_topics(topics)
        group = self._dynamic(group_id, now_ms)
        member = Member(
            f"{client_id or 'member'}-{uuid.uuid4()}",
            group_id,
            topics=topics,
            client_id=client_id,
            host=host,
            session_timeout_ms=session_timeout_ms,
            changed=changed,
            hand_over_ms=min(hand_over_ms, session_timeout_ms),
        )
        self._seat(group, member, now_ms)
        self._generations.begin(group, f"{member.id} joined", now_ms, silent=member)
        return member

    def alive(self, group_id: str, member_id: str, now_ms: int) -> None:
        """A sign of life. UnknownMember for whoever is none any more: it must join again."""
        group = self._with_member(group_id, member_id)
        self._generations.touch(group, group.member(member_id), now_ms)

    def leave(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Go. What it had is given to others at once. UnknownMember."""
        group = self._with_member(group_id, member_id)
        self._generations.remove(group, group.member(member_id), now_ms)
        self._after_removal(group, f"{member_id} left", now_ms)

    def hand_over(self, group_id: str, member_id: str, ats: Iterable[At]) -> None:
        """The member has committed what it has read of these, which it has lost: their new owners begin. UnknownMember."""
        group = self._with_member(group_id, member_id)
        self._generations.handovers.end(group, group.member(member_id), ats)

    # What happens around them

    def topics_changed(self, now_ms: int) -> None:
        """Topics were made, expanded or deleted: whoever reads them is told. A topic made again is another one."""
        for group in list(self._groups.values()):
            if isinstance(group, FixedGroup):
                self._registered_topics_changed(group, now_ms)
            elif self._generations.look(group.topics) != group.seen:
                self._generations.begin(group, "its topics changed", now_ms)

    def moved(self, group_id: str, offsets: Mapping[At, int], now_ms: int) -> None:
        """The group's offsets were set: members go on from there.

        A new generation begins with it, so that a commit of what was read before is refused. Of a registered group also where
        nobody is attached: its consumers may commit by their numbers.
        """
        group = self._up_to_date(group_id, now_ms)
        if group is not None and (group.members or isinstance(group, FixedGroup)):
            self._generations.begin(group, "its offsets were moved", now_ms, moved=offsets)

    def check_commit(
        self,
        group_id: str,
        member_id: str = "",
        generation: int = 0,
        at: At | None = None,
        *,
        consumer: int | None = None,
        now_ms: int | None = None,
    ) -> None:
        """Whether this commit of an offset is the group's own.

        With neither member, consumer nor generation it is an administrator's, and taken while there are no members. A
        consumer of a fixed group that is not attached commits by its number. IllegalGeneration, also where the
        partition is somebody else's; UnknownMember; GroupKindMismatch. With `now_ms` it is also a sign of life.
        """
        self._check_id(group_id)
        self._check_rival(group_id)
        group = self._shown(group_id)
        anonymous = not member_id and not generation and consumer is None
        if group is None:
            if not anonymous:
                raise UnknownMember(f"there is no native group {group_id}, so no member {member_id!r} of it")
            return
        if anonymous:
            if group.members:
                raise UnknownMember(f"group {group_id} has members; only they may commit")
            return
        leaving = group.members[member_id].leaving.get(at) if at is not None and member_id in group.members else None
        if leaving is not None and leaving[0] <= generation <= leaving[1]:
            # Nobody reads it yet.
            return
        group.check_generation(generation)
        if consumer is not None and not member_id:
            _check_by_number(group, consumer, at)
            return
        member = group.member(member_id)
        if at is not None and at not in member.owned:
            raise IllegalGeneration(f"{at} is not {member_id}'s in generation {generation} of group {group_id}")
        if now_ms is not None:
            self._generations.touch(group, member, now_ms)

    def check_seek(self, group_id: str) -> None:
        """Whether the group's offsets may be moved from outside. InvalidGroupId, GroupKindMismatch."""
        self._check_id(group_id)
        self._check_rival(group_id)

    # Within

    def _dynamic(self, group_id: str, now_ms: int) -> DynamicGroup:
        """The group to join, made where there is none. GroupKindMismatch, GroupFull."""
        self._check_rival(group_id)
        group = self._groups.get(group_id)
        if isinstance(group, FixedGroup):
            raise GroupKindMismatch(f"group {group_id} is registered with {group.consumers} consumers: it is fixed")
        if not isinstance(group, DynamicGroup):
            group = DynamicGroup(group_id, self.rival.give_up(group_id, now_ms), now_ms)
            self._groups[group_id] = group
        if len(group.members) >= self.config.size_max:
            raise GroupFull(f"group {group_id} has group.max.size={self.config.size_max} members already")
        return group

    def _session_over(self, group: Group, member: Member, now_ms: int) -> None:
        reason = f"member {member.id} of group {group.id} gave no sign of life for {member.session_timeout_ms} ms"
        self._generations.fence(group, member, UnknownMember(reason), now_ms)
        self._after_removal(group, f"session of {member.id} ended", now_ms)

    def _after_removal(self, group: Group, reason: str, now_ms: int) -> None:
        if group.kind is Kind.DYNAMIC:
            self._generations.begin(group, reason, now_ms)

    def _with_member(self, group_id: str, member_id: str) -> Group:
        self._check_open()
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMember(f"there is no native group {group_id}, so no member {member_id!r} of it")
        return group


def _check_by_number(group: Group, consumer: int, at: At | None) -> None:
    """A commit by a consumer's number, which does while nobody is attached under it."""
    if not isinstance(group, FixedGroup):
        raise GroupKindMismatch(f"group {group.id} is {group.kind.value}: nobody is consumer {consumer} of it")
    check_consumer(group, consumer)
    holder = group.seats.get(consumer)
    if holder is not None:
        raise UnknownMember(f"consumer {consumer} of group {group.id} is {holder.id}: commit by that id")
    if at is not None and group.owner_of(at) != consumer:
        raise IllegalGeneration(f"{at} is not consumer {consumer}'s in generation {group.generation} of {group.id}")
