"""The groups of a topic: where each stands, and moving those that nobody is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from levada.errors import BrokerRefused
from levada.spark.jobs.extent import Offsets
from levada.wire.answers import OffsetAndMetadata, TopicPartition
from levada.wire.blocking import BlockingClient
from levada.wire.codes import ErrorCode

#: Groups of Levada's own parts are no readers.
_OWN: Final = "__levada."
#: A group that has members moves only by them.
_TAKEN: Final = frozenset(
    (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.NON_EMPTY_GROUP,
    )
)


def committed(client: BlockingClient, topic: str, partitions: int) -> dict[str, Offsets]:
    """The offsets of every group that has committed any in this topic."""
    return {
        group: {partition: place.offset for partition, place in places.items()}
        for group, places in standing(client, topic, partitions).items()
    }


def standing(client: BlockingClient, topic: str, partitions: int) -> dict[str, dict[int, OffsetAndMetadata]]:
    """The same, with what was said when they were committed."""
    at = [TopicPartition(topic, partition) for partition in range(partitions)]
    found: dict[str, dict[int, OffsetAndMetadata]] = {}
    for group in sorted(one.group_id for one in client.list_groups()):
        if group.startswith(_OWN):
            continue
        places = client.offset_fetch(group, at, require_stable=True)
        if places:
            found[group] = {one.partition: place for one, place in places.items()}
    return found


def move(client: BlockingClient, topic: str, moves: Mapping[str, Offsets], marks: Mapping[str, str]) -> list[str]:
    """Commit these offsets, each group's with its mark; the groups that have members, and were left where they are."""
    left = []
    for group, offsets in moves.items():
        try:
            places = {p: OffsetAndMetadata(offset, metadata=marks[group]) for p, offset in offsets.items()}
            client.offset_commit(group, {TopicPartition(topic, p): place for p, place in places.items()})
        except BrokerRefused as refusal:
            if refusal.code not in _TAKEN:
                raise
            left.append(group)
    return left
