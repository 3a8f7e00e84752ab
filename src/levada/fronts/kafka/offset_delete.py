"""OffsetDelete, version 0.

- Offsets of topics that the group's members read are refused with GROUP_SUBSCRIBED_TO_TOPIC, those of topics that do not
  exist with UNKNOWN_TOPIC_OR_PARTITION; the others are deleted, and so are they where none was committed.
- A group with members of another type than consumers is refused as a whole: what they read cannot be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.engine.port import At
from levada.errors import GroupSubscribed, LevadaError, UnknownTopic
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.group_error import group_code, group_codes
from levada.wire.codec import Message


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    node, group_id = call.node, request.group_id
    try:
        node.groups.check_offset_delete(group_id)
        errors = {topic.name: _refusal(group_id, topic.name, call) for topic in request.topics}
        ats = [
            At(topic.name, partition.partition_index)
            for topic in request.topics
            if errors[topic.name] is None
            for partition in topic.partitions
        ]
        await node.engine.offset_store.delete(group_id, ats)
    except LevadaError as error:
        return {"error_code": group_code(call, error)}
    codes = dict(zip(errors, group_codes(call, list(errors.values())), strict=True))
    return {
        "error_code": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": one.partition_index, "error_code": codes[topic.name]}
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _refusal(group_id: str, topic: str, call: Call) -> LevadaError | None:
    if call.node.engine.view.get(topic) is None:
        return UnknownTopic(f"there is no topic {topic!r}")
    if call.node.groups.is_subscribed(group_id, topic):
        return GroupSubscribed(f"members of group {group_id} read topic {topic!r}")
    return None
