"""From partitions to native consumers, over gRPC: a broker in its own process, and consumers that speak the bare protocol."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import psutil
import pytest

from levada.v1 import stream_pb2 as pb
from support.brokers import Broker, levada_only
from support.levada import LevadaBroker
from support.native_consumer import NativeConsumer
from support.rpc import Stubs, connect_async, record, refusal_of

pytestmark = levada_only

Open = Callable[..., Awaitable[NativeConsumer]]
#: Channels with the same settings would share a connection, and the memory of one that was refused.
OWN_CONNECTION = {"grpc.use_local_subchannel_pool": 1}


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Stubs]:
    assert isinstance(broker, LevadaBroker)
    async with connect_async(broker.grpc) as stubs:
        yield stubs


@pytest.fixture
async def open_consumer(broker: Broker) -> AsyncIterator[Open]:
    """Opens consumers, each on a connection of its own, and hangs up in the end."""
    assert isinstance(broker, LevadaBroker)
    address = broker.grpc
    async with AsyncExitStack() as stack:

        async def open_one(*, reads: bool = True, grants: bool = True, **fields: Any) -> NativeConsumer:
            stubs = await stack.enter_async_context(connect_async(address, **OWN_CONNECTION))
            consumer = await NativeConsumer(stubs, grants=grants, **fields).open()
            stack.push_async_callback(consumer.close)
            if reads:
                consumer.read_on()
            return consumer

        yield open_one


async def create(client: Stubs, name: str, partitions: int) -> None:
    settings = {"levada.durability": "os"}
    await client.stream.CreateTopic(pb.CreateTopicRequest(name=name, partitions=partitions, settings=settings))


async def publish(client: Stubs, topic: str, partition: int, first: int, count: int, size: int = 0) -> None:
    """Records with the values first, first + 1 … and so many bytes behind each."""
    records = [record(b"%d" % number + b"." * size, partition=partition) for number in range(first, first + count)]
    await client.stream.Publish(pb.PublishRequest(topic=topic, records=records))


def settled(consumers: list[NativeConsumer], topic: str, partitions: int) -> bool:
    """All partitions are somebody's, and everybody knows of the same generation."""
    owned = sorted(at for consumer in consumers for at in consumer.owned)
    generations = {consumer.assigned[-1].generation if consumer.assigned else 0 for consumer in consumers}
    return len(generations) == 1 and owned == [(topic, index) for index in range(partitions)]


async def until(consumers: list[NativeConsumer], look: Callable[[], Any]) -> None:
    """Wait for messages to whomever until this is true of all of them together."""
    waits = [asyncio.ensure_future(consumer.until(look)) for consumer in consumers]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in waits:
            task.cancel()


@pytest.mark.parametrize("raw", [False, True], ids=["records", "batches"])
async def test_36_100_000_records_over_12_partitions_reach_3_consumers_once_and_in_order(
    client: Stubs, open_consumer: Open, raw: bool
) -> None:
    topic, partitions, each = f"t36-{raw}", 12, 8_400
    await create(client, topic, partitions)
    consumers = [await open_consumer(topics=[topic], group=f"g36-{raw}", raw=raw) for _ in range(3)]
    await until(consumers, lambda: settled(consumers, topic, partitions))
    assert [len(consumer.owned) for consumer in consumers] == [4, 4, 4]
    for first in range(0, each, 700):
        await asyncio.gather(*(publish(client, topic, index, first, 700) for index in range(partitions)))
    await until(consumers, lambda: sum(consumer.count for consumer in consumers) >= partitions * each)
    got = [place for consumer in consumers for place in consumer.got]
    assert sorted(got) == [(topic, index) for index in range(partitions)], "two consumers got of one partition"
    for consumer in consumers:
        for records in consumer.got.values():
            assert [offset for offset, _ in records] == list(range(each))
            assert [value for _, value in records] == [b"%d" % number for number in range(each)]
    assert sum(consumer.count for consumer in consumers) == partitions * each >= 100_000


@pytest.mark.parametrize("silent", [False, True], ids=["grants", "says no more"])
async def test_14_a_stalled_group_delays_neither_another_nor_the_publishers(
    broker: LevadaBroker, client: Stubs, open_consumer: Open, silent: bool
) -> None:
    """The stalled one reads nothing from its connection until the other has everything. No clock is looked at."""
    topic, each, size = f"t14-{silent}", 20_000, 1_000
    await create(client, topic, 2)
    stalled = await open_consumer(topics=[topic], group=f"stalled-{silent}", reads=False)
    if silent:
        await stalled.say_no_more()
        stalled.grants = False
    quick = await open_consumer(topics=[topic], group=f"quick-{silent}", raw=True)
    await quick.until(lambda: settled([quick], topic, 2))
    process = psutil.Process(broker.pid)
    before = process.memory_info().rss
    for first in range(0, each, 500):
        await asyncio.gather(*(publish(client, topic, index, first, 500, size) for index in range(2)))
    await quick.until(lambda: quick.count == 2 * each)
    # 40 MB went by; what waits for the stalled one is bounded by its own limits and those of its connection.
    assert process.memory_info().rss - before < 30_000_000
    for index in range(2):
        assert [offset for offset, _ in quick.got[topic, index]] == list(range(each))
    stalled.read_on()
    await stalled.until(lambda: stalled.count == 2 * each)
    for index in range(2):
        assert [offset for offset, _ in stalled.got[topic, index]] == list(range(each))


@pytest.mark.parametrize("how", ["expand", "create"])
async def test_1_expansion_reaches_running_consumers(client: Stubs, open_consumer: Open, how: str) -> None:
    topic = f"t1-{how}"
    await create(client, topic, 4)
    await client.stream.RegisterGroup(pb.RegisterGroupRequest(topic=topic, group=f"fixed-{how}", consumers=2))
    dynamic = [await open_consumer(topics=[topic], group=f"dynamic-{how}") for _ in range(2)]
    fixed = [await open_consumer(group=f"fixed-{how}", consumer=number) for number in range(2)]
    for members in (dynamic, fixed):
        await until(members, lambda members=members: settled(members, topic, 4))
    if how == "expand":
        await client.stream.ExpandTopic(pb.ExpandTopicRequest(name=topic, partitions=6))
    else:
        answer = await client.stream.CreateTopic(pb.CreateTopicRequest(name=topic, partitions=6))
        assert answer.outcome == pb.CreateTopicResponse.EXPANDED
    for index in range(6):
        await publish(client, topic, index, 0, 10)
    for members in (dynamic, fixed):
        await until(members, lambda members=members: sum(member.count for member in members) >= 60)
        got = Counter((place, offset) for one in members for place, held in one.got.items() for offset, _ in held)
        assert got == Counter(((topic, index), offset) for index in range(6) for offset in range(10))
    for number, consumer in enumerate(fixed):
        assert set(consumer.got) == {(topic, index) for index in range(6) if index % 2 == number}


async def test_12_what_a_consumer_had_that_hung_up_goes_to_the_others_from_its_commit_on(
    client: Stubs, open_consumer: Open
) -> None:
    topic = "t12"
    await create(client, topic, 2)
    first, second = [await open_consumer(topics=[topic], group="g12") for _ in range(2)]
    await until([first, second], lambda: settled([first, second], topic, 2))
    [handed] = first.owned
    await publish(client, topic, handed[1], 0, 100)
    await first.until(lambda: first.count == 100)
    await first.commit({handed: 40})
    await first.until(lambda: first.committed)
    assert not first.committed[0].errors
    await first.close()
    await second.until(lambda: len(second.owned) == 2)
    assert second.owned[handed] == 40
    await publish(client, topic, handed[1], 100, 10)
    await second.until(lambda: second.count == 70)
    assert [offset for offset, _ in second.got[handed]] == list(range(40, 110))


async def test_12_a_consumer_that_gives_no_sign_of_life_is_told_and_its_partitions_move(
    client: Stubs, open_consumer: Open
) -> None:
    topic = "t12-dead"
    await create(client, topic, 2)
    dead = await open_consumer(topics=[topic], group="g12-dead", session_timeout_ms=1_000, grants=False)
    await dead.until(lambda: len(dead.owned) == 2)
    alive = await open_consumer(topics=[topic], group="g12-dead", session_timeout_ms=30_000)
    await alive.until(lambda: len(alive.owned) == 2)
    error = await dead.over()
    assert error is not None
    assert refusal_of(error).reason == "UnknownMember"


async def test_15_a_consumer_is_told_the_range_or_goes_where_its_policy_says(
    client: Stubs, open_consumer: Open
) -> None:
    topic = "t15"
    await create(client, topic, 1)
    await publish(client, topic, 0, 0, 10)
    place = pb.TopicPartition(topic=topic, partition=0)
    beyond = pb.PartitionOffset(topic=topic, partition=0, offset=99)
    told = await open_consumer(partitions=[place], offsets=[beyond], start=pb.NONE)
    error = await told.over()
    assert error is not None
    refusal = refusal_of(error)
    assert (refusal.reason, refusal.metadata["start"], refusal.metadata["end"]) == ("OffsetOutOfRange", "0", "10")
    earliest = await open_consumer(partitions=[place], offsets=[beyond], start=pb.EARLIEST)
    await earliest.until(lambda: earliest.count == 10)
    latest = await open_consumer(partitions=[place], offsets=[beyond], start=pb.LATEST)
    await latest.until(lambda: latest.owned == {(topic, 0): 10})


async def test_seek_pause_and_resume_over_the_call(client: Stubs, open_consumer: Open) -> None:
    topic = "t-seek"
    await create(client, topic, 2)
    for index in range(2):
        await publish(client, topic, index, 0, 10)
    places = [pb.TopicPartition(topic=topic, partition=index) for index in range(2)]
    consumer = await open_consumer(partitions=places)
    await consumer.until(lambda: consumer.count == 20)
    await consumer.say(pause=pb.SubscribeRequest.Pause(paused=places[:1]))
    offsets = [pb.PartitionOffset(topic=topic, partition=index, offset=7) for index in range(2)]
    await consumer.say(seek=pb.SubscribeRequest.SeekTo(offsets=offsets))
    await consumer.until(lambda: consumer.count == 23)
    assert consumer.owned == {(topic, 0): 7, (topic, 1): 7}
    assert [offset for offset, _ in consumer.got[topic, 1]][10:] == [7, 8, 9]
    assert len(consumer.got[topic, 0]) == 10
    await consumer.say(pause=pb.SubscribeRequest.Pause(resumed=places[:1]))
    await consumer.until(lambda: consumer.count == 26)
    assert [offset for offset, _ in consumer.got[topic, 0]][10:] == [7, 8, 9]


async def test_no_more_is_delivered_than_was_granted(client: Stubs, open_consumer: Open) -> None:
    topic = "t-grant"
    await create(client, topic, 1)
    for first in range(0, 5_000, 100):
        await publish(client, topic, 0, first, 100)
    place = pb.TopicPartition(topic=topic, partition=0)
    consumer = await open_consumer(partitions=[place], records_max=500, grants=False)
    await consumer.until(lambda: consumer.count == 500)
    other = await open_consumer(partitions=[place], raw=True)
    await other.until(lambda: other.count == 5_000)
    assert consumer.count == 500
    await consumer.grant(200)
    await consumer.until(lambda: consumer.count == 700)


async def test_13_after_kill_9_a_group_goes_on_where_it_committed_and_nothing_is_lost(own_broker: Broker) -> None:
    """The broker is killed three times while records are published and delivered; nobody looks where it was."""
    assert isinstance(own_broker, LevadaBroker)
    async with connect_async(own_broker.grpc, **OWN_CONNECTION) as client:
        await client.stream.CreateTopic(pb.CreateTopicRequest(name="t", partitions=4))  # fsync, the default
    handled: dict[int, set[int]] = {index: set() for index in range(4)}
    acknowledged: Counter[int] = Counter()
    committed: dict[tuple[str, int], int] = {("t", index): 0 for index in range(4)}
    generation = 0
    for _ in range(3):
        async with connect_async(own_broker.grpc, **OWN_CONNECTION) as client:
            consumer = await NativeConsumer(client, topics=["t"], group="g").open()
            consumer.read_on()
            await consumer.until(lambda it=consumer: it.assigned)
            assert consumer.assigned[0].generation > generation
            assert consumer.owned == committed
            publishing = asyncio.gather(*(_publish_until_lost(client, index, acknowledged) for index in range(4)))
            await consumer.until(lambda it=consumer: all(len(it.got.get(at, ())) > 200 for at in it.owned))
            committed = {at: consumer.got[at][-1][0] + 1 for at in consumer.owned}
            await consumer.commit(committed)
            await consumer.until(lambda it=consumer: it.committed)
            assert not consumer.committed[0].errors
            own_broker.kill()
            assert await consumer.over() is not None
            await publishing
            generation = consumer.assigned[-1].generation
            for (_, index), records in consumer.got.items():
                offsets = [offset for offset, _ in records]
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
                handled[index].update(offsets)
        own_broker.start()
    async with connect_async(own_broker.grpc, **OWN_CONNECTION) as client:
        last = await NativeConsumer(client, topics=["t"], group="g").open()
        last.read_on()
        await last.until(lambda: last.assigned)
        answer = await client.stream.DescribeTopic(pb.DescribeTopicRequest(name="t"))
        ends = {("t", each.index): each.end for each in answer.partitions}
        await last.until(lambda: all(len(last.got.get(at, ())) == end - committed[at] for at, end in ends.items()))
        await last.close()
    for (_, index), end in ends.items():
        handled[index].update(offset for offset, _ in last.got.get(("t", index), ()))
        assert handled[index] == set(range(end))
        assert end >= acknowledged[index] > 0


async def _publish_until_lost(client: Stubs, index: int, acknowledged: Counter[int]) -> None:
    """Publish to one partition until the broker is gone."""
    try:
        while True:
            await publish(client, "t", index, 0, 10)
            acknowledged[index] += 10
    except grpc.RpcError:
        return
