"""Partitions as requests and answers have them: grouped by topic, named by the topic's name or id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from levada.wire.answers import ByPartition, TopicPartition
from levada.wire.cluster import Cluster
from levada.wire.codec import Message
from levada.wire.schema import ZERO_UUID

V = TypeVar("V")


def keyed(values: ByPartition[V]) -> dict[TopicPartition, V]:
    """The same under our own kind of key."""
    return {TopicPartition(*at): value for at, value in values.items()}


def by_topic(values: Mapping[TopicPartition, V]) -> list[tuple[str, list[tuple[int, V]]]]:
    """(topic, its partitions' (index, value))"""
    topics: dict[str, list[tuple[int, V]]] = {}
    for at, value in values.items():
        topics.setdefault(at.topic, []).append((at.partition, value))
    return list(topics.items())


def topic_rows(
    partitions: Iterable[TopicPartition], row: Callable[[TopicPartition], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What most requests call `topics`: each with its name and a row per partition."""
    rows = by_topic({at: row(at) for at in partitions})
    return [{"name": topic, "partitions": [fields for _, fields in held]} for topic, held in rows]


def partitions_of(answer: Message) -> Iterator[tuple[TopicPartition, Message]]:
    """The rows of an answer of that form."""
    for topic in answer.topics:
        for one in topic.partitions:
            yield TopicPartition(topic.name, one.partition_index), one


def have_ids(topics: Iterable[tuple[str, object]], cluster: Cluster) -> bool:
    """Whether the id of each of these topics is known, so that versions that name topics by id can be spoken."""
    return all(cluster.topic_id(name) != ZERO_UUID for name, _ in topics)


def named(topics: Sequence[tuple[str, V]], cluster: Cluster, by_id: bool) -> list[tuple[str | UUID, V]]:
    """The topics by their id, or still by their name."""
    return [(cluster.topic_id(name) if by_id else name, held) for name, held in topics]
