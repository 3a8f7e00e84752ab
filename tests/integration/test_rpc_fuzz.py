"""Whatever a client sends over gRPC, it gets an answer or a refusal that is meant; the broker never fails at it, and goes on."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message_factory import GetMessageClass

from levada.fronts.rpc.services import SERVICES
from levada.records.build import build
from levada.v1 import stream_pb2 as pb
from support.broker import running
from support.rpc import Stubs, connect_async, record, refusal_of

ROUNDS = 60
SEEDS = range(4)
#: A call that may wait is given up after this.
TIMEOUT_S = 0.5
NUMBERS = (0, 1, -1, 2, 3, 7, 100, 10_000, 2**31 - 1, -(2**31))
LARGE = (2**62, 2**63 - 1, -(2**63), 1_700_000_000_000)
TEXTS = (
    "",
    "t",
    "u",
    "g",
    "nope",
    "ü",
    "a/b",
    "__levada.topics",
    "dlq.t",
    "x" * 300,
    "\0",
    "n1",
    "h:1",
    "retention.ms",
)
BATCH = bytes(build([(b"k", b"v")]))
METHODS = [
    (f"/{service.full_name}/{method.name}", method)
    for service, _ in SERVICES
    for method in service.methods
    if method.name != "DeleteTopic"  # or soon there would be no topic left
]


def message(descriptor: Any, chance: random.Random, depth: int = 0) -> Any:
    """A message of this type with anything in it."""
    made = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if chance.random() < 0.3 or depth > 3:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(made, field.name)[chance.choice(TEXTS)] = chance.choice(TEXTS)
        elif field.is_repeated:
            values = [value(field, chance, depth) for _ in range(chance.choice((1, 1, 2, 5)))]
            getattr(made, field.name).extend(values)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(value(field, chance, depth))
        else:
            setattr(made, field.name, value(field, chance, depth))
    return made


def value(field: Any, chance: random.Random, depth: int) -> Any:
    if field.message_type is not None:
        return message(field.message_type, chance, depth + 1)
    match field.type:
        case Field.TYPE_STRING:
            return chance.choice(TEXTS)
        case Field.TYPE_UINT32:
            return chance.choice((0, 1, 7, 1 << 20, 2**32 - 1))
        case Field.TYPE_BYTES:
            return chance.choice((b"", b"x", BATCH, BATCH[:-1], BATCH + BATCH, chance.randbytes(80)))
        case Field.TYPE_BOOL:
            return chance.random() < 0.5
        case Field.TYPE_INT64:
            return chance.choice(NUMBERS + LARGE)
        case _:
            return chance.choice(NUMBERS)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Stubs]:
    async with running(tmp_path) as server:
        host, port = server.addresses["grpc"]
        async with connect_async(f"{host}:{port}") as client:
            for name in ("t", "u"):
                await client.stream.CreateTopic(pb.CreateTopicRequest(name=name, partitions=3))
            yield client


async def send(client: Stubs, path: str, method: Any, requests: list[bytes]) -> grpc.aio.AioRpcError | None:
    """None where it was answered, or waited until it was given up."""
    try:
        if method.client_streaming:
            async for _ in client.channel.stream_stream(path)(iter(requests), timeout=TIMEOUT_S):
                pass
        else:
            await client.channel.unary_unary(path)(requests[0], timeout=TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        return None if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED else error
    return None


def check(error: grpc.aio.AioRpcError | None, path: str, requests: list[bytes]) -> None:
    # The client's own word for writing to a call that is over: the refusal was faster than the next request.
    if error is not None and error.details() != "Internal error from Core":
        refusal = refusal_of(error)
        assert refusal.reason not in ("", "InternalError"), f"{path} {requests}: {refusal}"


@pytest.mark.parametrize("seed", SEEDS)
async def test_messages_with_anything_in_them(client: Stubs, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        path, method = chance.choice(METHODS)
        requests = [message(method.input_type, chance).SerializeToString() for _ in range(chance.choice((1, 3)))]
        check(await send(client, path, method, requests), path, requests)
    await goes_on(client)


@pytest.mark.parametrize("seed", SEEDS)
async def test_bytes_that_were_messages_once(client: Stubs, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        path, method = chance.choice(METHODS)
        data = bytearray(message(method.input_type, chance).SerializeToString() or b"\0")
        for _ in range(chance.choice((1, 2, 8))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        requests = [bytes(data[: chance.randrange(len(data) + 1)])]
        check(await send(client, path, method, requests), path, requests)
    await goes_on(client)


async def goes_on(client: Stubs) -> None:
    made = await client.stream.CreateTopic(pb.CreateTopicRequest(name="afterwards", partitions=1))
    assert made.topic.partitions == 1
    answer = await client.stream.Publish(pb.PublishRequest(topic="afterwards", records=[record(b"well")]))
    assert answer.positions[0].offset == 0
