"""A native client nobody here wrote: the generated stubs over grpcio, with refusals as the wire has them.

with connect(broker.grpc) as client:
    client.stream.CreateTopic(pb.CreateTopicRequest(name="t", partitions=4))
    with refused("PartitionsCannotShrink"):
        client.stream.CreateTopic(pb.CreateTopicRequest(name="t", partitions=3))
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from levada.v1 import cluster_pb2_grpc, stream_pb2_grpc
from levada.v1 import stream_pb2 as pb

TIMEOUT_S = 60.0
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class Stubs:
    """Both services over one channel, blocking or not as the channel is."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.stream: Any = stream_pb2_grpc.StreamServiceStub(channel)
        self.cluster: Any = cluster_pb2_grpc.ClusterServiceStub(channel)

    # For blocking channels

    def create(self, name: str, partitions: int = 1, **settings: str) -> Any:
        """Settings with `_` for `.`."""
        given = {key.replace("_", "."): value for key, value in settings.items()}
        request = pb.CreateTopicRequest(name=name, partitions=partitions, settings=given)
        return self.stream.CreateTopic(request, timeout=TIMEOUT_S)

    def publish(self, topic: str, *records: pb.Record, **more: Any) -> list[pb.Position]:
        request = pb.PublishRequest(topic=topic, records=records, **more)
        return list(self.stream.Publish(request, timeout=TIMEOUT_S).positions)

    def read(self, topic: str, partition: int = 0, offset: int = 0, **more: Any) -> Any:
        request = pb.ReadRequest(topic=topic, partition=partition, offset=offset, **more)
        return self.stream.Read(request, timeout=TIMEOUT_S)

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        """Everything in a partition."""
        found: list[bytes] = []
        offset = 0
        while True:
            answer = self.read(topic, partition, offset, limit=10_000, out_of_range=pb.TO_EARLIEST)
            found += [record.value for record in answer.records]
            if answer.next_offset >= answer.end:
                return found
            offset = answer.next_offset

    def partitions(self, topic: str) -> Sequence[Any]:
        return list(self.stream.DescribeTopic(pb.DescribeTopicRequest(name=topic), timeout=TIMEOUT_S).partitions)

    def stored(self, topic: str) -> dict[int, int]:
        """Partition → how many records it has."""
        return {each.index: each.end - each.start for each in self.partitions(topic)}


@contextmanager
def connect(address: str) -> Iterator[Stubs]:
    """The first call connects, and fails at once where nobody listens.

    (gRPC's channel_ready_future tries once: a connection that is lost before it has looked is waited for in vain.)
    """
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        yield Stubs(channel)


@asynccontextmanager
async def connect_async(address: str, **options: Any) -> AsyncIterator[Stubs]:
    async with grpc.aio.insecure_channel(address, options=(*OPTIONS, *options.items())) as channel:
        yield Stubs(channel)


def record(value: bytes | None = b"v", **fields: Any) -> pb.Record:
    return pb.Record(value=value, **fields)


@dataclass
class Refusal:
    """A refusal as a client sees it."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    message: str = ""
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    retry_ms: float | None = None


def refusal_of(error: Any) -> Refusal:
    """What the status of a call that failed says."""
    found = Refusal(error.code(), error.details() or "")
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            status = Status.FromString(value)
            assert (status.code, status.message) == (found.code.value[0], found.message)
            for detail in status.details:
                _take(found, detail)
    return found


def _take(found: Refusal, detail: Any) -> None:
    info, retry = ErrorInfo(), RetryInfo()
    if detail.Unpack(info):
        assert info.domain == "levada"
        found.reason, found.metadata = info.reason, dict(info.metadata)
    elif detail.Unpack(retry):
        found.retry_ms = retry.retry_delay.ToTimedelta().total_seconds() * 1000


@contextmanager
def refused(reason: str, match: str = "", code: grpc.StatusCode | None = None) -> Iterator[Refusal]:
    """Whatever is in here is refused for this reason; what it gives holds the refusal afterwards."""
    seen = Refusal()
    try:
        yield seen
    except grpc.RpcError as error:
        found = refusal_of(error)
        seen.__dict__.update(found.__dict__)
        assert found.reason == reason, f"{found} instead of {reason}"
        assert re.search(match, found.message), f"{found.message!r} does not match {match!r}"
        assert code is None or found.code == code
        return
    raise AssertionError(f"not refused; expected {reason}")


async def failure(call: Any) -> grpc.RpcError:
    """The status of an awaited stream that was read to its end."""
    return grpc.aio.AioRpcError(
        await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
    )
