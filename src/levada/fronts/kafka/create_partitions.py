"""CreatePartitions, versions 0–3.

- The count is the new total and must be above the current one, as Kafka has it (natively the same number is fine).
- A manual assignment must name this node once for each added partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.engine.names import PARTITIONS_MAX
from levada.errors import InvalidAssignment, InvalidPartitions, InvalidRequest, LevadaError, UnknownTopic
from levada.fronts.kafka.answers import OK, refused, repeated
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.create_topics import check_replicas


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    twice = repeated(topic.name for topic in request.topics)
    answers: dict[str, Mapping[str, Any]] = {}
    for topic in request.topics:
        try:
            if topic.name in twice:
                raise InvalidRequest(f"topic {topic.name!r} stands more than once in the request")
            _check(topic, call)
            if not request.validate_only:
                await call.node.engine.expand(topic.name, topic.count)
            answers[topic.name] = {"name": topic.name, **OK}
        except LevadaError as error:
            answers[topic.name] = {"name": topic.name, **refused(call, topic.name, error)}
    return {"results": list(answers.values())}


def _check(topic: Any, call: Call) -> None:
    info = call.node.engine.view.get(topic.name)
    if info is None:
        raise UnknownTopic(f"there is no topic {topic.name!r}")
    if not info.partitions < topic.count <= PARTITIONS_MAX:
        raise InvalidPartitions(
            f"topic {topic.name!r} has {info.partitions} partitions; ask for {info.partitions + 1} to {PARTITIONS_MAX}, not {topic.count}"
        )
    if topic.assignments is None:
        return
    if len(topic.assignments) != topic.count - info.partitions:
        raise InvalidAssignment(
            f"{len(topic.assignments)} assignments for {topic.count - info.partitions} added partitions"
        )
    for partition, assignment in enumerate(topic.assignments, info.partitions):
        check_replicas(partition, assignment.broker_ids, call.node.node_id)
