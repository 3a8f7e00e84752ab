"""The round-robin counter of each topic: keyless record after keyless record goes to the next partition, whoever publishes it.

The counter is the broker's, so the spread is exactly even over all native publishers. It goes on after a clean stop. After
kill −9 it goes on beyond what had been reserved ahead, so no stretch is handed out twice: what is reserved is durable
before it is used. It is kept as the offset of the group `__levada.keyless` in partition 0 of the topic, so it goes with
the topic, and on every engine.
"""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import UUID

from levada.engine.names import KEYLESS_GROUP
from levada.engine.port import At, Committed, Engine, TopicView
from levada.errors import InvalidRequest, UnknownTopic

GROUP: Final = KEYLESS_GROUP
#: How much is reserved ahead: one durable write for so many records.
STRETCH: Final = 65_536


class _Counter:
    """Of one topic: the next value, and up to where values may be handed out."""

    __slots__ = ("lock", "next", "reserved", "topic_id")

    def __init__(self, topic_id: UUID) -> None:
        self.topic_id = topic_id
        self.next = 0
        self.reserved = -1
        self.lock = asyncio.Lock()


class Spread:
    """Hands out stretches of the topics' counters."""

    def __init__(self, engine: Engine, view: TopicView) -> None:
        self._engine = engine
        self._view = view
        self._counters: dict[str, _Counter] = {}

    async def take(self, topic: str, count: int) -> int:
        """The first of `count` values of the topic's counter; value % partitions is where a record goes. UnknownTopic."""
        if count < 1:
            raise InvalidRequest(f"topic {topic}: {count} places of the counter were asked for; at least 1")
        counter = self._counter(topic)
        if counter.next + count > counter.reserved:
            async with counter.lock:
                await self._reserve(topic, counter, count)
                return _advance(counter, count)
        return _advance(counter, count)

    def _counter(self, topic: str) -> _Counter:
        info = self._view.get(topic)
        if info is None:
            self._counters.pop(topic, None)
            raise UnknownTopic(f"there is no topic {topic}")
        counter = self._counters.get(topic)
        if counter is None or counter.topic_id != info.id:
            counter = self._counters[topic] = _Counter(info.id)
        return counter

    async def _reserve(self, topic: str, counter: _Counter, count: int) -> None:
        """Have `count` values to hand out. The one before us in the lock may have reserved enough, or handed out much."""
        at = At(topic, 0)
        if counter.reserved < 0:
            kept = (await self._engine.offsets(GROUP)).get(at)
            counter.next = counter.reserved = kept.offset if kept is not None else 0
        while counter.next + count > counter.reserved:
            reserved = counter.next + count + STRETCH
            await self._engine.commit_offsets(GROUP, {at: Committed(reserved)})
            counter.reserved = reserved

    async def close(self) -> None:
        """Write down where the counters stand, so that the next start goes on there."""
        standing = {
            At(topic, 0): Committed(counter.next)
            for topic, counter in self._counters.items()
            if counter.reserved >= 0 and self._still_there(topic, counter)
        }
        if standing:
            await self._engine.commit_offsets(GROUP, standing)
        self._counters.clear()

    def _still_there(self, topic: str, counter: _Counter) -> bool:
        info = self._view.get(topic)
        return info is not None and info.id == counter.topic_id


def _advance(counter: _Counter, count: int) -> int:
    first = counter.next
    counter.next += count
    return first
