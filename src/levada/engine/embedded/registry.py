"""Which topics there are: the compacted topic `__levada.topics`, and what it says right now.

One record per topic: key = name, value = JSON, no value = deleted:

    {"id": "<uuid>", "partitions": 4, "settings": {"retention.ms": "1000"}, "created_ms": 1700000000000,
     "placement": [["n1", "n2"], ["n2", "n1"], …]}

A topic that was made without a plan has no `placement`.
Keys with a "/" are no topic's: they are other things that all of the broker depends on (broker_settings.py).
`__levada.topics` itself is not among its records. It always has one partition, and its id follows from the cluster's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID, uuid5

from levada.config import MiB
from levada.engine.names import TOPICS, TRANSACTION_STATE, is_internal
from levada.engine.port import TopicInfo
from levada.errors import StorageFailed

_NAMESPACE: Final = UUID("8d6f2a63-0f0c-4b1d-9a2e-6c65766164a1")

#: Settings of internal topics: small segments, so that compaction, which leaves the active one alone, keeps them short.
INTERNAL_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(16 * MiB),
    "max.message.bytes": str(64 * MiB),
}
_SYNCED: Final = {"levada.durability": "fsync"}


def internal_settings(name: str) -> dict[str, str]:
    """What an internal topic is made with. Only committed offsets follow the broker's default durability."""
    return {**INTERNAL_SETTINGS, **fixed_settings(name)}


def fixed_settings(name: str) -> dict[str, str]:
    """What nobody may change: a lost record of a topic takes the topic along, one of a transaction half of its records."""
    return _SYNCED if name in (TOPICS, TRANSACTION_STATE) else {}


def registry_topic(cluster_id: str) -> TopicInfo:
    """The topic that holds all others. Nothing records it, so nothing can lose it."""
    topic_id = uuid5(_NAMESPACE, f"{cluster_id}/{TOPICS}")
    return TopicInfo(name=TOPICS, id=topic_id, partitions=1, settings=internal_settings(TOPICS), internal=True)


def encode(info: TopicInfo, created_ms: int) -> tuple[bytes, bytes]:
    """The record of a topic, as (key, value)."""
    value: dict[str, object] = {
        "id": str(info.id),
        "partitions": info.partitions,
        "settings": dict(info.settings),
        "created_ms": created_ms,
    }
    if info.placement:
        value["placement"] = info.placement
    return info.name.encode(), json.dumps(value, separators=(",", ":")).encode()


def tombstone(name: str) -> tuple[bytes, None]:
    """The record that says there is no such topic any more."""
    return name.encode(), None


def decode(key: bytes, value: bytes) -> tuple[TopicInfo, int]:
    """A record's topic and when it was made. Unknown fields are left alone: a newer version may have written them."""
    try:
        name, fields = key.decode(), json.loads(value)
        info = TopicInfo(
            name=name,
            id=UUID(fields["id"]),
            partitions=int(fields["partitions"]),
            settings={str(key): str(setting) for key, setting in fields["settings"].items()} | fixed_settings(name),
            internal=is_internal(name),
            placement=tuple(tuple(map(str, replicas)) for replicas in fields.get("placement", ())),
        )
        return info, int(fields["created_ms"])
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise StorageFailed(f"{TOPICS}: the record of topic {key!r} cannot be read: {reason}") from reason


class Registry:
    """All topics as they are now; the engine's TopicView. Changed only by `put` and `remove`, once a change is durable."""

    def __init__(self, own: TopicInfo) -> None:
        self.version = 0
        #: Records that are no topic's, by key.
        self.others: dict[str, bytes] = {}
        #: Ids of topics that were deleted, and whose files may still be there.
        self.deleted: set[UUID] = set()
        self._topics: dict[str, TopicInfo] = {own.name: own}
        self._by_id: dict[UUID, TopicInfo] = {own.id: own}
        self._created_ms: dict[str, int] = {}
        self._sorted: Sequence[TopicInfo] | None = None
        self._changed: list[asyncio.Future[int]] = []

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def by_id(self, topic_id: UUID) -> TopicInfo | None:
        return self._by_id.get(topic_id)

    def all(self) -> Sequence[TopicInfo]:
        """Sorted by name. The same list until something changes: it is not to be written to."""
        if self._sorted is None:
            self._sorted = tuple(self._topics[name] for name in sorted(self._topics))
        return self._sorted

    def created_ms(self, name: str) -> int:
        return self._created_ms.get(name, -1)

    async def changed(self, since: int) -> int:
        """Wait until `version` is above `since`; return it."""
        if self.version > since:
            return self.version
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._changed.append(future)
        try:
            return await future
        finally:
            if future in self._changed:
                self._changed.remove(future)

    def put(self, info: TopicInfo, created_ms: int) -> None:
        """The topic exists, as given, in place of what was known of this name."""
        before = self._topics.get(info.name)
        if before is not None and before.id != info.id:
            del self._by_id[before.id]
        self._topics[info.name] = self._by_id[info.id] = info
        self._created_ms[info.name] = created_ms
        self._moved()

    def remove(self, name: str) -> None:
        """There is no such topic any more."""
        info = self._topics.pop(name, None)
        if info is not None:
            self.deleted.add(info.id)
            del self._by_id[info.id]
            del self._created_ms[name]
            self._moved()

    def load(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Take what the topic says, in order."""
        for key, value in records:
            if b"/" in key:
                self._load_other(key.decode(), value)
            elif value is None:
                self.remove(key.decode())
            else:
                self.put(*decode(key, value))

    def _load_other(self, key: str, value: bytes | None) -> None:
        if value is None:
            self.others.pop(key, None)
        else:
            self.others[key] = value

    def _moved(self) -> None:
        self.version += 1
        self._sorted = None
        waiting, self._changed = self._changed, []
        for future in waiting:
            if not future.done():
                future.set_result(self.version)


def with_settings(info: TopicInfo, changes: Mapping[str, str | None]) -> TopicInfo:
    """The topic with settings set or, where None, unset."""
    settings = {**info.settings, **{name: value for name, value in changes.items() if value is not None}}
    return replace(
        info, settings={name: value for name, value in settings.items() if changes.get(name, "") is not None}
    )
