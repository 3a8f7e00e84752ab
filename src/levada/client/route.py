"""Where a topic's records go: what the topic's metadata say, as a client needs it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from levada.errors import UnknownPartition
from levada.routing import ROUTERS

if TYPE_CHECKING:
    from levada.v1 import stream_pb2

#: Not a partition: the broker's counter says where.
SPREAD: Final = -1
#: The broker's gRPC port takes no larger request; what it has besides its batch is less than the rest.
REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024
BATCH_BYTES_MAX: Final = REQUEST_BYTES_MAX - 4_096
#: As many keys are remembered with their partition: hashing one in Python costs a microsecond for ten bytes.
_KEYS_REMEMBERED: Final = 65_536


class Route:
    """The rules of one topic as they were when the broker was asked."""

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        partitions: int,
        router: str = "fnv1a64",
        keyless: str = "round_robin",
        max_message_bytes: int = 1_048_588,
        dedup: str = "off",
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = partitions
        self.router = router
        self.keyless = keyless
        self.max_message_bytes = max_message_bytes
        self.dedup = dedup
        #: No larger batch gets to the topic.
        self.batch_bytes_max = min(max_message_bytes, BATCH_BYTES_MAX)
        #: Where records without a key go.
        self.keyless_to = 0 if partitions == 1 or keyless == "zero" else SPREAD
        by_key = ROUTERS[router]

        @lru_cache(_KEYS_REMEMBERED)
        def of_key(key: bytes) -> int:
            return by_key(key, partitions)

        self.of_key = of_key

    @staticmethod
    def of(topic: stream_pb2.Topic) -> Route:
        return Route(
            topic.name,
            topic.id,
            topic.partitions,
            topic.router or "fnv1a64",
            topic.keyless or "round_robin",
            topic.max_message_bytes or 1_048_588,
            topic.dedup or "off",
        )

    def partition(self, key: bytes | None, chosen: int | None) -> int:
        """The one that was chosen, else by key, else by the rule for records without a key. UnknownPartition."""
        if chosen is not None:
            if not 0 <= chosen < self.partitions:
                raise UnknownPartition(f"topic {self.topic} has partitions 0 to {self.partitions - 1}, not {chosen}")
            return chosen
        return self.of_key(key) if key else self.keyless_to

    def same_as(self, other: Route) -> bool:
        """True where all rules are the same, so that what is remembered of keys holds."""
        return self._rules == other._rules

    @property
    def _rules(self) -> tuple[object, ...]:
        return self.topic_id, self.partitions, self.router, self.keyless, self.max_message_bytes, self.dedup
