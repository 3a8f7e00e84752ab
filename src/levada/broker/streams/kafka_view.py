"""Native groups as Kafka's clients and tools are shown them: as consumer groups, so that those show offsets and lag.

Kafka's tools describe groups of the protocol type `consumer` alone, and read members' topics and partitions from the bytes
that Kafka's consumers use. The protocol, shown as the assignment strategy, names the kind: levada-stream or levada-fixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from levada.broker.groups.calls import Described, DescribedMember, Listed
from levada.broker.groups.state import Kind as KafkaKind
from levada.broker.groups.subscription import CONSUMER
from levada.broker.streams import views
from levada.broker.streams.consumer_protocol import assignment, subscription
from levada.broker.streams.kinds import Kind
from levada.broker.streams.snapshot import FIXED, STREAM

if TYPE_CHECKING:
    from levada.broker.streams.coordinator import StreamGroups

_PROTOCOL: Final = {Kind.DYNAMIC: STREAM, Kind.FIXED: FIXED}


class KafkaView:
    """A levada.broker.groups Neighbour over native groups."""

    def __init__(self, groups: StreamGroups) -> None:
        self._groups = groups

    def knows(self, group_id: str) -> bool:
        return self._groups.kind(group_id) is not None

    def holds(self, group_id: str) -> bool:
        return self._groups.holds(group_id)

    def give_up(self, group_id: str, now_ms: int) -> int:
        return self._groups.give_up(group_id, now_ms)

    def has_members(self, group_id: str) -> bool:
        return self._groups.has_members(group_id)

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        return self.has_members(group_id) and topic in self._groups.topics(group_id)

    def list(self) -> list[Listed]:
        return [Listed(one.group_id, CONSUMER, one.state, KafkaKind.CLASSIC) for one in self._groups.list()]

    def describe(self, group_id: str) -> Described:
        group = self._groups.describe(group_id)
        return Described(
            group_id,
            KafkaKind.CLASSIC,
            group.state,
            group.generation,
            CONSUMER,
            _PROTOCOL[group.kind],
            [_member(one) for one in group.members],
        )

    def delete(self, group_id: str, now_ms: int) -> int:
        return self._groups.delete(group_id, now_ms)


def _member(member: views.DescribedMember) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        None,
        member.client_id,
        f"/{member.host}",
        subscription(member.topics),
        assignment(member.partitions),
    )
