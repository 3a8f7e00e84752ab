"""A topic that remembers messages, and which memory is its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from levada.config import MiB, TopicConfig
from levada.records.compression import UNPACKED_BYTES_MAX

if TYPE_CHECKING:
    from levada.broker.dedup.memory import Memory
    from levada.broker.dedup.places import Place

OFF: Final = "off"
#: Stands for what topics share; no topic has this name.
SHARED: Final = "*"


class Counts(NamedTuple):
    """Of one topic: repeats that were not stored, messages forgotten because the window had passed, messages remembered, and messages
    forgotten before that because too many had come."""

    topic: str
    dropped: int
    swept: int
    entries: int
    evicted: int = 0


class Key(NamedTuple):
    """Which memory: of one topic, or, with None, of all topics that share one; and by what messages are told."""

    topic_id: UUID | None
    by_id: bool

    @classmethod
    def of(cls, topic_id: UUID, config: TopicConfig) -> Key:
        return cls(topic_id if config.dedup_scope == "topic" else None, config.dedup == "id")


class Topic:
    """A topic whose memory is at hand."""

    __slots__ = ("config", "key", "memory", "name", "places", "ready", "topic_id", "unpacked_bytes_max")

    def __init__(self, name: str, topic_id: UUID, config: TopicConfig, memory: Memory) -> None:
        self.name = name
        self.topic_id = topic_id
        self.key = Key.of(topic_id, config)
        self.memory = memory
        self.places: dict[int, Place] = {}
        #: True once all topics that share its memory have been read.
        self.ready = False
        self.take(config)

    def take(self, config: TopicConfig) -> None:
        self.config = config
        self.unpacked_bytes_max = min(max(16 * MiB, 32 * config.max_message_bytes), UNPACKED_BYTES_MAX)
