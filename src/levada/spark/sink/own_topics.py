"""The sink's own topics: made when they are first needed, on Levada and on Apache Kafka alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from levada.config import HOUR_MS, MINUTE_MS, SECOND_MS, MiB
from levada.errors import BrokerRefused
from levada.wire.apis import ApiKey
from levada.wire.blocking import BlockingClient
from levada.wire.codes import ErrorCode

OWN_PREFIX: Final = "levada."


class OwnTopic(NamedTuple):
    """A topic and how it is made. On Apache Kafka the settings that only Levada knows are left out."""

    name: str
    partitions: int
    settings: Mapping[str, str]


#: What waits for its transaction. It may be lost with the power, since a commit then fails and Spark writes it anew; who was written for
#: frees it, and retention frees what nobody came back for.
STAGE: Final = OwnTopic(
    "__levada.stage",
    8,
    {
        "cleanup.policy": "delete",
        "retention.ms": str(6 * HOUR_MS),
        "segment.ms": str(10 * MINUTE_MS),
        "segment.bytes": str(128 * MiB),
        "file.delete.delay.ms": str(SECOND_MS),
        "max.message.bytes": str(64 * MiB),
        "compression.type": "producer",
        "levada.durability": "os",
    },
)
#: The last batch of each sink. Small segments, so that compaction, which leaves the active one alone, keeps it short.
SINKS: Final = OwnTopic(
    "__levada.sinks",
    8,
    {
        "cleanup.policy": "compact",
        "segment.bytes": str(MiB),
        "min.cleanable.dirty.ratio": "0.1",
        "compression.type": "producer",
        "levada.durability": "fsync",
    },
)


def have(client: BlockingClient, topic: OwnTopic) -> int:
    """Make the topic unless it is there; how many partitions it has."""
    known = client.cluster.topics.get(topic.name)
    if known is None:
        if not exists(client, topic.name):
            _make(client, topic)
        known = client.topics([topic.name])[topic.name]
    return len(known.partitions)


def exists(client: BlockingClient, name: str) -> bool:
    """Asked once: `client.topics` would wait a while for a topic that is not there."""
    fields = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    answer = client.request(ApiKey.METADATA, fields, repeatable=True)
    return not any(topic.error_code for topic in answer.topics)


def _make(client: BlockingClient, topic: OwnTopic) -> None:
    settings = dict(topic.settings)
    try:
        _create(client, topic, settings)
    except BrokerRefused as refusal:
        if refusal.code != ErrorCode.INVALID_CONFIG:
            raise
        _create(client, topic, {name: value for name, value in settings.items() if not name.startswith(OWN_PREFIX)})


def _create(client: BlockingClient, topic: OwnTopic, settings: Mapping[str, str]) -> None:
    try:
        client.create_topic(topic.name, topic.partitions, configs=settings)
    except BrokerRefused as refusal:
        if refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another task was faster
            raise
