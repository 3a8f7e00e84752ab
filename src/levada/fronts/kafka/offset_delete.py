"""OffsetDelete, version 0.

- Offsets of topics that the group's members read are refused with GROUP_SUBSCRIBED_TO_TOPIC, those of partitions that do
  not exist with UNKNOWN_TOPIC_OR_PARTITION; the others are deleted, and it is no error where there are none.
- A group with members of another type than consumers is refused as a whole: what they read cannot be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.engine.port import At
from levada.errors import GroupSubscribed, LevadaError, UnknownPartition, UnknownTopic
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.group_error import group_code, group_codes
from levada.wire.codec import Message


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    group_id = request.group_id
    rows = [At(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    try:
        call.node.groups.check_offset_delete(group_id)
        errors = [_refusal(group_id, at, call) for at in rows]
        deleted = [at for at, error in zip(rows, errors, strict=True) if error is None]
        await call.node.engine.offset_store.delete(group_id, deleted)
    except LevadaError as error:
        return {"error_code": group_code(call, error)}
    codes = iter(group_codes(call, errors))
    return {
        "error_code": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": next(codes)}
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _refusal(group_id: str, at: At, call: Call) -> LevadaError | None:
    info = call.node.engine.view.get(at.topic)
    if info is None:
        return UnknownTopic(f"there is no topic {at.topic!r}")
    if not 0 <= at.partition < info.partitions:
        return UnknownPartition(f"topic {at.topic!r} has partitions 0 to {info.partitions - 1}, not {at.partition}")
    if call.node.groups.is_subscribed(group_id, at.topic):
        return GroupSubscribed(f"members of group {group_id} read topic {at.topic!r}")
    return None
