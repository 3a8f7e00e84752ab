"""Native groups over gRPC: a broker in its own process, and consumers that speak the bare protocol."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from levada.v1 import stream_pb2 as pb
from support.brokers import Broker, levada_only
from support.levada import LevadaBroker
from support.native_consumer import NativeConsumer
from support.rpc import Stubs, connect_async, record, refusal_of, refused

pytestmark = levada_only

#: Nobody is taken for dead in a test that takes long.
LONG_MS = 600_000

Open = Callable[..., Awaitable[NativeConsumer]]

#: A consumer in a process of its own, which prints what it owns and then why it ended.
CONSUMER = """
import json, queue, sys
import grpc
from levada.v1 import stream_pb2 as pb, stream_pb2_grpc
address, topic, group = sys.argv[1:]
requests = queue.SimpleQueue()
requests.put(pb.SubscribeRequest(open=pb.SubscribeRequest.Open(topics=[topic], group=group, session_timeout_ms=1_000)))
call = stream_pb2_grpc.StreamServiceStub(grpc.insecure_channel(address)).Subscribe(iter(requests.get, None))
try:
    for answer in call:
        requests.put(pb.SubscribeRequest(alive=pb.SubscribeRequest.SignOfLife()))
        if answer.HasField("assigned"):
            told = answer.assigned
            print(json.dumps([told.member_id, told.generation, [one.partition for one in told.partitions]]), flush=True)
except grpc.RpcError as error:
    print(json.dumps(error.details()), flush=True)
"""


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Stubs]:
    assert isinstance(broker, LevadaBroker)
    async with connect_async(broker.grpc) as stubs:
        yield stubs


@pytest.fixture
async def open_consumer() -> AsyncIterator[Open]:
    """Opens consumers over the given stubs, and hangs up in the end."""
    async with AsyncExitStack() as stack:

        async def open_one(client: Stubs, **fields: Any) -> NativeConsumer:
            consumer = await NativeConsumer(client, **{"session_timeout_ms": LONG_MS, **fields}).open()
            stack.push_async_callback(consumer.close)
            consumer.read_on()
            return consumer

        yield open_one


async def create(client: Stubs, topic: str, partitions: int) -> None:
    await client.stream.CreateTopic(pb.CreateTopicRequest(name=topic, partitions=partitions))


async def publish(client: Stubs, topic: str, count: int, partition: int = 0) -> None:
    records = [record(b"%d" % number, partition=partition) for number in range(count)]
    await client.stream.Publish(pb.PublishRequest(topic=topic, records=records))


async def register(client: Stubs, topic: str, group: str, consumers: int) -> Any:
    request = pb.RegisterGroupRequest(topic=topic, group=group, consumers=consumers)
    return await client.stream.RegisterGroup(request)


def places(topic: str, offsets: dict[int, int]) -> list[pb.PartitionOffset]:
    return [pb.PartitionOffset(topic=topic, partition=index, offset=offset) for index, offset in offsets.items()]


def owned(consumer: NativeConsumer) -> list[int]:
    return sorted(index for _, index in consumer.owned)


def offsets(consumer: NativeConsumer, topic: str, partition: int = 0) -> list[int]:
    return [offset for offset, _ in consumer.got.get((topic, partition), [])]


# 11


async def test_11_three_consumers_of_six_partitions_own_two_each(
    client: Stubs, open_consumer: Open, topic: str
) -> None:
    await create(client, topic, 6)
    consumers = [await open_consumer(client, topics=[topic], group=topic) for _ in range(3)]
    for consumer in consumers:
        await consumer.until(lambda consumer=consumer: len(consumer.owned) == 2)  # type: ignore[misc]
    assert sorted(index for consumer in consumers for index in owned(consumer)) == list(range(6))


async def test_11_consumer_i_of_a_fixed_group_owns_i_and_i_plus_three(
    client: Stubs, open_consumer: Open, topic: str
) -> None:
    await create(client, topic, 6)
    registered = await register(client, topic, topic, 3)
    assert (registered.generation, registered.same) == (1, False)
    again = await register(client, topic, topic, 3)
    assert (again.generation, again.same) == (1, True)
    for number in range(3):
        consumer = await open_consumer(client, group=topic, consumer=number, generation=registered.generation)
        await consumer.until(lambda consumer=consumer: consumer.assigned)  # type: ignore[misc]
        assert owned(consumer) == [number, number + 3]


async def test_11_groups_a_and_b_both_get_everything(client: Stubs, open_consumer: Open, topic: str) -> None:
    await create(client, topic, 6)
    groups = {name: await open_consumer(client, topics=[topic], group=f"{topic}-{name}") for name in "ab"}
    for partition in range(6):
        await publish(client, topic, 10, partition)
    for consumer in groups.values():
        await consumer.until(lambda consumer=consumer: consumer.count == 60)  # type: ignore[misc]
        assert all(offsets(consumer, topic, partition) == list(range(10)) for partition in range(6))


# 12


async def test_12_the_partitions_of_a_frozen_owner_move_and_its_late_commit_is_a_generation_error(
    broker: LevadaBroker, client: Stubs, open_consumer: Open, topic: str
) -> None:
    await create(client, topic, 2)
    await publish(client, topic, 10)
    arguments = ["-c", CONSUMER, broker.grpc, topic, topic]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        member_id, generation, partitions = json.loads(await process.stdout.readline())
        assert partitions == [0, 1]
        process.send_signal(signal.SIGSTOP)
        heir = await open_consumer(client, topics=[topic], group=topic)
        await heir.until(lambda: owned(heir) == [0, 1])
        late = pb.CommitRequest(group=topic, member_id=member_id, generation=generation, offsets=places(topic, {0: 5}))
        (error,) = (await client.stream.Commit(late)).errors
        assert (error.partition, error.error.reason) == (0, "IllegalGeneration")
        late.generation = heir.assigned[-1].generation
        (error,) = (await client.stream.Commit(late)).errors
        assert error.error.reason == "UnknownMember"
        (place, _) = (await client.stream.GetOffset(pb.GetOffsetRequest(group=topic, topic=topic))).offsets
        assert not place.HasField("committed") and place.lag == 10
        process.send_signal(signal.SIGCONT)
        said = [json.loads(line) async for line in process.stdout]
        assert "gave no sign of life for 1000 ms" in said[-1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_12_the_partitions_of_a_killed_owner_move(
    broker: LevadaBroker, client: Stubs, open_consumer: Open, topic: str
) -> None:
    await create(client, topic, 2)
    arguments = ["-c", CONSUMER, broker.grpc, topic, topic]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    heir = await open_consumer(client, topics=[topic], group=topic)
    await heir.until(lambda: heir.assigned)
    process.kill()
    await process.wait()
    await heir.until(lambda: owned(heir) == [0, 1])


async def test_12_registering_another_number_fences_the_consumers_of_before(
    client: Stubs, open_consumer: Open, topic: str
) -> None:
    await create(client, topic, 6)
    old = (await register(client, topic, topic, 3)).generation
    consumer = await open_consumer(client, group=topic, consumer=0, generation=old)
    await consumer.until(lambda: consumer.assigned)
    new = (await register(client, topic, topic, 2)).generation
    assert new > old
    error = await consumer.over()
    assert error is not None and refusal_of(error).reason == "IllegalGeneration"
    late = await open_consumer(client, group=topic, consumer=0, generation=old)
    error = await late.over()
    assert error is not None and refusal_of(error).reason == "IllegalGeneration"
    commit = pb.CommitRequest(group=topic, generation=old, consumer=0, offsets=places(topic, {0: 0}))
    (refusal,) = (await client.stream.Commit(commit)).errors
    assert refusal.error.reason == "IllegalGeneration"
    successor = await open_consumer(client, group=topic, consumer=0, generation=new)
    await successor.until(lambda: owned(successor) == [0, 2, 4])


# 13


async def test_13_commit_15_after_reading_10_to_14_and_a_restart_resumes_at_15(
    own_broker: LevadaBroker, open_consumer: Open, topic: str
) -> None:
    async with connect_async(own_broker.grpc) as client:
        await create(client, topic, 1)
        await publish(client, topic, 15)
        await client.stream.Seek(pb.SeekRequest(group="g", topic=topic, offset=10))
        consumer = await open_consumer(client, topics=[topic], group="g")
        await consumer.until(lambda: consumer.count == 5)
        assert offsets(consumer, topic) == [10, 11, 12, 13, 14]
        await consumer.commit({(topic, 0): 15})
        await consumer.until(lambda: consumer.committed)
        assert not consumer.committed[0].errors
        await publish(client, topic, 3)
        await consumer.until(lambda: consumer.count == 8)
        own_broker.kill()
        await consumer.over()
    own_broker.start()
    async with connect_async(own_broker.grpc) as client:
        (place,) = (await client.stream.GetOffset(pb.GetOffsetRequest(group="g"))).offsets
        assert (place.committed, place.start, place.end, place.lag) == (15, 0, 18, 3)
        consumer = await open_consumer(client, topics=[topic], group="g")
        await consumer.until(lambda: consumer.count == 3)
        assert offsets(consumer, topic) == [15, 16, 17]


async def test_13_the_bad_one_of_a_batch_of_commits_is_refused_by_name(
    client: Stubs, open_consumer: Open, topic: str
) -> None:
    await create(client, topic, 3)
    await publish(client, topic, 10, 0)
    await publish(client, topic, 10, 1)
    wanted = {0: 4, 1: 11, 3: 0}
    answer = await client.stream.Commit(pb.CommitRequest(group=topic, offsets=places(topic, wanted)))
    refusals = {(one.topic, one.partition): one.error for one in answer.errors}
    assert {place: error.reason for place, error in refusals.items()} == {
        (topic, 1): "OffsetOutOfRange",
        (topic, 3): "UnknownPartition",
    }
    assert dict(refusals[topic, 1].metadata) == {"start": "0", "end": "10"}
    consumer = await open_consumer(client, topics=[topic], group=topic)
    await consumer.until(lambda: consumer.assigned)
    assert consumer.owned == {(topic, 0): 4, (topic, 1): 0, (topic, 2): 0}
    await consumer.commit({(topic, 0): 5, (topic, 1): 99})
    await consumer.until(lambda: consumer.committed)
    (refusal,) = consumer.committed[0].errors
    assert (refusal.partition, refusal.error.reason) == (1, "OffsetOutOfRange")
    rows = (await client.stream.GetOffset(pb.GetOffsetRequest(group=topic, topic=topic))).offsets
    assert [(row.committed if row.HasField("committed") else None, row.lag) for row in rows] == [
        (5, 5),
        (None, 10),
        (None, 0),
    ]


# 15, 16


async def test_15_reading_below_the_start_offset_is_refused_with_the_range_or_goes_where_told(
    broker: LevadaBroker, client: Stubs, open_consumer: Open, topic: str
) -> None:
    await create(client, topic, 1)
    await publish(client, topic, 20)
    await client.stream.Commit(pb.CommitRequest(group=topic, offsets=places(topic, {0: 3})))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 8)]).values():
        await asyncio.to_thread(future.result)

    with refused("OffsetOutOfRange") as refusal:
        await client.stream.Read(pb.ReadRequest(topic=topic, offset=3))
    assert (refusal.metadata["start"], refusal.metadata["end"]) == ("8", "20")
    earliest = await client.stream.Read(pb.ReadRequest(topic=topic, offset=3, limit=2, out_of_range=pb.TO_EARLIEST))
    assert [one.offset for one in earliest.records] == [8, 9]
    latest = await client.stream.Read(pb.ReadRequest(topic=topic, offset=3, out_of_range=pb.TO_LATEST))
    assert (list(latest.records), latest.next_offset) == ([], 20)

    none = await open_consumer(client, topics=[topic], group=topic, start=pb.NONE)
    error = await none.over()
    assert error is not None
    found = refusal_of(error)
    assert (found.reason, found.metadata["start"], found.metadata["end"]) == ("OffsetOutOfRange", "8", "20")
    first = await open_consumer(client, topics=[topic], group=topic, start=pb.EARLIEST)
    await first.until(lambda: first.count == 12)
    assert offsets(first, topic)[0] == 8
    await first.close()

    with refused("OffsetOutOfRange", "must be from 8 to 20"):
        await client.stream.Seek(pb.SeekRequest(group=topic, topic=topic, offset=7))
    await client.stream.Seek(pb.SeekRequest(group=topic, topic=topic, offset=8))
    await client.stream.Seek(pb.SeekRequest(group=topic, topic=topic, offset=20))


async def test_16_of_offsets_0_to_1000_reading_from_9_with_limit_5_gives_9_to_13(client: Stubs, topic: str) -> None:
    await create(client, topic, 1)
    await publish(client, topic, 1001)
    answer = await client.stream.Read(pb.ReadRequest(topic=topic, offset=9, limit=5))
    assert [(one.offset, one.value) for one in answer.records] == [(at, b"%d" % at) for at in range(9, 14)]
    assert (answer.start, answer.end, answer.next_offset) == (0, 1001, 14)


# Being moved


async def test_a_group_is_moved_while_it_reads(client: Stubs, open_consumer: Open, topic: str) -> None:
    await create(client, topic, 2)
    await publish(client, topic, 10, 0)
    await publish(client, topic, 10, 1)
    consumer = await open_consumer(client, topics=[topic], group=topic)
    await consumer.until(lambda: consumer.count == 20)
    before = consumer.assigned[-1].generation
    dry = await client.stream.Seek(pb.SeekRequest(group=topic, topic=topic, shift=-4, dry_run=True))
    assert [one.offset for one in dry.offsets] == [0, 0]
    await client.stream.Seek(pb.SeekRequest(group=topic, topic=topic, partitions=[1], offset=7))
    await consumer.until(lambda: consumer.count == 23)
    assert offsets(consumer, topic, 1)[10:] == [7, 8, 9]
    assert len(offsets(consumer, topic, 0)) == 10
    commit = pb.SubscribeRequest.CommitOffsets(id=1, offsets=places(topic, {1: 10}), generation=before)
    await consumer.say(commit=commit)
    await consumer.until(lambda: consumer.committed)
    (refusal,) = consumer.committed[0].errors
    assert refusal.error.reason == "IllegalGeneration", "it is of what was read before the seek"
    (place,) = (await client.stream.GetOffset(pb.GetOffsetRequest(group=topic, topic=topic))).offsets[1:]
    assert (place.committed, place.lag, place.member_id) == (7, 3, consumer.assigned[-1].member_id)
