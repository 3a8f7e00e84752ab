"""A group as it is kept, in the fields of Kafka's GroupMetadataValue, and back.

It is kept when a generation begins (with no assignments yet), when the leader's assignment is told, when a static
member's successor takes its seat, and when the group is empty. So a broker that starts again goes on with the same
members and the same generation, and never gives a generation number out twice.
"""

from __future__ import annotations

from levada.broker.groups.group import Group
from levada.broker.groups.member import Member
from levada.broker.groups.state import State
from levada.engine.embedded.group_snapshot import GroupSnapshot, MemberSnapshot


def snapshot(group: Group) -> GroupSnapshot:
    """Only what the chosen protocol carries of a member is kept, as Kafka does."""
    return GroupSnapshot(
        group_id=group.id,
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id,
        since_ms=group.since_ms,
        members=tuple(_member_snapshot(member, group.protocol_name) for member in group.members.values()),
    )


def restore(kept: GroupSnapshot) -> Group:
    """The group of this snapshot. Its members' sessions are the caller's to start."""
    group = Group(kept.group_id, kept.since_ms)
    for seat in kept.members:
        group.add(_member(seat, kept.protocol_name or ""), kept.protocol_type or "")
    group.protocol_type = kept.protocol_type
    group.protocol_name = kept.protocol_name
    group.generation = kept.generation
    if kept.leader_id in group.members:
        group.leader_id = kept.leader_id
    if group.members:
        group.state = State.STABLE
    group.read_subscriptions()
    return group


def is_unassigned(group: Group) -> bool:
    """Kept when its generation began, and never assigned: the members must join again."""
    return bool(group.members) and not any(member.assignment for member in group.members.values())


def _member_snapshot(member: Member, protocol: str | None) -> MemberSnapshot:
    return MemberSnapshot(
        member_id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=member.assignment,
    )


def _member(seat: MemberSnapshot, protocol: str) -> Member:
    return Member(
        seat.member_id,
        instance_id=seat.instance_id,
        client_id=seat.client_id,
        client_host=seat.client_host,
        session_timeout_ms=seat.session_timeout_ms,
        rebalance_timeout_ms=seat.rebalance_timeout_ms,
        protocols=((protocol, seat.subscription),),
        assignment=seat.assignment,
    )
