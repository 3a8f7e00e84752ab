"""CreateTopics, versions 2–7.

- Partitions or replication factor −1 mean the defaults; one node has one replica, so a factor above 1 is refused.
- A manual assignment must name this node for every partition, counted from 0 without a gap.
- A topic created here routes keys by murmur2, as Kafka's clients do, unless it asks for something else.
- Each topic of the request succeeds or fails on its own; validate_only changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from levada.broker.topics import check_creatable
from levada.config import check_change, topic_config
from levada.engine.names import PARTITIONS_MAX
from levada.engine.port import TopicSpec
from levada.errors import (
    InvalidAssignment,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    LevadaError,
    TopicExists,
)
from levada.fronts.kafka.answers import OK, refused, repeated
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.describe_configs import topic_entries


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    twice = repeated(topic.name for topic in request.topics)
    answers: dict[str, Mapping[str, Any]] = {}
    for topic in request.topics:
        if topic.name in answers:
            continue
        try:
            if topic.name in twice:
                raise InvalidRequest(f"topic {topic.name!r} stands more than once in the request")
            answers[topic.name] = await _create(topic, call, validate_only=request.validate_only)
        except LevadaError as error:
            answers[topic.name] = {"name": topic.name, **refused(call, topic.name, error), **_NOTHING}
    return {"topics": list(answers.values())}


#: What of a setting's description goes into the answer; DescribeConfigs tells more.
_CONFIG_FIELDS: Final = ("name", "value", "read_only", "config_source", "is_sensitive")

#: What an answer says of a topic that was not made. Java clients take no null for configs.
_NOTHING: Mapping[str, Any] = {
    "topic_id": UUID(int=0),
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": [],
}


async def _create(topic: Any, call: Call, *, validate_only: bool) -> Mapping[str, Any]:
    engine = call.node.engine
    check_creatable(topic.name, exists=lambda name: engine.view.get(name) is not None)
    if engine.view.get(topic.name) is not None:
        raise TopicExists(f"topic {topic.name!r} already exists")
    spec = TopicSpec(name=topic.name, partitions=_partitions(topic, call), settings=_settings(topic))
    topic_config(spec.settings)
    check_change({}, spec.settings)
    topic_id = UUID(int=0) if validate_only else (await engine.create(spec)).id
    return {
        "name": topic.name,
        **OK,
        "topic_id": topic_id,
        "num_partitions": spec.partitions,
        "replication_factor": 1,
        "configs": [
            {field: entry[field] for field in _CONFIG_FIELDS} for entry in topic_entries(call.node, spec.settings)
        ],
    }


def _partitions(topic: Any, call: Call) -> int:
    if topic.assignments:
        return _assigned(topic, call.node.node_id)
    if topic.replication_factor not in (-1, 1):
        raise InvalidReplicationFactor(
            f"replication factor {topic.replication_factor}: must be 1, or -1 for the default; there is one broker"
        )
    if topic.num_partitions == -1:
        return call.node.settings.number("num.partitions")
    if not 1 <= topic.num_partitions <= PARTITIONS_MAX:
        raise InvalidPartitions(
            f"partitions {topic.num_partitions}: must be from 1 to {PARTITIONS_MAX}, or -1 for the default"
        )
    return int(topic.num_partitions)


def _assigned(topic: Any, node_id: int) -> int:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise InvalidRequest("with an assignment, num_partitions and replication_factor must both be -1")
    wanted = sorted(item.partition_index for item in topic.assignments)
    if wanted != list(range(len(wanted))):
        raise InvalidAssignment(f"assigned partitions {wanted}: must count from 0 without a gap")
    for item in topic.assignments:
        check_replicas(item.partition_index, item.broker_ids, node_id)
    return len(wanted)


def check_replicas(partition: int, broker_ids: Any, node_id: int) -> None:
    if list(broker_ids) != [node_id]:
        raise InvalidAssignment(f"partition {partition} assigned to {list(broker_ids)}: the only broker is {node_id}")


def _settings(topic: Any) -> dict[str, str]:
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"{config.name}: a null value is not allowed")
    names = repeated(config.name for config in topic.configs)
    if names:
        raise InvalidRequest(f"settings given more than once: {', '.join(sorted(names))}")
    return {config.name: config.value for config in topic.configs}
