"""A native group as it is kept, in the fields of Kafka's GroupMetadataValue, and back.

    protocol type   levada-stream                          levada-fixed
    protocol        sticky; remnant of one that was fixed  the number of consumers
    members         who was there: id, client, host,       one, by the name of `registration`,
                    session timeout, topics                with the topics; its client id is the
                                                           generation it was registered in

A group is kept at every new generation, so that no generation is given out twice. Members are not taken up again: they
come back as new ones, since what they were connected to is gone. That there were any keeps the group's offsets from
expiring until they had time to do so.
"""

from __future__ import annotations

from typing import Final

from levada.broker.groups.subscription import topics_of
from levada.broker.streams.consumer_protocol import subscription
from levada.broker.streams.group import DynamicGroup, FixedGroup, Group
from levada.broker.streams.member import Member
from levada.engine.embedded.group_snapshot import GroupSnapshot, MemberSnapshot

#: Protocol types of native groups, which Kafka's coordinator leaves alone.
STREAM: Final = "levada-stream"
FIXED: Final = "levada-fixed"
NATIVE: Final = frozenset({STREAM, FIXED})

_STICKY: Final = "sticky"
_REMNANT: Final = "remnant"
_REGISTRATION: Final = "registration"


def snapshot(group: Group) -> GroupSnapshot:
    if isinstance(group, FixedGroup):
        return GroupSnapshot(
            group_id=group.id,
            protocol_type=FIXED,
            generation=group.generation,
            protocol_name=str(group.consumers),
            since_ms=group.since_ms,
            members=(
                MemberSnapshot(
                    member_id=_REGISTRATION,
                    client_id=str(group.registered_in),
                    subscription=subscription(sorted(group.registered)),
                ),
            ),
        )
    return GroupSnapshot(
        group_id=group.id,
        protocol_type=STREAM,
        generation=group.generation,
        protocol_name=_REMNANT if group.is_remnant else _STICKY if group.members else None,
        since_ms=group.since_ms,
        members=tuple(_member(member) for member in group.members.values()),
    )


def restore(kept: GroupSnapshot, now_ms: int) -> Group:
    """The group of this snapshot, without members; those of a dynamic one are expected back."""
    topics = frozenset[str]().union(*(topics_of(member.subscription) or () for member in kept.members))
    if kept.protocol_type == FIXED:
        consumers = int(kept.protocol_name or 1)
        since = next((int(one.client_id) for one in kept.members if one.client_id.isdecimal()), None)
        return FixedGroup(kept.group_id, kept.generation, kept.since_ms, consumers, topics, since)
    is_remnant = kept.protocol_name == _REMNANT
    group = DynamicGroup(kept.group_id, kept.generation, kept.since_ms, is_remnant=is_remnant)
    if kept.members:
        group.expected_topics = topics
        group.expected_until_ms = now_ms + max(member.session_timeout_ms for member in kept.members)
    return group


def _member(member: Member) -> MemberSnapshot:
    return MemberSnapshot(
        member_id=member.id,
        client_id=member.client_id,
        client_host=member.host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.session_timeout_ms,
        subscription=subscription(member.topics),
    )
