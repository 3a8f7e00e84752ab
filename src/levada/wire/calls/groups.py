"""Groups: their offsets, and looking at them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from levada.errors import LevadaError
from levada.wire.answers import ByPartition, GroupInfo, GroupListing, MemberInfo, OffsetAndMetadata, TopicPartition
from levada.wire.apis import ApiKey
from levada.wire.calls.coordinator import GROUP, CoordinatorCalls
from levada.wire.calls.layout import by_topic, keyed, partitions_of, topic_rows
from levada.wire.codec import Message
from levada.wire.codes import refused
from levada.wire.effects import Steps, ask_all, call
from levada.wire.retry import Retry

#: From version 10 on topics are named by id; names serve every broker there is.
_BY_NAME: Final = 9


class GroupCalls(CoordinatorCalls):
    """Offsets of groups, and the groups themselves."""

    @call
    def offset_commit(
        self,
        group: str,
        offsets: ByPartition[OffsetAndMetadata | int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> Steps[None]:
        """Store how far the group has read: the next offset to read, per partition. Without a member, only while it has none."""
        places = {at: as_place(value) for at, value in keyed(offsets).items()}
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "group_instance_id": instance_id,
            "topics": topic_rows(places, lambda at: offset_row(at, places[at])),
        }

        def read(answer: Message) -> None:
            for at, one in partitions_of(answer):
                if one.error_code:
                    raise refused(one.error_code, f"offset of group {group} in {at}")

        retry = self._retry(timeout_ms)
        yield from self._ask_coordinator(GROUP, group, ApiKey.OFFSET_COMMIT, fields, read, retry, high=_BY_NAME)

    @call
    def offset_fetch(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata]]:
        """How far the group has read, where it has committed at all; in all partitions unless some are named.

        With `require_stable`, offsets that an open transaction is about to change are waited for.
        """
        topics = None
        if partitions is not None:
            rows = by_topic({TopicPartition(*at): None for at in partitions})
            topics = [{"name": name, "partition_indexes": [index for index, _ in held]} for name, held in rows]
        fields = {
            "group_id": group,
            "topics": topics,
            "groups": [{"group_id": group, "topics": topics}],
            "require_stable": require_stable,
        }

        def read(answer: Message) -> dict[TopicPartition, OffsetAndMetadata]:
            held = answer.groups[0] if answer.groups else answer
            if held.error_code:
                raise refused(held.error_code, f"offsets of group {group}")
            return dict(_committed(group, held))

        low = 7 if require_stable else 2
        retry = self._retry(timeout_ms)
        return (
            yield from self._ask_coordinator(
                GROUP, group, ApiKey.OFFSET_FETCH, fields, read, retry, low=low, high=_BY_NAME
            )
        )

    @call
    def offset_delete(
        self, group: str, partitions: Iterable[tuple[str, int]], *, timeout_ms: int | None = None
    ) -> Steps[None]:
        """Forget the group's offsets in these partitions, of topics that none of its members reads."""
        ats = [TopicPartition(*at) for at in partitions]
        fields = {"group_id": group, "topics": topic_rows(ats, lambda at: {"partition_index": at.partition})}

        def read(answer: Message) -> None:
            if answer.error_code:
                raise refused(answer.error_code, f"group {group}")
            for at, one in partitions_of(answer):
                if one.error_code:
                    raise refused(one.error_code, f"offset of group {group} in {at}")

        retry = self._retry(timeout_ms)
        yield from self._ask_coordinator(GROUP, group, ApiKey.OFFSET_DELETE, fields, read, retry)

    @call
    def list_groups(self, *, timeout_ms: int | None = None) -> Steps[list[GroupListing]]:
        """All groups of all brokers, by name."""

        def attempt(retry: Retry) -> Steps[list[GroupListing]]:
            yield from self._refresh((), retry)
            sends = [self._send(node, ApiKey.LIST_GROUPS, {}, retry) for node in self.cluster.brokers]
            found: set[GroupListing] = set()
            for answer in (yield from ask_all(sends)):
                if isinstance(answer, LevadaError):
                    raise answer
                if answer.error_code:
                    raise refused(answer.error_code, "ListGroups")
                found |= {
                    GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
                    for one in answer.groups
                }
            return sorted(found)

        return (yield from self._retried(attempt, self._retry(timeout_ms)))

    @call
    def describe_group(self, group: str, *, timeout_ms: int | None = None) -> Steps[GroupInfo]:
        """A classic group and its members. One that never was is in state Dead, and from version 6 GROUP_ID_NOT_FOUND."""

        def read(answer: Message) -> GroupInfo:
            (one,) = answer.groups
            if one.error_code:
                raise refused(one.error_code, f"group {group}", one.error_message)
            return GroupInfo(
                one.group_id,
                one.group_state,
                one.protocol_type,
                one.protocol_data,
                [
                    MemberInfo(
                        member.member_id,
                        member.group_instance_id,
                        member.client_id,
                        member.client_host,
                        member.member_metadata,
                        member.member_assignment,
                    )
                    for member in one.members
                ],
            )

        retry = self._retry(timeout_ms)
        fields = {"groups": [group]}
        return (yield from self._ask_coordinator(GROUP, group, ApiKey.DESCRIBE_GROUPS, fields, read, retry))

    @call
    def delete_group(self, group: str, *, timeout_ms: int | None = None) -> Steps[None]:
        """Forget a group without members, and its offsets."""

        def read(answer: Message) -> None:
            (one,) = answer.results
            if one.error_code:
                raise refused(one.error_code, f"group {group}")

        fields = {"groups_names": [group]}
        retry = self._retry(timeout_ms, repeatable=False)
        yield from self._ask_coordinator(GROUP, group, ApiKey.DELETE_GROUPS, fields, read, retry)


def as_place(value: OffsetAndMetadata | int) -> OffsetAndMetadata:
    return OffsetAndMetadata(value) if isinstance(value, int) else OffsetAndMetadata(*value[:3])


def offset_row(at: TopicPartition, place: OffsetAndMetadata) -> dict[str, Any]:
    """An offset as OffsetCommit and TxnOffsetCommit have it."""
    return {
        "partition_index": at.partition,
        "committed_offset": place.offset,
        "committed_leader_epoch": place.leader_epoch,
        "committed_metadata": place.metadata,
    }


def _committed(group: str, held: Message) -> Iterable[tuple[TopicPartition, OffsetAndMetadata]]:
    for at, one in partitions_of(held):
        if one.error_code:
            raise refused(one.error_code, f"offset of group {group} in {at}")
        if one.committed_offset >= 0:
            yield at, OffsetAndMetadata(one.committed_offset, one.committed_leader_epoch, one.metadata or "")
