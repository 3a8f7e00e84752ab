"""OffsetForLeaderEpoch, versions 2–4: where a leader epoch ended, so that a client finds out what a crash took back.

An epoch that has no records is answered with the largest one below it; one that cannot be placed with −1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.errors import LevadaError
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import code_of
from levada.fronts.kafka.leader_epoch import check_epoch


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [_end(topic.topic, each, call) for each in topic.partitions]}
            for topic in request.topics
        ]
    }


def _end(topic: str, asked: Any, call: Call) -> dict[str, Any]:
    try:
        partition = call.node.engine.partition(topic, asked.partition)
        check_epoch(partition, asked.current_leader_epoch)
        epoch, end_offset = partition.log.epochs.end_offset_for(asked.leader_epoch, partition.log_end)
    except LevadaError as error:
        notice.refused(call, "OffsetForLeaderEpoch", error)
        return {"partition": asked.partition, "error_code": code_of(error)}
    return {"partition": asked.partition, "leader_epoch": epoch, "end_offset": end_offset}
