"""What the clients take and give: small named tuples under Kafka's names.

A partition is (topic, index) everywhere; any such tuple will do where one is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from levada.wire.schema import ZERO_UUID

#: `list_offsets` takes these in place of a timestamp.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

ALL: Final = -1
LEADER: Final = 1
NONE: Final = 0


V_co = TypeVar("V_co", covariant=True)


class ByPartition(Protocol[V_co]):
    """Any mapping from partitions; its keys may be of any type of (topic, index) tuple."""

    def items(self) -> Iterable[tuple[tuple[str, int], V_co]]: ...


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionInfo(NamedTuple):
    """Who leads a partition and who follows. `leader` is −1 while nobody does."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]


class TopicInfo(NamedTuple):
    """A topic as Metadata tells it. Brokers before 2.8 have no topic ids: zero."""

    name: str
    partitions: Sequence[PartitionInfo]
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False


class Appended(NamedTuple):
    """Where a batch landed. A batch the broker had already is a duplicate; its offset is −1 where the broker forgot it."""

    base_offset: int
    #: −1 unless the topic stamps LogAppendTime.
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    duplicate: bool = False


class OffsetAt(NamedTuple):
    """The first offset at or after a timestamp; −1 where there is none."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


class OffsetAndMetadata(NamedTuple):
    """A group's place in a partition: the next offset to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class ProducerId(NamedTuple):
    """Who produces, as batches carry it."""

    producer_id: int
    epoch: int


class ConfigEntry(NamedTuple):
    """One setting and where its value comes from."""

    name: str
    value: str | None
    #: 1 the topic itself, 2–4 the broker's dynamic settings, 5 the broker's default, 6 its static file … as Kafka counts them.
    source: int
    read_only: bool = False
    sensitive: bool = False
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source == 5


class GroupListing(NamedTuple):
    """A group as ListGroups tells it."""

    group_id: str
    protocol_type: str
    state: str = ""
    type: str = ""


class MemberInfo(NamedTuple):
    """A member of a classic group; metadata and assignment are the consumer protocol's bytes."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupInfo(NamedTuple):
    """A classic group and its members."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: Sequence[MemberInfo]


class ClusterInfo(NamedTuple):
    """The brokers: node id → (host, port)."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, tuple[str, int]]
