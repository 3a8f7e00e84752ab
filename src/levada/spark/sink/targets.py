"""What must be known of a topic to write to it: how many partitions, which router, how large a batch, in which codec.

The router is the topic's `levada.router`. A broker that does not know this setting is Apache Kafka; there Levada's settings of a topic lie in
the compacted topic `__levada.topics`, and a topic that is not in it has `murmur2`, as all of Kafka's clients.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from levada.config import TOPIC_SETTINGS
from levada.engine.names import TOPICS
from levada.errors import BrokerRefused, UnknownTopic, nearest
from levada.records.read import read_all
from levada.wire.answers import EARLIEST, READ_COMMITTED
from levada.wire.blocking import BlockingClient
from levada.wire.codes import ErrorCode

_SIZE: Final = "max.message.bytes"
_CODEC: Final = "compression.type"
_ROUTER: Final = "levada.router"
_KEYLESS: Final = "levada.keyless"
_KAFKAS_ROUTER: Final = "murmur2"
_OWN_CODECS: Final = ("gzip", "snappy", "lz4", "zstd")


class Target(NamedTuple):
    """A topic, as far as writing to it goes."""

    topic: str
    partitions: int
    router: str = _KAFKAS_ROUTER
    keyless: str = "round_robin"
    bytes_max: int = int(TOPIC_SETTINGS[_SIZE].default)
    #: What the topic stores its batches in; None: as they come.
    codec: str | None = None


class Targets:
    """The topics a task writes to, each looked up once."""

    def __init__(self, client: BlockingClient, known: Target | None = None) -> None:
        self._client = client
        self._known: dict[str, Target] = {known.topic: known} if known is not None else {}

    def of(self, topic: str) -> Target:
        """UnknownTopic."""
        found = self._known.get(topic)
        if found is None:
            found = self._known[topic] = look_up(self._client, topic)
        return found


def look_up(client: BlockingClient, topic: str) -> Target:
    """Ask for a topic. UnknownTopic with the name that was meant, perhaps; ClientError."""
    try:
        info = client.topics([topic])[topic]
    except BrokerRefused as refusal:
        if refusal.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise
        known = [name for name, one in client.topics().items() if not one.is_internal]
        raise UnknownTopic(f"there is no topic {topic!r} to write to{nearest(topic, known)}") from None
    keys = (_SIZE, _CODEC, _ROUTER, _KEYLESS)
    settings: dict[str, str] = {
        name: entry.value
        for name, entry in client.describe_configs(topic, keys=keys).items()
        if name in keys and entry.value is not None
    }
    if _ROUTER not in settings:
        settings |= kept_settings(client, topic)
    codec = settings.get(_CODEC)
    return Target(
        topic,
        len(info.partitions),
        settings.get(_ROUTER, _KAFKAS_ROUTER),
        settings.get(_KEYLESS, "round_robin"),
        int(settings.get(_SIZE, TOPIC_SETTINGS[_SIZE].default)),
        codec if codec in _OWN_CODECS else None,
    )


def kept_settings(client: BlockingClient, topic: str) -> dict[str, str]:
    """Levada's settings of a topic on an Apache Kafka: the latest record under its name in `__levada.topics`, where there is one."""
    try:
        client.topics([TOPICS], settle=False)
    except BrokerRefused as refusal:
        if refusal.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return {}
        raise
    at = (TOPICS, 0)
    ((_, begin),) = client.list_offsets({at: EARLIEST}).items()
    position, found = begin.offset, b"{}"
    while True:
        ((_, piece),) = client.fetch({at: position}, max_wait_ms=0, isolation=READ_COMMITTED).items()
        for record in read_all(piece.records, from_offset=position, aborted=piece.aborted or (), committed_only=True):
            position = record.offset + 1
            if record.key == topic.encode():
                found = record.value or b"{}"
        if not piece.records or position >= piece.last_stable_offset:
            return {name: str(value) for name, value in json.loads(found).get("settings", {}).items()}
