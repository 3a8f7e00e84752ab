"""The fixed form of groups: registrations, and the consumers that attach to them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from levada.broker.streams.directory import Directory
from levada.broker.streams.group import DynamicGroup, FixedGroup, Group
from levada.broker.streams.member import Changed, Member
from levada.broker.streams.registration import Registered
from levada.config import INT32_MAX
from levada.errors import (
    FencedInstance,
    GroupKindMismatch,
    IllegalGeneration,
    InvalidRequest,
    UnknownGroup,
    UnknownTopic,
)

#: It is part of the member's id, which is kept with the group.
CLIENT_ID_BYTES_MAX: Final = 1_000


class Registrations(Directory):
    """What StreamGroups does for fixed groups."""

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
        group = self._up_to_date(group_id, now_ms)
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
        """Be consumer i of a registered group, as it was registered in this generation or is since; 0 is the one it is in.

        Whoever is that consumer already is told so and fenced: the newer takes over. Topics, where given, must be among
        those that are registered, and it reads them alone. UnknownGroup, GroupKindMismatch, IllegalGeneration,
        InvalidRequest, UnknownTopic, InvalidSessionTimeout.
        """
        self._check_session(session_timeout_ms)
        check_client_id(client_id)
        group = self._fixed(group_id, now_ms)
        if generation:
            group.check_registration(generation)
        check_consumer(group, consumer)
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

    # Within

    def _up_to_date(self, group_id: str, now_ms: int) -> Group | None:
        """The group, after whatever became of the topics it is registered for."""
        group = self._groups.get(group_id)
        if isinstance(group, FixedGroup):
            self._registered_topics_changed(group, now_ms)
        return self._groups.get(group_id)

    def _fixed(self, group_id: str, now_ms: int) -> FixedGroup:
        self._check_id(group_id)
        self._check_rival(group_id)
        group = self._up_to_date(group_id, now_ms)
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
        if before is None and (last := self.rival.give_up(group_id, now_ms)):
            before = self._groups[group_id] = DynamicGroup(group_id, last, now_ms)
        topics = before.registered | {topic} if isinstance(before, FixedGroup) else {topic}
        generation = 1 if before is None else before.generation + 1
        group = FixedGroup(group_id, generation, now_ms, consumers, topics)
        receipt = self._generations.save(group)
        group.seen = self._generations.look(topics)
        self._groups[group_id] = group
        if before is not None:
            news = f"group {group_id} was registered anew, with {consumers} consumers: it is in generation {generation}"
            for member in list(before.members.values()):
                self._generations.fence(before, member, IllegalGeneration(news), now_ms)
        return Registered(generation, same=False, receipt=receipt)

    def _registered_topics_changed(self, group: FixedGroup, now_ms: int) -> None:
        """Partitions that are new are given out. A registration ends with its topic, and the group with its last one."""
        seen = self._generations.look(group.registered)
        gone = group.registered - seen.keys() | group.replaced(seen)
        if not gone:
            if seen != group.seen:
                self._generations.reshare(group)
            return
        group.registered -= gone
        if group.registered:
            self._generations.keep(group)
            self._generations.reshare(group)
            return
        for member in list(group.members.values()):
            reason = UnknownTopic(f"what group {group.id} was registered for was deleted: {', '.join(sorted(gone))}")
            self._generations.fence(group, member, reason, now_ms)
        left = self._groups[group.id] = DynamicGroup(group.id, group.generation, now_ms, is_remnant=True)
        self._generations.keep(left)

    def _seat(self, group: Group, member: Member, now_ms: int) -> None:
        group.add(member, now_ms)
        member.receipt = group.receipt
        self._generations.touch(group, member, now_ms)

    def _check_topics(self, topics: Sequence[str]) -> None:
        found = self._generations.look(topics)
        for topic in topics:
            if topic not in found:
                raise UnknownTopic(f"there is no topic {topic!r}")


def check_client_id(client_id: str) -> None:
    if len(client_id.encode()) > CLIENT_ID_BYTES_MAX:
        raise InvalidRequest(f"the client id is longer than {CLIENT_ID_BYTES_MAX} bytes")


def check_consumer(group: FixedGroup, consumer: int) -> None:
    if not 0 <= consumer < group.consumers:
        raise InvalidRequest(f"consumer {consumer} of group {group.id}: must be from 0 to {group.consumers - 1}")


def _check_registered(group: FixedGroup, topics: Sequence[str]) -> None:
    for topic in topics:
        if topic not in group.registered:
            known = ", ".join(sorted(group.registered))
            raise UnknownTopic(f"group {group.id} is registered for {known}, not for {topic!r}")
