"""The engine port: what the rules stand on.

Two sides stand behind it: `embedded` (this process keeps the log on its own disk) and, later, `kafka` (a Kafka cluster
does). What a Kafka cluster cannot promise is not here: conditional append, a chosen fsync level, dense offsets.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from levada.log.results import Aborted as Aborted
from levada.log.results import Appended as Appended
from levada.log.results import Found as Found


class At(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Acks(enum.IntEnum):
    """When an append is answered: once received, or once it is as durable as the topic's policy says."""

    NONE = 0
    LEADER = 1
    ALL = -1


class Isolation(enum.IntEnum):
    """What a reader sees of open and aborted transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Bounds(NamedTuple):
    """start ≤ stable_end ≤ end: the first offset held, the end of what read_committed sees, the end of what is visible."""

    start: int
    stable_end: int
    end: int


class Slice(NamedTuple):
    """Whole batches from one partition. The first may begin below the offset asked for: readers skip within it."""

    batches: bytes | bytearray | memoryview
    bounds: Bounds
    aborted: Sequence[Aborted] = ()


class Committed(NamedTuple):
    """A group's place in a partition: the next offset to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1


#: The nodes that are to hold each partition of a topic, its leader first.
Placement = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic to be made. There are never more copies than nodes."""

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic that exists. `settings` holds what was set on the topic itself, not the defaults.

    `placement` is empty for a topic that was made without a plan.
    """

    name: str
    id: UUID
    partitions: int
    settings: Mapping[str, str]
    internal: bool = False
    placement: Placement = ()


class TopicView(Protocol):
    """All topics as they are now: a live view, not a copy. `version` grows with every change."""

    version: int

    def get(self, name: str) -> TopicInfo | None: ...

    def by_id(self, topic_id: UUID) -> TopicInfo | None: ...

    def all(self) -> Sequence[TopicInfo]:
        """Sorted by name."""
        ...

    async def changed(self, since: int) -> int:
        """Wait until `version` is above `since`; return it."""
        ...


class Write(NamedTuple):
    """One batch of a transaction, record batch v2 with no producer fields set."""

    at: At
    batch: bytes


class Owner(Protocol):
    """Whoever keeps the state of a shard. Every transact() by an owner that was replaced raises Fenced."""

    shard: str
    epoch: int


@runtime_checkable
class Engine(Protocol):
    """Topics, append, read, offsets and transactions. Refusals are `levada.errors`; a refusal changes nothing."""

    async def topics(self) -> TopicView: ...

    async def create(self, spec: TopicSpec) -> TopicInfo:
        """Durable when it returns. TopicExists, InvalidTopicName, InvalidPartitions, InvalidReplicationFactor, InvalidConfig."""
        ...

    async def expand(self, name: str, partitions: int) -> TopicInfo:
        """Add partitions up to this many; existing ones are untouched. PartitionsCannotShrink."""
        ...

    async def alter(self, name: str, settings: Mapping[str, str | None]) -> TopicInfo:
        """Set, or with None unset, settings of the topic. All or none."""
        ...

    async def delete(self, name: str) -> None: ...

    async def append(self, at: At, batch: bytes | bytearray | memoryview, acks: Acks = Acks.ALL) -> Appended: ...

    async def transact(
        self, owner: Owner, writes: Sequence[Write], offsets: Mapping[str, Mapping[At, Committed]] | None = None
    ) -> list[Appended]:
        """All or nothing in one call: batches, and offsets by group. Fenced when the owner was replaced."""
        ...

    async def read(
        self,
        at: At,
        offset: int,
        max_bytes: int,
        wait_ms: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Slice:
        """Whole batches from `offset` on, at least one where there is one; waits up to wait_ms for the first."""
        ...

    async def bounds(self, at: At) -> Bounds: ...

    async def offset_at(self, at: At, timestamp_ms: int) -> Found | None: ...

    async def trim(self, at: At, before: int) -> int:
        """Delete records below `before`; return the new start offset."""
        ...

    async def offsets(self, group: str) -> Mapping[At, Committed]: ...

    async def commit_offsets(self, group: str, offsets: Mapping[At, Committed]) -> None:
        """Durable when it returns."""
        ...

    def own(self, shard: str) -> AbstractAsyncContextManager[Owner]: ...
