"""ElectLeaders, versions 0–2. One node leads everything, so no partition ever needs an election."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.errors import LevadaError
from levada.fronts.kafka.answers import refused
from levada.fronts.kafka.call import Call

ELECTION_NOT_NEEDED = 84


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    # Null asks for every partition that needs an election: there is none.
    results = [
        {"topic": item.topic, "partition_result": [_result(item.topic, index, call) for index in item.partitions]}
        for item in request.topic_partitions or ()
    ]
    return {"error_code": 0, "replica_election_results": results}


def _result(topic: str, index: int, call: Call) -> Mapping[str, Any]:
    try:
        call.node.engine.partition(topic, index)
    except LevadaError as error:
        return {"partition_id": index, **refused(call, f"{topic}-{index}", error)}
    return {"partition_id": index, "error_code": ELECTION_NOT_NEEDED, "error_message": "this broker already leads it"}
