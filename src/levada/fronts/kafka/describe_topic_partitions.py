"""DescribeTopicPartitions, version 0: topics in the order of their names, some partitions at a time.

- No topics in the request means all. Topics are never made here.
- At most `response_partition_limit` partitions, and never more than 2,000, are in one answer; `next_cursor` says where the
  next one begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from levada.engine.names import check_name
from levada.errors import InvalidRequest, LevadaError, UnknownTopic
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import NONE, code_of
from levada.fronts.kafka.metadata import TOPIC_OPERATIONS

_PARTITIONS_MAX: Final = 2000


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    view = call.node.engine.view
    names = sorted({topic.name for topic in request.topics} or {info.name for info in view.all()})
    cursor = request.cursor
    first = 0
    if cursor is not None:
        if cursor.partition_index < 0:
            raise InvalidRequest(f"the cursor's partition is {cursor.partition_index}; it must not be negative")
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first = cursor.partition_index
    room = max(1, min(request.response_partition_limit, _PARTITIONS_MAX))
    topics: list[Mapping[str, Any]] = []
    for name in names:
        if room == 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        try:
            topic, count = _described(name, first, room, call)
        except LevadaError as error:
            topics.append({"error_code": code_of(error), "name": name, "topic_id": UUID(int=0), "partitions": []})
            continue
        topics.append(topic)
        after = first + len(topic["partitions"])
        if after < count:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": after}}
        room -= len(topic["partitions"])
        first = 0
    return {"topics": topics, "next_cursor": None}


def _described(name: str, first: int, room: int, call: Call) -> tuple[dict[str, Any], int]:
    """The topic with at most `room` of its partitions from `first` on, and how many it has."""
    check_name(name)
    info = call.node.engine.view.get(name)
    if info is None:
        raise UnknownTopic(f"there is no topic {name!r}")
    indexes = range(min(first, info.partitions), min(first + room, info.partitions))
    topic = {
        "error_code": NONE,
        "name": info.name,
        "topic_id": info.id,
        "is_internal": info.internal,
        "partitions": [_partition(index, call) for index in indexes],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }
    return topic, info.partitions


def _partition(index: int, call: Call) -> dict[str, Any]:
    node_id = call.node.node_id
    return {
        "error_code": NONE,
        "partition_index": index,
        "leader_id": node_id,
        "leader_epoch": call.node.engine.broker_epoch,
        "replica_nodes": [node_id],
        "isr_nodes": [node_id],
        # Java clients take no null here.
        "eligible_leader_replicas": [],
        "last_known_elr": [],
    }
