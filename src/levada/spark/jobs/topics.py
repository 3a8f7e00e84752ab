"""The topics of a job: what must be known of the source, and making a target like it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from levada.config import TOPIC_SETTINGS
from levada.engine.names import check_name, check_partitions
from levada.errors import BrokerRefused, InvalidRequest, UnknownTopic, nearest
from levada.spark.sink.targets import look_up
from levada.wire.answers import EARLIEST, LATEST, TopicPartition
from levada.wire.blocking import BlockingClient

#: Whose value is the topic's own, as DescribeConfigs counts them.
_SET: Final = 1
_OWN: Final = "levada."
_ROUTER: Final = "levada.router"
#: Names a place that belongs to one topic only.
_ARCHIVE: Final = "levada.archive"

#: What a target has while it is filled, whatever the source has: nothing may be removed from it, refused or stamped anew before it is whole.
HELD: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": TOPIC_SETTINGS["message.timestamp.before.max.ms"].default,
    "message.timestamp.after.max.ms": TOPIC_SETTINGS["message.timestamp.before.max.ms"].default,
    "levada.dedup": "off",
}


class Topic(NamedTuple):
    """A topic. `settings` are all values by name, `own` those that are set on the topic itself."""

    name: str
    id: UUID
    partitions: int
    router: str
    keyless: str
    settings: Mapping[str, str]
    own: Mapping[str, str]

    def setting(self, name: str) -> str:
        """Also of a broker that does not have it: the default."""
        return self.settings.get(name, TOPIC_SETTINGS[name].default)

    @property
    def is_levadas(self) -> bool:
        """Apache Kafka does not know our settings."""
        return _ROUTER in self.settings


def find(client: BlockingClient, name: str) -> Topic | None:
    """None where there is no such topic."""
    check_name(name)
    # A topic that is asked for by its name is waited for, as one that was just made.
    return _looked_up(client, name) if name in client.topics() else None


def _looked_up(client: BlockingClient, name: str) -> Topic:
    info = client.topics([name])[name]
    entries = client.describe_configs(name)
    target = look_up(client, name)
    return Topic(
        name,
        info.topic_id,
        len(info.partitions),
        target.router,
        target.keyless,
        {entry.name: entry.value for entry in entries.values() if entry.value is not None},
        {entry.name: entry.value for entry in entries.values() if entry.source == _SET and entry.value is not None},
    )


def need(client: BlockingClient, name: str) -> Topic:
    """UnknownTopic, with the name that was meant, perhaps."""
    found = find(client, name)
    if found is None:
        known = [topic for topic, one in client.topics().items() if not one.is_internal]
        raise UnknownTopic(f"there is no topic {name!r}{nearest(name, known)}")
    return found


def make(
    client: BlockingClient, name: str, like: Topic, partitions: int, settings: Mapping[str, str] | None = None
) -> Topic:
    """A topic with the settings of another one and with these; its archive is not taken over."""
    check_partitions(name, partitions)
    wanted = {key: value for key, value in like.own.items() if not key.startswith(_ARCHIVE)}
    if like.is_levadas:
        wanted[_ROUTER] = like.router
    wanted |= settings or {}
    if not like.is_levadas:
        wanted = {key: value for key, value in wanted.items() if not key.startswith(_OWN)}
    client.create_topic(name, partitions, configs=wanted)
    return _looked_up(client, name)


def _held(target: Topic) -> dict[str, str]:
    """What of `HELD` its broker knows."""
    return {name: value for name, value in HELD.items() if target.is_levadas or not name.startswith(_OWN)}


def is_held(target: Topic) -> bool:
    """Whether all that was written to it is still there, as far as its settings tell."""
    return all(target.settings.get(name, value) == value for name, value in _held(target).items())


def hold(client: BlockingClient, target: Topic) -> Topic:
    """A topic that is there and empty, as a target that is to be filled."""
    client.alter_configs(target.name, _held(target))
    return _looked_up(client, target.name)


def release(client: BlockingClient, target: Topic, source: Topic) -> None:
    """Give a target that is whole the source's settings, in place of those it was filled with."""
    wanted = {name: source.own.get(name) for name in _held(target)}
    changes = {name: value for name, value in wanted.items() if target.own.get(name) != value}
    if changes:
        client.alter_configs(target.name, changes)


def other_than(source: str, target: str | None, option: str) -> None:
    """InvalidRequest where a job would write to what it reads."""
    if source == target:
        raise InvalidRequest(f"{option} {target}: it is the source itself; name another topic")


def has_records(client: BlockingClient, topic: Topic) -> bool:
    """Whether anything was ever written to it."""
    at = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
    ends = client.list_offsets(dict.fromkeys(at, LATEST))
    return any(place.offset > 0 for place in ends.values())


def record_bytes(client: BlockingClient, topic: Topic) -> int | None:
    """About how large its records are, as they lie on disk; None where the cluster does not say."""
    from levada.wire.apis import ApiKey

    held = {"topic": topic.name, "partitions": list(range(topic.partitions))}
    sizes: dict[int, int] = {}
    try:
        for node in client.describe_cluster().brokers:
            answer = client.request(ApiKey.DESCRIBE_LOG_DIRS, {"topics": [held]}, node=node)
            for directory in answer.results:
                for one in (one for found in directory.topics for one in found.partitions):
                    sizes[one.partition_index] = max(sizes.get(one.partition_index, 0), one.partition_size)
    except BrokerRefused:
        return None
    at = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
    starts = client.list_offsets(dict.fromkeys(at, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(at, LATEST))
    records = sum(ends[one].offset - starts[one].offset for one in at)
    return -(-sum(sizes.values()) // records) if records and sizes else None
