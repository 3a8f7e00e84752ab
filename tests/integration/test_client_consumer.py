"""A consumer that goes on after run(), seek, pause and close, with both faces of the client: nothing is lost on the way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import levada
from levada.errors import DamagedLog
from levada.testing import ThreadBroker, broker
from support.native import FACES, connected


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadBroker]:
    with broker({"group.min.session.timeout.ms": "1000"}) as started:
        yield started


@pytest.fixture(params=FACES)
async def client(request: pytest.FixtureRequest, running: ThreadBroker) -> AsyncIterator[Any]:
    async with connected(request.param, running.grpc) as connection:
        yield connection


_names = iter(range(1_000_000))


@pytest.fixture
async def topic(client: Any) -> str:
    """Of one partition with 20 records, each in a batch of its own."""
    name = f"consumer-{next(_names)}"
    await client.manager.create_topic(name)
    async with client.producer(linger_ms=0) as producer:
        for number in range(20):
            await (await producer.publish(name, b"%d" % number))
    return name


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not there() and time.monotonic() < deadline:
        threading.Event().wait(0.01)


async def offset_of(client: Any, group: str) -> int:
    return int((await client.manager.offsets(group))[0].committed)


async def test_what_a_failed_run_did_not_handle_comes_to_the_next(client: Any, topic: str) -> None:
    seen: list[int] = []
    arrived = threading.Event()

    def handle(record: levada.Record) -> None:
        seen.append(record.offset)
        if record.offset == 5 and seen.count(5) == 1:
            arrived.wait(0.3)  # so that there are chunks in its line, and it is held back
            raise ZeroDivisionError
        if record.offset == 19:
            consumer.stop()

    async with client.consumer(topic, group=topic) as consumer:
        with pytest.raises(ZeroDivisionError):
            await consumer.run(handle)
        assert await offset_of(client, topic) == 5
        async with asyncio.timeout(60):
            await consumer.run(handle)
    assert seen == [*range(6), *range(5, 20)]
    assert await offset_of(client, topic) == 20


async def test_after_run_was_stopped_poll_goes_on_behind_it(client: Any, topic: str) -> None:
    seen: list[int] = []

    def handle(record: levada.Record) -> None:
        seen.append(record.offset)
        if record.offset == 4:
            consumer.stop()
        threading.Event().wait(0.02)

    async with client.consumer(topic, group=topic) as consumer:
        await consumer.run(handle)
        async with asyncio.timeout(60):
            while seen[-1] != 19:
                seen += [record.offset for record in await consumer.poll()]
    assert seen == list(range(20))


async def test_run_begins_with_what_is_left_of_the_chunk_in_hand(client: Any, topic: str) -> None:
    seen: list[int] = []
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"x"] * 10)

    def handle(record: levada.Record) -> None:
        seen.append(record.offset)
        if record.offset == 29:
            consumer.stop()

    async with client.consumer(topic, group=topic) as consumer:
        async for record in consumer:
            seen.append(record.offset)
            if record.offset == 22:
                break
        async with asyncio.timeout(60):
            await consumer.run(handle)
    assert seen == list(range(30))


async def test_a_partition_that_is_paused_while_run_goes_on_loses_nothing(client: Any, topic: str) -> None:
    seen: list[int] = []
    reached, resumed = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def handle(record: levada.Record) -> None:
        seen.append(record.offset)
        if record.offset == 3:
            loop.call_soon_threadsafe(reached.set)
            resumed.wait(20)
        if record.offset == 19:
            consumer.stop()

    async with client.consumer(topic, group=topic) as consumer:
        run = asyncio.ensure_future(consumer.run(handle))
        await reached.wait()
        await consumer.pause(topic)
        resumed.set()
        await asyncio.wait([run], timeout=0.3)
        assert seen == [0, 1, 2, 3]
        await consumer.resume(topic)
        await asyncio.wait_for(run, 20)
    assert seen == list(range(20))


async def test_seek_and_pause_hold_for_the_chunk_in_hand(client: Any, topic: str) -> None:
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"x"] * 10)
    seen: list[int] = []
    async with client.consumer(topic, group=topic) as consumer:
        async for record in consumer:
            seen.append(record.offset)
            if record.offset == 22:
                if seen.count(22) == 2:
                    break
                await consumer.seek(topic, 0, 20)
        assert seen == [*range(23), 20, 21, 22]
        await consumer.pause(topic)
        assert await consumer.poll(timeout_ms=100) == []
        await consumer.resume(topic)
        async for record in consumer:
            seen.append(record.offset)
            if record.offset == 24:
                await consumer.pause(topic)
                asyncio.get_running_loop().call_later(0.3, consumer.stop)
        assert seen[26:] == [23, 24]


async def test_close_ends_run_from_anywhere(client: Any, topic: str) -> None:
    seen: list[int] = []
    fifth = threading.Event()

    async def handle_async(record: levada.Record) -> None:
        seen.append(record.offset)
        if record.offset == 4:
            fifth.set()
            await consumer.close()

    def handle(record: levada.Record) -> None:
        seen.append(record.offset)
        if record.offset == 4:
            fifth.set()
            consumer._face.close()

    consumer = client.consumer(topic, group=topic)
    async with asyncio.timeout(60):
        await consumer.run(handle if hasattr(consumer, "_face") else handle_async)
    assert await offset_of(client, topic) == len(seen) >= 5

    consumer = client.consumer(topic, group=topic)
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    run = asyncio.ensure_future(consumer.run(lambda _record: loop.call_soon_threadsafe(begun.set)))
    async with asyncio.timeout(60):
        await begun.wait()
        await consumer.close()
        await run
    assert (await client.manager.group(topic)).members == []


@pytest.mark.parametrize("face", FACES)
async def test_close_does_not_wait_for_a_broker_that_is_gone(face: str) -> None:
    with ExitStack() as stack:
        started = stack.enter_context(broker())
        async with connected(face, started.grpc) as client:
            await client.manager.create_topic("t")
            async with client.producer() as producer:
                await producer.publish_many("t", [b"x"] * 10)
            consumer = client.consumer("t", group="g", auto_commit_ms=60_000)
            await consumer.poll(timeout_ms=10_000)
            await asyncio.to_thread(stack.close)
            begun = time.monotonic()
            await consumer.close()
            assert time.monotonic() - begun < 25, "it waited as long as for a broker that is there"


async def test_read_reads_all_partitions_unless_one_is_named(client: Any, topic: str) -> None:
    name = f"{topic}-all"
    await client.manager.create_topic(name, partitions=3)
    async with client.producer() as producer:
        for partition in range(3):
            await producer.publish_many(name, [b"%d" % n for n in range(5)], partition=partition)
    places = [(partition, offset) for partition in range(3) for offset in range(5)]
    assert [(each.partition, each.offset) for each in await client.read(name)] == places
    assert [(each.partition, each.offset) for each in await client.read(name, limit=7)] == places[:7]
    assert [each.partition for each in await client.read(name, partition=1)] == [1] * 5
    assert [(each.partition, each.offset) for each in await client.read(name, offset=4)] == [(0, 4), (1, 4), (2, 4)]


async def test_read_of_all_partitions_waits_for_the_first_record(client: Any, topic: str) -> None:
    name = f"{topic}-late"
    await client.manager.create_topic(name, partitions=3)
    assert await client.read(name) == []
    waiting = asyncio.ensure_future(client.read(name, wait_ms=20_000))
    async with client.producer() as producer:
        await (await producer.publish(name, b"late", partition=2))
    assert [(each.partition, each.value) for each in await asyncio.wait_for(waiting, 60)] == [(2, b"late")]


@pytest.mark.parametrize("reads", ["iterate", "poll", "run", "commit"])
async def test_a_member_that_joins_goes_on_behind_what_the_others_have_done(
    client: Any, topic: str, reads: str
) -> None:
    name = f"{topic}-shared"
    await client.manager.create_topic(name, partitions=4)
    async with client.producer() as producer:
        for partition in range(4):
            await producer.publish_many(name, [b"x"] * 200, partition=partition)
    seen: list[tuple[int, int]] = []
    members: list[Any] = []

    def handle(record: levada.Record) -> None:
        seen.append((record.partition, record.offset))
        if len(seen) >= 800:
            for member in members:
                member.stop()
        threading.Event().wait(0.001)

    async def read(member: Any) -> None:
        if reads == "run":
            await member.run(handle)
        elif reads == "iterate":
            async for record in member:
                await asyncio.to_thread(handle, record)
        else:
            while len(seen) < 800:
                records = await member.poll(10, 50)
                for record in records:
                    await asyncio.to_thread(handle, record)
                if records and reads == "commit":
                    await member.commit()

    async with asyncio.timeout(50):
        reading = []
        for count in (50, 200, 800):
            member = client.consumer(
                name, group=name, records_max=20, auto_commit=reads != "commit", auto_commit_ms=60_000
            )
            members.append(member)
            reading.append(asyncio.ensure_future(read(member)))
            await asyncio.to_thread(until, lambda count=count: len(seen) >= count)
        await asyncio.gather(*reading)
        for member in members:
            await member.close()
    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(200)]


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[ThreadBroker]:
    """Topic t of two partitions of ten records, a batch each; the first is damaged in its fourth."""
    with broker(data=tmp_path) as whole, levada.connect(whole.grpc) as client:
        client.manager.create_topic("t", partitions=2)
        path = whole.data / "topics/t-0/00000000000000000000.log"
        with client.producer(linger_ms=0) as producer:
            for number in range(10):
                if number == 3:
                    position = path.stat().st_size
                for partition in range(2):
                    producer.publish("t", b"%d" % number, partition=partition).result()
    held = bytearray(path.read_bytes())
    held[position + 65] ^= 0xFF  # in its records
    path.write_bytes(held)
    with broker(data=tmp_path) as started:
        yield started


@pytest.mark.parametrize("face", FACES)
async def test_a_damaged_partition_is_told_of_once_and_the_others_go_on(face: str, damaged: ThreadBroker) -> None:
    async with connected(face, damaged.grpc) as client, client.consumer("t", group="g") as consumer:
        seen: list[tuple[int, int]] = []

        async def poll(count: int) -> None:
            async with asyncio.timeout(60):
                while len(seen) < count:
                    seen.extend((each.partition, each.offset) for each in await consumer.poll(timeout_ms=1_000))

        with pytest.raises(DamagedLog) as told:
            await poll(20)
        assert "t-0" in str(told.value) and "other partitions can be read on" in told.value.__notes__[0]
        await poll(13)
        async with client.producer(linger_ms=0) as producer:
            await (await producer.publish("t", b"10", partition=1))
        await poll(14)
        assert sorted(seen) == [*((0, offset) for offset in range(3)), *((1, offset) for offset in range(11))]
        await consumer.commit()
        assert [each.committed for each in await client.manager.offsets("g")] == [3, 11]
        await consumer.seek("t", 0, 2)
        with pytest.raises(DamagedLog):
            await poll(20)
        assert seen[-1] == (0, 2)


@pytest.mark.parametrize("face", FACES)
async def test_run_raises_that_a_partition_is_damaged_and_can_be_called_again(face: str, damaged: ThreadBroker) -> None:
    async with connected(face, damaged.grpc) as client, client.consumer("t", group="g") as consumer:
        seen: set[tuple[int, int]] = set()

        def handle(record: levada.Record) -> None:
            seen.add((record.partition, record.offset))
            if (1, 10) in seen:
                getattr(consumer, "_face", consumer).stop()

        with pytest.raises(DamagedLog):
            async with asyncio.timeout(60):
                await consumer.run(handle)
        async with client.producer(linger_ms=0) as producer:
            await (await producer.publish("t", b"10", partition=1))
        async with asyncio.timeout(60):
            await consumer.run(handle)
        assert seen == {*((0, offset) for offset in range(3)), *((1, offset) for offset in range(11))}
