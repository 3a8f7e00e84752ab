"""The native groups of this broker: members, generations, and who reads what.

Pure: no I/O and no clock of its own. Time comes as `now_ms` (levada.broker.groups.clock), members are told by callback,
and tick() is due at next_deadline(). What must survive is handed to `save`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence

from levada.broker.groups.config import GroupConfig
from levada.broker.streams.directory import Directory
from levada.broker.streams.generations import Generations, Topics
from levada.broker.streams.group import DynamicGroup, FixedGroup, Group
from levada.broker.streams.kinds import Kind, NoRival, Rival
from levada.broker.streams.member import Changed, Member
from levada.broker.streams.registration import Registered
from levada.config import INT32_MAX
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.engine.port import At
from levada.errors import (
    FencedInstance,
    GroupFull,
    GroupKindMismatch,
    IllegalGeneration,
    InvalidRequest,
    ShuttingDown,
    UnknownGroup,
    UnknownMember,
    UnknownTopic,
)


async def _at_once(receipt: int) -> None:
    """For groups that are kept in memory alone."""


class StreamGroups(Directory):
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
        self.durable = durable

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
    ) -> Member:
        """Become a member and begin a new generation.

        GroupKindMismatch, InvalidGroupId, UnknownTopic, InvalidSessionTimeout, GroupFull, InvalidRequest.
        """
        self._check_id(group_id)
        self._check_session(session_timeout_ms)
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
        )
        self._seat(group, member, now_ms)
        self._generations.begin(group, f"{member.id} joined", silent=member)
        return member

    def alive(self, group_id: str, member_id: str, now_ms: int) -> None:
        """A sign of life. UnknownMember for whoever is none any more: it must join again."""
        group = self._with_member(group_id, member_id)
        self._generations.touch(group, group.member(member_id), now_ms)

    def leave(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Go. What it had is given to others at once. UnknownMember."""
        group = self._with_member(group_id, member_id)
        self._generations.remove(group, group.member(member_id), now_ms)
        self._after_removal(group, f"{member_id} left")

    # The fixed form

    def register(self, topic: str, group_id: str, consumers: int, now_ms: int) -> Registered:
        """Have so many consumers read this topic: consumer i every partition with partition % consumers == i.

        The same number again changes nothing, and with another topic adds that. Another number holds for all topics of
        the group: it begins a new generation, and the consumers of the one before are told and fenced.
        GroupKindMismatch, InvalidGroupId, UnknownTopic, InvalidRequest, StorageError.
        """
        self._check_id(group_id)
        self._check_topics([topic])
        if not 1 <= consumers <= INT32_MAX:
            raise InvalidRequest(f"group {group_id} with {consumers} consumers: must be from 1 to {INT32_MAX}")
        self._check_rival(group_id)
        group = self._groups.get(group_id)
        if isinstance(group, FixedGroup) and group.consumers == consumers:
            return self._register_topic(group, topic)
        if isinstance(group, DynamicGroup) and group.members:
            raise GroupKindMismatch(f"group {group_id} is dynamic and has {len(group.members)} members")
        return self._register_anew(group, group_id, topic, consumers, now_ms)

    def attach(
        self,
        group_id: str,
        consumer: int,
        generation: int = 0,
        *,
        session_timeout_ms: int,
        now_ms: int,
        changed: Changed,
        topics: Sequence[str] = (),
        client_id: str = "",
        host: str = "",
    ) -> Member:
        """Be consumer i of a registered group, of this generation; 0 is the one it is in.

        Whoever is that consumer already is told so and fenced: the newer takes over. Topics, where given, must be among
        those that are registered, and it reads them alone. UnknownGroup, GroupKindMismatch, IllegalGeneration,
        InvalidRequest, UnknownTopic, InvalidSessionTimeout.
        """
        self._check_session(session_timeout_ms)
        group = self._fixed(group_id)
        if generation:
            group.check_generation(generation)
        _check_consumer(group, consumer)
        _check_registered(group, topics)
        member = Member(
            f"{client_id or 'consumer'}-{consumer}-{uuid.uuid4()}",
            group_id,
            topics=topics,
            client_id=client_id,
            host=host,
            session_timeout_ms=session_timeout_ms,
            changed=changed,
            consumer=consumer,
        )
        older = group.seats.get(consumer)
        if older is not None:
            reason = f"consumer {consumer} of group {group_id} was taken over by {member.id}"
            self._generations.fence(group, older, FencedInstance(reason), now_ms)
        self._seat(group, member, now_ms)
        self._generations.reshare(group, silent=member)
        return member

    # What happens around them

    def topics_changed(self, now_ms: int) -> None:
        """Topics were made, expanded or deleted: whoever reads them is told. A topic made again is another one."""
        for group in list(self._groups.values()):
            seen = self._generations.look(group.topics)
            if seen == group.seen:
                continue
            gone = {topic for topic, before in group.seen.items() if topic not in seen or seen[topic].id != before.id}
            if isinstance(group, FixedGroup):
                self._deregister(group, gone, now_ms)
            else:
                if gone & seen.keys():
                    left = {topic: one for topic, one in seen.items() if topic not in gone}
                    self._generations.begin(group, f"gone: {', '.join(sorted(gone))}", seen=left)
                self._generations.begin(group, "its topics changed", seen=seen)

    def moved(self, group_id: str, offsets: Mapping[At, int], now_ms: int) -> None:
        """The group's offsets were set: members go on from there.

        A dynamic group begins a new generation with it, so that a commit of what was read before is refused.
        """
        group = self._groups.get(group_id)
        if group is None or not group.members:
            return
        if isinstance(group, DynamicGroup):
            self._generations.begin(group, "its offsets were moved", moved=offsets)
            return
        for member in list(group.members.values()):
            own = {at: offset for at, offset in offsets.items() if at in member.owned}
            if own:
                member.tell(own)

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
        group = self._groups.get(group_id)
        anonymous = not member_id and not generation and consumer is None
        if group is None:
            if not anonymous:
                raise UnknownMember(f"there is no native group {group_id}, so no member {member_id!r} of it")
            return
        if anonymous:
            if group.members:
                raise UnknownMember(f"group {group_id} has members; only they may commit")
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

    def _seat(self, group: Group, member: Member, now_ms: int) -> None:
        group.add(member, now_ms)
        member.receipt = group.receipt
        self._generations.touch(group, member, now_ms)

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

    def _fixed(self, group_id: str) -> FixedGroup:
        self._check_id(group_id)
        self._check_rival(group_id)
        group = self._groups.get(group_id)
        if isinstance(group, FixedGroup):
            return group
        if group is not None and group.members:
            raise GroupKindMismatch(f"group {group_id} is dynamic: nobody is consumer i of it")
        raise UnknownGroup(f"group {group_id} is not registered")

    def _register_topic(self, group: FixedGroup, topic: str) -> Registered:
        if topic in group.registered:
            return Registered(group.generation, same=True, receipt=group.receipt)
        group.registered.add(topic)
        try:
            receipt = self._generations.save(group)
        except BaseException:
            group.registered.remove(topic)
            raise
        self._generations.reshare(group)
        return Registered(group.generation, same=False, receipt=receipt)

    def _register_anew(
        self, before: Group | None, group_id: str, topic: str, consumers: int, now_ms: int
    ) -> Registered:
        topics = before.registered | {topic} if isinstance(before, FixedGroup) else {topic}
        last = self.rival.give_up(group_id, now_ms) if before is None else before.generation
        group = FixedGroup(group_id, last + 1, now_ms, consumers, topics)
        receipt = self._generations.save(group)
        group.seen = self._generations.look(topics)
        self._groups[group_id] = group
        reason = IllegalGeneration(
            f"group {group_id} was registered anew, with {consumers} consumers: it is in generation {group.generation}"
        )
        for member in list(before.members.values()) if before is not None else ():
            self._generations.fence(before, member, reason, now_ms)  # type: ignore[arg-type]
        return Registered(group.generation, same=False, receipt=receipt)

    def _deregister(self, group: FixedGroup, gone: set[str], now_ms: int) -> None:
        """A registration ends with its topic; the group with its last one."""
        group.registered -= gone
        if group.registered:
            if gone:
                self._generations.keep(group)
            self._generations.reshare(group)
            return
        for member in list(group.members.values()):
            reason = UnknownTopic(f"what group {group.id} was registered for was deleted: {', '.join(sorted(gone))}")
            self._generations.fence(group, member, reason, now_ms)
        # What is left is the number of its last generation, for whoever takes the id up again.
        left = self._groups[group.id] = DynamicGroup(group.id, group.generation, now_ms)
        self._generations.keep(left)

    def _session_over(self, group: Group, member: Member, now_ms: int) -> None:
        reason = f"member {member.id} of group {group.id} gave no sign of life for {member.session_timeout_ms} ms"
        self._generations.fence(group, member, UnknownMember(reason), now_ms)
        self._after_removal(group, f"session of {member.id} ended")

    def _after_removal(self, group: Group, reason: str) -> None:
        if group.kind is Kind.DYNAMIC:
            self._generations.begin(group, reason)

    def _with_member(self, group_id: str, member_id: str) -> Group:
        self._check_open()
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMember(f"there is no native group {group_id}, so no member {member_id!r} of it")
        return group

    def _check_topics(self, topics: Sequence[str]) -> None:
        found = self._generations.look(topics)
        for topic in topics:
            if topic not in found:
                raise UnknownTopic(f"there is no topic {topic!r}")


def _check_consumer(group: FixedGroup, consumer: int) -> None:
    if not 0 <= consumer < group.consumers:
        raise InvalidRequest(f"consumer {consumer} of group {group.id}: must be from 0 to {group.consumers - 1}")


def _check_registered(group: FixedGroup, topics: Sequence[str]) -> None:
    for topic in topics:
        if topic not in group.registered:
            known = ", ".join(sorted(group.registered))
            raise UnknownTopic(f"group {group.id} is registered for {known}, not for {topic!r}")


def _check_by_number(group: Group, consumer: int, at: At | None) -> None:
    """A commit by a consumer's number, which does while nobody is attached under it."""
    if not isinstance(group, FixedGroup):
        raise GroupKindMismatch(f"group {group.id} is {group.kind.value}: nobody is consumer {consumer} of it")
    _check_consumer(group, consumer)
    holder = group.seats.get(consumer)
    if holder is not None:
        raise UnknownMember(f"consumer {consumer} of group {group.id} is {holder.id}: commit by that id")
    if at is not None and group.owner_of(at) != consumer:
        raise IllegalGeneration(f"{at} is not consumer {consumer}'s in generation {group.generation} of {group.id}")
