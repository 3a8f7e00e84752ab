"""What the Python producer promises when the broker, its disk, a connection or a topic's settings let it down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import levada
from levada.client.channel import Backoff
from levada.client.lanes import Lanes
from levada.client.route import REQUEST_BYTES_MAX
from levada.engine.embedded.partition import Partition
from levada.errors import ConnectionLost, InvalidRequest, RecordTooLarge, StorageFailed, UnknownTopic
from levada.fronts.rpc.memory import BYTES_MAX
from levada.routing import ROUTERS
from levada.testing import ThreadBroker, broker
from support.broker import running as running_here
from support.native import FACES, connected


class Disk:
    """Fails to make these partitions durable, once their records are written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing: set[tuple[str, int]] = set()
        sync = Partition.sync

        def failing(partition: Partition) -> Any:
            if tuple(partition.at) in self.failing:
                raise OSError(5, "Input/output error")
            return sync(partition)

        monkeypatch.setattr(Partition, "sync", failing)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def running() -> Iterator[ThreadBroker]:
    with broker({"levada.durability": "fsync"}) as started:
        yield started


@pytest.fixture(params=FACES)
async def client(request: pytest.FixtureRequest, running: ThreadBroker) -> AsyncIterator[Any]:
    async with connected(request.param, running.grpc) as connection:
        yield connection


async def values(client: Any, topic: str, partition: int = 0) -> list[bytes]:
    return [record.value for record in await client.read(topic, partition)]


def lose_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next answer comes to nobody: the connection is lost with it."""
    take = Lanes.take

    def lose(self: Lanes, answer: Any) -> None:
        monkeypatch.setattr(Lanes, "take", take)
        raise ConnectionLost("lost with the answer")

    monkeypatch.setattr(Lanes, "take", lose)


async def test_what_was_stored_and_then_refused_hides_no_later_record(
    client: Any, running: ThreadBroker, disk: Disk
) -> None:
    await client.manager.create_topic("t")
    async with client.producer(linger_ms=0) as producer:
        await (await producer.publish("t", b"first"))
        disk.failing.add(("t", 0))
        with pytest.raises(StorageFailed):
            await (await producer.publish("t", b"written, not durable"))
        disk.failing.clear()
        await asyncio.to_thread(running.stop)
        await asyncio.to_thread(running.start)
        told = [await (await producer.publish("t", value)) for value in (b"second", b"third")]
    stored = {record.offset: record.value for record in await client.read("t")}
    assert [stored.get(position.offset) for position in told] == [b"second", b"third"]
    assert [position.duplicate for position in told] == [False, False]


async def test_what_shared_a_request_with_a_refused_batch_is_no_duplicate(client: Any, disk: Disk) -> None:
    await client.manager.create_topic("t", partitions=2)
    async with client.producer(linger_ms=60_000) as producer:
        for partition in (0, 1):
            await producer.publish("t", b"before", partition=partition)
        await producer.flush()
        disk.failing.add(("t", 1))
        stored = await producer.publish("t", b"once", partition=0)
        refused = await producer.publish("t", b"not durable", partition=1)
        with pytest.raises(StorageFailed):
            await producer.flush()
        assert (await stored)[2:] == (1, False)
        with pytest.raises(StorageFailed):
            await refused
    assert await values(client, "t") == [b"before", b"once"]
    disk.failing.clear()


async def test_a_repeated_message_whose_answer_was_lost_is_told_where_its_first_copy_lies(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.manager.create_topic("t", settings={"levada.dedup": "id"})
    async with client.producer(linger_ms=0) as producer:
        first = await (await producer.publish("t", b"v", message_id="a"))
        lose_an_answer(monkeypatch)
        assert await (await producer.publish("t", b"v again", message_id="a")) == first._replace(duplicate=True)
        lose_an_answer(monkeypatch)
        new = await (await producer.publish("t", b"w", message_id="b"))
    assert not new.duplicate
    assert [(record.offset, record.value) for record in await client.read("t")] == [(0, b"v"), (new.offset, b"w")]


async def test_a_repeat_is_answered_also_where_the_rules_became_stricter(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.manager.create_topic("t")
    async with client.producer(linger_ms=0) as producer:
        await (await producer.publish("t", b"before"))
        take = Lanes.take
        altered = threading.Event()

        def lose(self: Lanes, answer: Any) -> None:
            monkeypatch.setattr(Lanes, "take", take)
            monkeypatch.setattr(Backoff, "after", lambda _self, _error: 0.5)
            altered.set()
            raise ConnectionLost("lost with the answer")

        monkeypatch.setattr(Lanes, "take", lose)
        delivery = await producer.publish("t", b"x" * 1_000)
        await asyncio.to_thread(altered.wait, 60)
        await client.manager.alter_topic("t", set={"max.message.bytes": 100})
        assert (await delivery)[1:] == (0, 1, False)
    assert await values(client, "t") == [b"before", b"x" * 1_000]


@pytest.mark.parametrize(
    ("setting", "value", "holds"),
    [
        ("levada.router", "murmur2", lambda position: position.partition == ROUTERS["murmur2"](b"k0", 12)),
        ("max.message.bytes", "100", None),
    ],
)
async def test_a_setting_that_was_altered_reaches_a_running_producer(
    client: Any, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, holds: Any
) -> None:
    monkeypatch.setattr("levada.client.routes.MAX_AGE_S", 0.0)
    assert ROUTERS["murmur2"](b"k0", 12) != ROUTERS["fnv1a64"](b"k0", 12)
    await client.manager.create_topic("t", partitions=12)
    async with client.producer(linger_ms=0) as producer, asyncio.timeout(60):
        await (await producer.publish("t", b"v", key=b"k0"))
        await client.manager.alter_topic("t", set={setting: value})
        if holds is not None:
            while not holds(await (await producer.publish("t", b"v", key=b"k0"))):
                pass
            return
        with pytest.raises(RecordTooLarge, match=r"at most 100 \(max.message.bytes\)"):
            while True:  # until the client itself refuses it, before it is sent
                delivery = await producer.publish("t", b"v" * 200, partition=0)
                with pytest.raises(RecordTooLarge):
                    await delivery


async def test_new_partitions_reach_a_producer_of_records_with_keys_with_the_next_answer(client: Any) -> None:
    await client.manager.create_topic("t", partitions=1)
    async with (
        client.producer(linger_ms=0) as producer,
        asyncio.timeout(60),
    ):  # what is asked from time to time is asked after 30 s
        await (await producer.publish("t", b"v", key=b"user-123"))
        await client.manager.expand_topic("t", 12)
        while (await (await producer.publish("t", b"v", key=b"user-123"))).partition != 7:
            pass


async def test_a_record_larger_than_a_message_is_refused_at_once_and_holds_up_nobody(client: Any) -> None:
    await client.manager.create_topic("t", settings={"max.message.bytes": 200_000_000})
    async with client.producer() as producer:
        for size in (REQUEST_BYTES_MAX, REQUEST_BYTES_MAX + 1):
            with pytest.raises(RecordTooLarge, match=rf"{size} bytes.*at most {REQUEST_BYTES_MAX}"):
                await producer.publish("t", bytes(size))
        with pytest.raises(RecordTooLarge, match="at most"):
            await producer.publish_many("t", [bytes(REQUEST_BYTES_MAX)])
        assert (await (await producer.publish("t", b"small"))).offset == 0


async def test_a_request_that_the_broker_does_not_take_fails_alone(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("route", "producer"):
        monkeypatch.setattr(f"levada.client.{module}.BATCH_BYTES_MAX", 10 * REQUEST_BYTES_MAX)
    await client.manager.create_topic("large", settings={"max.message.bytes": 200_000_000})
    await client.manager.create_topic("small")
    async with client.producer(buffer_bytes=2 * REQUEST_BYTES_MAX) as producer, asyncio.timeout(60):
        large = await producer.publish("large", bytes(REQUEST_BYTES_MAX))
        small = [await producer.publish("small", b"v") for _ in range(3)]
        with pytest.raises(RecordTooLarge, match=f"at most {REQUEST_BYTES_MAX} are taken"):
            await large
        assert [(await each).offset for each in small] == [0, 1, 2]
        assert (await (await producer.publish("large", b"v"))).offset == 0


async def test_the_largest_record_that_is_not_refused_is_stored(client: Any) -> None:
    await client.manager.create_topic("t", settings={"max.message.bytes": 200_000_000})
    size = REQUEST_BYTES_MAX - 8_192
    async with client.producer(buffer_bytes=2 * REQUEST_BYTES_MAX) as producer:
        assert (await (await producer.publish("t", bytes(size)))).offset == 0


async def test_a_producer_outlives_a_broker_that_reads_nothing_for_longer_than_an_answer_may_take(
    tmp_path: Path,
) -> None:
    """What it writes then is cut off in the middle, and sent again."""
    async with running_here(tmp_path, {"max.message.bytes": "20000000"}) as server:
        assert server._rpc is not None
        memory = server._rpc.calls.memory
        async with levada.aio.connect("{}:{}".format(*server.addresses["grpc"])) as client:
            await client.manager.create_topic("t")
            memory.take(BYTES_MAX)
            async with client.producer(request_timeout_ms=200) as producer:
                delivery = await producer.publish("t", bytes(5_000_000))
                await asyncio.sleep(1)
                memory.give(BYTES_MAX)
                async with asyncio.timeout(60):
                    assert (await delivery).offset == 0
            assert len(await client.read("t", 0)) == 1


def test_flush_waits_for_what_was_published_before_it_alone(running: ThreadBroker) -> None:
    with levada.connect(running.grpc) as client, client.producer(linger_ms=1) as producer:
        client.manager.create_topic("t")
        flushed = threading.Event()
        published = threading.Event()

        def publish() -> None:
            while not flushed.is_set():
                producer.publish("t", b"v")
                published.set()

        publishing = threading.Thread(target=publish)
        publishing.start()
        try:
            assert published.wait(60)
            producer.flush(30)
        finally:
            flushed.set()
            publishing.join()


async def test_an_unknown_topic_comes_with_the_name_that_was_meant(client: Any) -> None:
    await client.manager.create_topic("orders")
    meant = r"there is no topic 'order'; did you mean orders\?"
    async with client.producer() as producer:
        with pytest.raises(UnknownTopic, match=meant):
            await producer.publish("order", b"v")
    for group in ("", "g"):
        with pytest.raises(UnknownTopic, match=meant):
            async with client.consumer("order", group=group) as consumer:
                await consumer.poll(timeout_ms=5_000)
    with pytest.raises(UnknownTopic, match=meant):
        await client.manager.topic("order")


async def test_a_closed_client_says_so_whatever_it_is_asked(running: ThreadBroker) -> None:
    client = await levada.aio.connect(running.grpc)
    await client.close()
    for call in (client.manager.topics, lambda: client.read("t"), lambda: client.manager.create_topic("t")):
        with pytest.raises(InvalidRequest, match=r"client of .* is closed"):
            await call()
    for make in (client.producer, lambda: client.consumer("t")):
        with pytest.raises(InvalidRequest, match=r"client of .* is closed"):
            make()
