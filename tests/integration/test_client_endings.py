"""The native client at its ends: whatever is cancelled, closed, raised or forked, nobody waits for ever and nothing is left out."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import levada
from levada.client.client import AsyncClient
from levada.client.records import Record
from levada.errors import ConnectionLost, InvalidRequest, LevadaError
from levada.testing import ThreadBroker, broker

WAIT_S = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadBroker]:
    with broker({"levada.durability": "os"}) as started:
        yield started


@pytest.fixture
async def client(running: ThreadBroker) -> AsyncIterator[AsyncClient]:
    async with levada.aio.connect(running.grpc) as connection:
        yield connection


@pytest.fixture
def topic(running: ThreadBroker, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.name))}"
    with levada.connect(running.grpc) as connection:
        connection.manager.create_topic(name, partitions=1)
    return name


async def fill(client: AsyncClient, topic: str, count: int) -> None:
    async with client.producer() as producer:
        await (await producer.publish_many(topic, [b"%d" % number for number in range(count)]))


async def committed(client: AsyncClient, group: str) -> int:
    [offset] = await client.manager.offsets(group)
    assert offset.committed is not None
    return offset.committed


# Tasks that somebody else cancels


def cancel_others(prefix: str) -> None:
    """As those do who cancel all tasks of a loop."""
    for task in asyncio.all_tasks():
        if task.get_name().startswith(prefix):
            task.cancel()


async def test_a_sender_that_somebody_cancels_fails_what_it_had_and_the_next_begins_anew(
    client: AsyncClient, topic: str
) -> None:
    async with asyncio.timeout(WAIT_S), client.producer() as producer:
        await (await producer.publish(topic, b"first", partition=0))
        cancel_others("levada-sender")
        await asyncio.sleep(0.05)
        await (await producer.publish(topic, b"second", partition=0))
    assert [record.value for record in await client.read(topic, 0)] == [b"first", b"second"]


async def test_a_consumer_whose_feed_somebody_cancels_says_so(client: AsyncClient, topic: str) -> None:
    consumer = client.consumer(topic, group=topic)
    await consumer.ready()
    cancel_others("levada-feed")
    with pytest.raises(LevadaError, match="levada-feed failed"):
        await consumer.poll(timeout_ms=5_000)
    await consumer.close()


# Closing


async def test_closing_the_client_sends_what_a_forgotten_producer_has(running: ThreadBroker, topic: str) -> None:
    async def forget(client: AsyncClient) -> None:
        producer = client.producer(linger_ms=60_000)
        for number in range(10):
            await producer.publish(topic, b"%d" % number)

    async with levada.aio.connect(running.grpc) as client:
        await forget(client)
    async with levada.aio.connect(running.grpc) as client:
        assert len(await client.read(topic, 0)) == 10


async def test_a_producer_that_closes_takes_no_more(client: AsyncClient, topic: str) -> None:
    producer = client.producer(linger_ms=60_000)
    taken = await producer.publish(topic, b"taken")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    with pytest.raises(InvalidRequest, match="the producer is closed"):
        await producer.publish(topic, b"refused")
    await producer.close()
    assert closing.done() or await asyncio.wait_for(closing, WAIT_S) is None
    assert (await taken).offset == 0
    assert [record.value for record in await client.read(topic, 0)] == [b"taken"]


def test_a_producer_that_closes_while_a_thread_is_in_its_serializer_takes_no_more(
    running: ThreadBroker, topic: str
) -> None:
    inside, goes_on = threading.Event(), threading.Event()

    class Slow:
        def dumps(self, value: Any) -> bytes:
            inside.set()
            assert goes_on.wait(WAIT_S)
            return b"slow"

        def loads(self, data: bytes) -> Any:
            return data

    refused: list[BaseException] = []

    def publish() -> None:
        try:
            producer.publish(topic, "slow").result(WAIT_S)
        except LevadaError as error:
            refused.append(error)

    client = levada.connect(running.grpc)
    producer = client.producer(value=Slow())
    producer.publish(topic, None).result(WAIT_S)
    thread = threading.Thread(target=publish)
    thread.start()
    assert inside.wait(WAIT_S)
    client.close()
    goes_on.set()
    thread.join(WAIT_S)
    assert [str(error) for error in refused] == ["the producer is closed"]


@pytest.mark.parametrize("ticks", range(1, 8))
async def test_deliveries_are_settled_though_closing_is_cancelled_twice(
    client: AsyncClient, topic: str, ticks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    producer = client.producer()
    await (await producer.publish(topic, b"known"))
    monkeypatch.setattr("levada.client.channel.Stream.read", never)
    monkeypatch.setattr("levada.client.shortcut._Link.answer", never)
    delivery = await producer.publish(topic, b"unanswered")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0.05)
    closing.cancel()
    for _ in range(ticks):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing], timeout=WAIT_S)
    assert closing.done()
    with pytest.raises(ConnectionLost, match="may be stored or not"):
        async with asyncio.timeout(WAIT_S):
            await delivery


# Handlers and callbacks


class Handler:
    """An object that is called, and awaited."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.enough = asyncio.Event()

    async def __call__(self, record: Record) -> None:
        await asyncio.sleep(0)
        self.handled.append(record.offset)
        if len(self.handled) == 3:
            self.enough.set()


async def test_a_handler_that_is_an_object_with_an_async_call_is_awaited(client: AsyncClient, topic: str) -> None:
    await fill(client, topic, 3)
    handler = Handler()
    async with client.consumer(topic, group=topic) as consumer:
        run = asyncio.create_task(consumer.run(handler))
        await asyncio.wait_for(handler.enough.wait(), WAIT_S)
        consumer.stop()
        await run
    assert handler.handled == [0, 1, 2]


async def test_a_handler_that_returns_something_nobody_awaits_is_refused(client: AsyncClient, topic: str) -> None:
    await fill(client, topic, 3)

    async def work(record: Record) -> None:
        raise AssertionError("nobody awaits it")

    consumer = client.consumer(topic, group=topic)
    with pytest.raises(InvalidRequest, match="must be an `async def`"):
        await asyncio.wait_for(consumer.run(lambda record: work(record)), WAIT_S)
    await consumer.close()
    assert await client.manager.offsets(topic) == [] or await committed(client, topic) == 0


async def test_a_handler_that_waits_for_what_is_cancelled_fails(client: AsyncClient, topic: str) -> None:
    await fill(client, topic, 3)

    async def handler(record: Record) -> None:
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    async with client.consumer(topic, group=topic) as consumer:
        with pytest.raises(LevadaError, match="the handler was cancelled by something that it waited for"):
            await asyncio.wait_for(consumer.run(handler), WAIT_S)


def test_sys_exit_in_a_handler_or_a_callback_does_not_end_the_clients_thread(running: ThreadBroker, topic: str) -> None:
    def leave(_: object) -> None:
        sys.exit(3)

    with levada.connect(running.grpc) as client:
        with client.producer() as producer:
            delivery = producer.publish(topic, b"0")
            delivery.add_callback(leave)
            assert delivery.result(WAIT_S).offset == 0
        with client.consumer(topic, group=topic) as consumer, pytest.raises(SystemExit):
            consumer.run(leave)
        assert [record.value for record in client.read(topic, 0)] == [b"0"]


async def test_a_callback_that_is_cancelled_stops_nobodys_delivery(client: AsyncClient, topic: str) -> None:
    def cancelled(_: object) -> None:
        raise asyncio.CancelledError

    async with asyncio.timeout(WAIT_S), client.producer(linger_ms=60_000) as producer:
        deliveries = [await producer.publish(topic, b"%d" % number) for number in range(4)]
        for delivery in deliveries:
            delivery.add_callback(cancelled)
        await producer.flush()
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2, 3]


async def test_a_log_that_cannot_be_written_stops_nobodys_delivery(
    client: AsyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_pipe(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("structlog.get_logger", broken_pipe)
    async with asyncio.timeout(WAIT_S), client.producer() as producer:
        delivery = await producer.publish(topic, b"0")
        delivery.add_callback(lambda _: 1 // 0)
        assert (await delivery).offset == 0
        assert (await (await producer.publish(topic, b"1"))).offset == 1


# run() that is cancelled


async def test_close_ends_though_run_is_cancelled_meanwhile(client: AsyncClient, topic: str) -> None:
    await fill(client, topic, 1)
    at = asyncio.Event()

    async def handler(record: Record) -> None:
        at.set()
        await asyncio.sleep(0.5)

    consumer = client.consumer(topic, group=topic)
    run = asyncio.create_task(consumer.run(handler))
    await at.wait()
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0.05)
    run.cancel()
    await asyncio.wait([run, closing], timeout=WAIT_S)
    assert run.cancelled()
    assert closing.done()


async def test_what_run_had_is_read_on_though_it_is_cancelled_twice(client: AsyncClient, topic: str) -> None:
    await fill(client, topic, 5)
    at = asyncio.Event()

    async def handler(record: Record) -> None:
        at.set()
        await asyncio.sleep(0.5)

    async with client.consumer(topic, group=topic) as consumer:
        run = asyncio.create_task(consumer.run(handler))
        await at.wait()
        run.cancel()
        await asyncio.sleep(0.05)
        run.cancel()
        await asyncio.wait([run])
        read: list[int] = []
        while not read or read[-1] < 4:
            read += [record.offset for record in await consumer.poll(timeout_ms=5_000)]
    # The first may come again: its handler was still at it.
    assert read in ([0, 1, 2, 3, 4], [1, 2, 3, 4])


# Other loops and other processes


def test_a_blocking_producers_delivery_can_be_awaited(running: ThreadBroker, topic: str) -> None:
    async def wait(delivery: Any) -> Any:
        return await delivery

    with levada.connect(running.grpc) as client, client.producer(linger_ms=200) as producer:
        assert asyncio.run(asyncio.wait_for(wait(producer.publish(topic, b"0")), WAIT_S)).offset == 0


def test_a_delivery_from_before_a_fork_is_refused_in_the_child(running: ThreadBroker, topic: str) -> None:
    with levada.connect(running.grpc) as client, client.producer(linger_ms=500) as producer:
        delivery = producer.publish(topic, b"0")
        child = os.fork()
        if child == 0:
            try:
                delivery.result()
            except InvalidRequest:
                os._exit(42)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
        assert delivery.result(WAIT_S).offset == 0


# Seeking


async def test_a_seek_back_outlives_the_broker() -> None:
    """The group's own offset, which is ahead then, is nobody's who has read on."""
    with broker({"levada.durability": "os"}, process=True) as running:
        async with levada.aio.connect(running.grpc) as client:
            await client.manager.create_topic("t", partitions=1)
            await fill(client, "t", 3_000)
            async with client.consumer("t", group="g", auto_commit=False, records_max=100) as consumer:
                read = 0
                while read < 3_000:
                    read += len(await consumer.poll(500, timeout_ms=5_000))
                await consumer.commit()
                await consumer.seek("t", 0, 10)
                seen = [record.offset for record in await consumer.poll(5, timeout_ms=5_000)]
                running.kill()
                running.start()
                while len(seen) < 2_990:
                    records = await consumer.poll(500, timeout_ms=20_000)
                    assert records, f"nothing comes behind {seen[-1]}"
                    seen += [record.offset for record in records]
    assert seen == list(range(10, 3_000))
