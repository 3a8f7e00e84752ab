"""All groups in one list, whoever rules them: native ones, Kafka's, and those that only have offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from levada.broker.groups import GroupCoordinator
from levada.broker.groups.calls import Listed as KafkaListed
from levada.broker.groups.state import State
from levada.broker.streams import Described, DescribedMember, Kind, Listed, StreamGroups
from levada.broker.streams.consumer_protocol import assigned
from levada.broker.streams.directory import OWN_PREFIX
from levada.engine.port import At
from levada.errors import UnknownGroup


class GroupDirectory:
    """What administrators are shown and may delete. The broker's own groups are not there."""

    def __init__(
        self,
        native: StreamGroups,
        kafka: GroupCoordinator,
        *,
        delete_offsets: Callable[[str], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._native = native
        self._kafka = kafka
        self._delete_offsets = delete_offsets
        self._now_ms = now_ms

    def list(self) -> list[Listed]:
        """By id."""
        found = {one.group_id: one for one in self._native.list()}
        for other in self._kafka.list():
            if other.group_id not in found and not other.group_id.startswith(OWN_PREFIX):
                found[other.group_id] = self._listed(other)
        return sorted(found.values())

    def describe(self, group_id: str) -> Described:
        """UnknownGroup."""
        self._check(group_id)
        if self._native.kind(group_id) is not None:
            return self._native.describe(group_id)
        group = self._kafka.describe(group_id)
        members = [
            DescribedMember(one.member_id, one.client_id, one.client_host.lstrip("/"), assigned(one.assignment))
            for one in group.members
        ]
        return Described(group_id, _kind(group.protocol_type, group.state), group.state, group.generation, members)

    def owners(self, group_id: str) -> Mapping[At, str]:
        """Who reads each partition now, as far as is known; nothing for a group that is not there."""
        try:
            members = self.describe(group_id).members
        except UnknownGroup:
            return {}
        return {at: member.member_id for member in members for at in member.partitions}

    async def delete(self, group_id: str) -> None:
        """Forget the group and its offsets; durable when it returns. GroupNotEmpty, UnknownGroup."""
        self._check(group_id)
        receipt = self._kafka.delete(group_id, self._now_ms())  # which knows native ones as its neighbour's
        await self._delete_offsets(group_id)
        if receipt > 0:
            await self._native.durable(receipt)

    def _listed(self, group: KafkaListed) -> Listed:
        members = len(self._kafka.describe(group.group_id).members)
        return Listed(group.group_id, _kind(group.protocol_type, group.state), group.state, members)

    def _check(self, group_id: str) -> None:
        if group_id.startswith(OWN_PREFIX):
            raise UnknownGroup(f"there is no group {group_id}")


def _kind(protocol_type: str, state: State) -> Kind:
    return Kind.OFFSETS if state is State.EMPTY and not protocol_type else Kind.CLASSIC
