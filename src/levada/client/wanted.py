"""What a consumer is to read, and how: checked once, when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from levada.client.records import At
from levada.client.serializers import BYTES, Serializer
from levada.errors import InvalidRequest
from levada.v1 import stream_pb2 as pb

Start = Literal["earliest", "latest", "none"]
STARTS: Final[Mapping[str, pb.Start]] = {"earliest": pb.EARLIEST, "latest": pb.LATEST, "none": pb.NONE}

#: A consumer that loses partitions while it runs has so long to finish what is in hand and to commit it.
HAND_OVER_MS: Final = 5_000

#: Called with the partitions that came or went. May be a coroutine function; a plain one runs in a thread.
OnChange = Callable[[Sequence[At]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The settings of a consumer, as `client.consumer` takes them."""

    topics: Sequence[str]
    group: str = ""
    start: Start = "earliest"
    partitions: Sequence[int] | None = None
    consumer: int | None = None
    generation: int = 0
    key: Serializer = BYTES
    value: Serializer = BYTES
    auto_commit: bool = True
    auto_commit_ms: int = 1_000
    read_committed: bool = False
    records_max: int = 1_000
    bytes_max: int = 1_048_576
    session_timeout_ms: int = 10_000
    on_assigned: OnChange | None = None
    on_revoked: OnChange | None = None

    def check(self) -> None:
        """InvalidRequest, naming what contradicts what."""
        if not self.topics:
            raise InvalidRequest("a consumer needs at least one topic")
        if self.start not in STARTS:
            raise InvalidRequest(f"start is {self.start!r}; it must be one of {', '.join(map(repr, STARTS))}")
        if self.group and self.partitions is not None:
            raise InvalidRequest(
                f"group {self.group} shares the partitions out among its members: name a group or partitions, not both"
            )
        if self.consumer is not None and not (self.group and self.generation):
            raise InvalidRequest(
                "a consumer of a fixed group has group=…, consumer=… and generation=…, which manager.register_group returns"
            )
        if not 1 <= self.records_max <= 1_000:
            raise InvalidRequest(f"records_max is {self.records_max}; it must be from 1 to 1,000")
        for name in ("bytes_max", "session_timeout_ms", "auto_commit_ms"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} is {getattr(self, name)}; it must be at least 1")

    @property
    def hand_over_ms(self) -> int:
        """How long others wait for what this consumer has lost to them."""
        return min(self.session_timeout_ms, HAND_OVER_MS) if self.group and self.consumer is None else 0

    def opening(self, offsets: Mapping[At, int], client_id: str) -> pb.SubscribeRequest.Open:
        """How the subscription is opened. Without a group, `offsets` are all its partitions; −1 begins by `start`."""
        request = pb.SubscribeRequest.Open(
            group=self.group,
            start=STARTS[self.start],
            generation=self.generation,
            records_max=self.records_max,
            bytes_max=self.bytes_max,
            session_timeout_ms=self.session_timeout_ms,
            read_committed=self.read_committed,
            raw=True,
            client_id=client_id,
            hand_over_ms=self.hand_over_ms,
        )
        if self.consumer is not None:
            request.consumer = self.consumer
        if self.group:
            request.topics.extend(self.topics)
            return request
        for at, offset in offsets.items():
            request.partitions.append(pb.TopicPartition(topic=at.topic, partition=at.partition))
            if offset >= 0:
                request.offsets.append(pb.PartitionOffset(topic=at.topic, partition=at.partition, offset=offset))
        return request
