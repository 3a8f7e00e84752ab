"""What the manager shows: topics, groups and the cluster as they are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

from levada.client.records import At

if TYPE_CHECKING:
    from levada.v1 import cluster_pb2, stream_pb2

Outcome = Literal["same", "created", "expanded"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("same", "created", "expanded")
KINDS: Final = ("unspecified", "dynamic", "fixed", "classic", "offsets")


@dataclass(slots=True, kw_only=True)
class Partition:
    """One partition: its offsets from `start` to `end` − 1, and where it would lie in a cluster."""

    index: int
    start: int
    end: int
    leader: str = ""
    replicas: Sequence[str] = ()


@dataclass(slots=True, kw_only=True)
class Setting:
    """One setting that holds for a topic. `set`: on the topic itself, not by default."""

    name: str
    value: str
    set: bool
    doc: str = ""


@dataclass(slots=True, kw_only=True)
class Topic:
    """A topic. `settings` are those set on it; `details` and `places` are there where one topic was asked for."""

    name: str
    id: UUID
    partitions: int
    settings: Mapping[str, str]
    internal: bool
    router: str
    keyless: str
    dedup: str
    max_message_bytes: int
    #: What create_topic did.
    outcome: Outcome | None = None
    places: Sequence[Partition] = ()
    details: Sequence[Setting] = ()

    @staticmethod
    def of(
        message: stream_pb2.Topic,
        *,
        outcome: Outcome | None = None,
        places: Sequence[stream_pb2.Partition] = (),
        details: Sequence[stream_pb2.Setting] = (),
    ) -> Topic:
        return Topic(
            name=message.name,
            id=UUID(bytes=message.id) if message.id else UUID(int=0),
            partitions=message.partitions,
            settings=dict(message.settings),
            internal=message.internal,
            router=message.router,
            keyless=message.keyless,
            dedup=message.dedup,
            max_message_bytes=message.max_message_bytes,
            outcome=outcome,
            places=[
                Partition(
                    index=each.index, start=each.start, end=each.end, leader=each.leader, replicas=list(each.replicas)
                )
                for each in places
            ],
            details=[Setting(name=each.name, value=each.value, set=each.set, doc=each.doc) for each in details],
        )


@dataclass(slots=True, kw_only=True)
class GroupOffset:
    """Where a group stands in one partition. `committed` is the next record to read; None: nothing was committed."""

    topic: str
    partition: int
    committed: int | None
    start: int
    end: int
    lag: int
    metadata: str = ""
    member_id: str = ""

    @staticmethod
    def of(message: stream_pb2.GroupOffset) -> GroupOffset:
        return GroupOffset(
            topic=message.topic,
            partition=message.partition,
            committed=message.committed if message.HasField("committed") else None,
            start=message.start,
            end=message.end,
            lag=message.lag,
            metadata=message.metadata,
            member_id=message.member_id,
        )


@dataclass(slots=True, kw_only=True)
class Member:
    """One member of a group, and what it reads. `consumer`: its number, in a fixed group."""

    member_id: str
    client_id: str
    host: str
    partitions: Sequence[At]
    consumer: int | None = None


@dataclass(slots=True, kw_only=True)
class Group:
    """A group. Its members and offsets are there where one group was asked for.

    kind: dynamic and fixed are native, classic is Kafka's, offsets has nobody in it yet.
    """

    group: str
    kind: str
    state: str
    #: How many members it has.
    size: int
    generation: int = 0
    members: Sequence[Member] = field(default_factory=list)
    offsets: Sequence[GroupOffset] = field(default_factory=list)

    @staticmethod
    def summary(message: stream_pb2.GroupSummary) -> Group:
        return Group(group=message.group, kind=KINDS[message.kind], state=message.state, size=message.members)

    @staticmethod
    def of(message: stream_pb2.DescribeGroupResponse) -> Group:
        members = [
            Member(
                member_id=each.member_id,
                client_id=each.client_id,
                host=each.host,
                partitions=[At(at.topic, at.partition) for at in each.partitions],
                consumer=each.consumer if each.HasField("consumer") else None,
            )
            for each in message.members
        ]
        return Group(
            group=message.group,
            kind=KINDS[message.kind],
            state=message.state,
            size=len(members),
            generation=message.generation,
            members=members,
            offsets=[GroupOffset.of(each) for each in message.offsets],
        )


@dataclass(slots=True, kw_only=True)
class Registration:
    """A fixed group as it is registered: its consumers join with this generation. `same`: it was so already."""

    generation: int
    same: bool


@dataclass(slots=True, kw_only=True)
class Node:
    """A node of the cluster."""

    id: str
    address: str
    kafka: str
    leader: bool
    #: The broker that was asked.
    self: bool
    joined_ms: int
    last_heartbeat_ms: int

    @staticmethod
    def of(message: cluster_pb2.Node) -> Node:
        return Node(
            id=message.id,
            address=message.address,
            kafka=message.kafka,
            leader=message.leader,
            self=message.self,
            joined_ms=message.joined_ms,
            last_heartbeat_ms=message.last_heartbeat_ms,
        )


@dataclass(slots=True, kw_only=True)
class Placement:
    """Where a partition would lie: the node that leads, all that would have a copy, and the last offset (−1: none)."""

    topic: str
    partition: int
    leader: str
    replicas: Sequence[str]
    last_offset: int


@dataclass(slots=True, kw_only=True)
class Stats:
    """A broker in numbers."""

    version: str
    uptime_ms: int
    topics: int
    partitions: int
    groups: int
    connections: int
    bytes_on_disk: int
    records_in: int
    records_out: int
    resident_bytes: int
