"""Which partitions a read is of, as the cluster has them now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from levada.errors import BrokerRefused, nearest
from levada.spark.options.reading import WrongOption
from levada.spark.options.topics import Assign, Subscribe, SubscribePattern, Topics
from levada.wire.answers import TopicInfo, TopicPartition
from levada.wire.blocking import BlockingClient
from levada.wire.codes import ErrorCode
from levada.wire.schema import ZERO_UUID


class Found(NamedTuple):
    """The partitions that are there, and the ids of their topics: a topic made again under its name has another one."""

    partitions: tuple[TopicPartition, ...]
    #: Without those of brokers that give none.
    ids: Mapping[str, str]


def found(client: BlockingClient, wanted: Topics) -> Found:
    """What is there of it. What is not is left out: see `all_found`."""
    match wanted:
        case Subscribe(names):
            topics = _existing(client, names)
            partitions = [at for name in names if name in topics for at in _all(topics[name])]
        case SubscribePattern():
            topics = {name: one for name, one in client.topics().items() if _is_users(one) and wanted.matches(name)}
            partitions = [at for name in sorted(topics) for at in _all(topics[name])]
        case Assign(ats):
            topics = _existing(client, {at.topic for at in ats})
            there = {at for one in topics.values() for at in _all(one)}
            partitions = [at for at in ats if at in there]
    ids = {name: str(one.topic_id) for name, one in topics.items() if one.topic_id != ZERO_UUID}
    return Found(tuple(partitions), ids)


def all_found(client: BlockingClient, wanted: Topics) -> Found:
    """What is there, if all is that is named. WrongOption."""
    there = found(client, wanted)
    match wanted:
        case Subscribe(names):
            topics = {at.topic for at in there.partitions}
            for name in names:
                if name not in topics:
                    raise WrongOption("subscribe", name, f"{_whose(client)}{nearest(name, client.topics())}")
        case SubscribePattern(pattern) if not there.partitions:
            raise WrongOption("subscribePattern", pattern, f"it matches none of the {_whose(client)}")
        case Assign(ats):
            for at in ats:
                if at not in there.partitions:
                    raise WrongOption(
                        "assign", str(at), f"a partition is needed that is there{_partitions(client, at)}"
                    )
    return there


def _existing(client: BlockingClient, names: Collection[str]) -> Mapping[str, TopicInfo]:
    try:
        return client.topics(names)
    except BrokerRefused as error:
        if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise
        return {name: one for name, one in client.topics().items() if name in names}


def _all(topic: TopicInfo) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, one.partition) for one in topic.partitions)


def _is_users(topic: TopicInfo) -> bool:
    return not topic.is_internal and not topic.name.startswith("__")


def _whose(client: BlockingClient) -> str:
    where = ",".join(f"{host}:{port}" for host, port in client.cluster.bootstrap.values())
    return f"topics of the broker at {where}"


def _partitions(client: BlockingClient, at: TopicPartition) -> str:
    topic = client.topics().get(at.topic)
    if topic is None:
        return f", and there is no topic {at.topic} among the {_whose(client)}{nearest(at.topic, client.topics())}"
    return f": {at.topic} has {len(topic.partitions)}, from 0 on"
