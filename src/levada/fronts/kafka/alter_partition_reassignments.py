"""AlterPartitionReassignments, versions 0–1. There is one node: a partition may be "moved" to where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.errors import LevadaError
from levada.fronts.kafka.answers import OK, refused
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.create_topics import check_replicas

NO_REASSIGNMENT_IN_PROGRESS = 85


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    responses = [
        {"name": topic.name, "partitions": [_answer(topic.name, item, call) for item in topic.partitions]}
        for topic in request.topics
    ]
    return {**OK, "responses": responses}


def _answer(topic: str, item: Any, call: Call) -> Mapping[str, Any]:
    index = item.partition_index
    try:
        call.node.engine.partition(topic, index)
        if item.replicas is None:
            message = f"no reassignment of {topic}-{index} is under way"
            return {"partition_index": index, "error_code": NO_REASSIGNMENT_IN_PROGRESS, "error_message": message}
        check_replicas(index, item.replicas, call.node.node_id)
        return {"partition_index": index, **OK}
    except LevadaError as error:
        return {"partition_index": index, **refused(call, f"{topic}-{index}", error)}
