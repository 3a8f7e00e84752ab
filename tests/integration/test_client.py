"""The Python client against a real broker: every scenario with both of its faces."""

from __future__ import annotations

import asyncio
import inspect
import textwrap
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import levada
from levada.client import aio, faces
from levada.errors import (
    GroupKindMismatch,
    IllegalGeneration,
    InvalidRecord,
    InvalidRequest,
    OffsetOutOfRange,
    Overloaded,
    PartitionsCannotShrink,
    RecordTooLarge,
    TimedOut,
    UnknownPartition,
    UnknownTopic,
    Unreachable,
)
from levada.testing import ThreadBroker, broker
from support.native import FACES, connected
from support.tcp_proxy import TcpProxy


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
def topic() -> str:
    return f"topic-{next(_names)}"


async def read_all(client: Any, topic: str, partitions: int = 1) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for partition in range(partitions):
        found[partition] = []
        while more := await client.read(topic, partition, len(found[partition]), limit=10_000, bytes_max=10_000_000):
            found[partition] += more
    return found


async def take(consumer: Any, count: int) -> list[levada.Record]:
    """So many records, polled."""
    records: list[levada.Record] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            records += await consumer.poll(count - len(records), timeout_ms=200)
    return records


# Publishing


async def test_a_record_is_published_and_read(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer(key=levada.STR, value=levada.JSON) as producer:
        delivery = await producer.publish(
            topic, {"id": 7}, key="user-1", headers={"trace": "t", "none": None}, timestamp_ms=1_700_000_000_000
        )
        assert await delivery == levada.Position(topic, 0, 0, False)
    (record,) = await client.read(topic, 0, 0, key=levada.STR, value=levada.JSON)
    assert record == levada.Record(
        topic, 0, 0, 1_700_000_000_000, "user-1", {"id": 7}, (("trace", b"t"), ("none", None))
    )


async def test_null_keys_and_values_stay_null_and_empty_ones_empty(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        for key, value in ((None, None), (b"", b""), (b"k", None)):
            await producer.publish(topic, value, key=key)
    async with client.consumer(topic) as consumer:
        assert [(record.key, record.value) for record in await take(consumer, 3)] == [
            (None, None),
            (b"", b""),
            (b"k", None),
        ]


async def test_keys_go_where_the_topics_router_puts_them(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=12)
    async with client.producer(key=levada.STR, value=levada.STR) as producer:
        where = {
            key: (await (await producer.publish(topic, "v", key=key))).partition
            for key in ("user-123", "user-456", "order-123", "user:1")
        }
    assert where == {"user-123": 7, "user-456": 0, "order-123": 6, "user:1": 3}


async def test_a_topic_with_kafkas_router_is_routed_by_it(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=12, settings={"levada.router": "murmur2"})
    async with client.producer(key=levada.STR, value=levada.STR) as producer:
        delivery = await producer.publish(topic, "v", key="user-123")
        from levada.routing import partition_for

        assert (await delivery).partition == partition_for(b"user-123", "murmur2", 12)


async def test_keyless_records_are_spread_exactly_evenly_over_concurrent_producers(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=4)

    async def publish(number: int) -> list[levada.Position]:
        async with client.producer(linger_ms=number) as producer:
            deliveries = [await producer.publish(topic, b"%d" % n) for n in range(250)]
            return [await delivery for delivery in deliveries]

    found = await asyncio.gather(*(publish(number) for number in range(8)))
    assert Counter(position.partition for positions in found for position in positions) == dict.fromkeys(range(4), 500)
    stored = await read_all(client, topic, 4)
    assert {partition: len(records) for partition, records in stored.items()} == dict.fromkeys(range(4), 500)


async def test_keyless_zero_and_sticky(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=3, settings={"levada.keyless": "zero"})
    await client.manager.create_topic(f"{topic}-s", partitions=3, settings={"levada.keyless": "sticky"})
    async with client.producer() as producer:
        positions = await (await producer.publish_many(topic, [b"v"] * 9))
        assert {position.partition for position in positions} == {0}
        first = await (await producer.publish_many(f"{topic}-s", [b"v"] * 9))
        second = await (await producer.publish_many(f"{topic}-s", [b"v"] * 9))
    assert len({position.partition for position in first}) == 1
    assert {position.partition for position in first} != {position.partition for position in second}


async def test_an_explicit_partition_that_is_not_there_stores_nothing(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=2)
    async with client.producer() as producer:
        for partition in (2, -1, 99):
            with pytest.raises(UnknownPartition, match=f"partitions 0 to 1, not {partition}"):
                await producer.publish(topic, b"v", key=b"k", partition=partition)
        assert (await (await producer.publish(topic, b"v", key=b"k", partition=1))).partition == 1
    stored = await read_all(client, topic, 2)
    assert [len(records) for records in stored.values()] == [0, 1]


async def test_a_partition_that_was_added_meanwhile_can_be_named(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=1)
    async with client.producer() as producer:
        await (await producer.publish(topic, b"v"))
        await client.manager.expand_topic(topic, 3)
        assert (await (await producer.publish(topic, b"v", partition=2))).partition == 2


async def test_expansion_reaches_a_running_producer(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=2)
    async with client.producer() as producer:
        await (await producer.publish_many(topic, [b"v"] * 4))
        await client.manager.expand_topic(topic, 4)
        positions = await (await producer.publish_many(topic, [b"v"] * 8))
    assert {position.partition for position in positions} == {0, 1, 2, 3}


async def test_publish_many_keeps_order_and_tells_each_position(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=3)
    values = [b"%06d" % n for n in range(20_000)]
    async with client.producer(batch_bytes=4_096) as producer:
        deliveries = await producer.publish_many(topic, values)
        assert len(deliveries) == len(values)
        positions = await deliveries
    stored = await read_all(client, topic, 3)
    assert [stored[position.partition][position.offset].value for position in positions] == values
    for records in stored.values():
        assert [record.value for record in records] == sorted(record.value for record in records)


async def test_publish_many_with_keys(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=3)
    async with client.producer(key=levada.STR, value=levada.STR) as producer:
        positions = await (
            await producer.publish_many(topic, ["a", "b", "c"], keys=["user-123", "user-456", "user-123"])
        )
        with pytest.raises(InvalidRequest, match="2 keys for 1 values"):
            await producer.publish_many(topic, ["a"], keys=["k", "l"])
    assert [position.partition for position in positions] == [1, 0, 1]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read_back(client: Any, topic: str, compression: str) -> None:
    await client.manager.create_topic(topic)
    values = [b"value %d " % n * 5 for n in range(200)]
    async with client.producer(compression=compression) as producer:
        await producer.publish_many(topic, values)
    async with client.consumer(topic) as consumer:
        assert [record.value for record in await take(consumer, 200)] == values


async def test_a_repeated_message_id_answers_with_the_first_position(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=2, settings={"levada.dedup": "id"})
    async with client.producer() as producer:
        first = await (await producer.publish(topic, b"one", message_id="m-1", partition=1))
        other = await (await producer.publish(topic, b"other", message_id="m-2", partition=1))
        again = await (await producer.publish(topic, b"again", message_id="m-1", partition=1))
    assert (first, other) == (levada.Position(topic, 1, 0), levada.Position(topic, 1, 1))
    assert again == levada.Position(topic, 1, 0, duplicate=True)
    async with client.consumer(topic) as consumer:
        assert [record.value for record in await take(consumer, 2)] == [b"one", b"other"]


async def test_repeats_within_a_batch_are_told_record_by_record(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, settings={"levada.dedup": "id"})
    async with client.producer(linger_ms=1_000) as producer:
        deliveries = [await producer.publish(topic, b"%d" % n, message_id=f"m-{n % 3}") for n in range(5)]
        positions = [await delivery for delivery in deliveries]
    assert [position.duplicate for position in positions] == [False, False, False, True, True]
    assert positions[3].offset == positions[0].offset and positions[4].offset == positions[1].offset
    stored = {record.offset: record.value for record in await client.read(topic)}
    assert [stored[position.offset] for position in positions] == [b"0", b"1", b"2", b"0", b"1"]


async def test_what_the_broker_refuses_is_raised_by_the_delivery_and_order_goes_on(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, settings={"cleanup.policy": "compact"})
    async with client.producer(linger_ms=0) as producer:
        good = [await producer.publish(topic, b"%d" % n, key=b"k%d" % n) for n in range(20)]
        await good[-1]
        bad = await producer.publish(topic, b"no key, and the topic is compacted")
        with pytest.raises(InvalidRecord):
            await bad
        good += [await producer.publish(topic, b"%d" % n, key=b"k%d" % n) for n in range(20, 40)]
        assert [(await delivery).offset for delivery in good] == list(range(40))


async def test_flush_raises_a_refusal_that_nobody_asked_about(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, settings={"cleanup.policy": "compact"})
    async with client.producer() as producer:
        await producer.publish(topic, b"no key")
        with pytest.raises(InvalidRecord):
            await producer.flush()
        await producer.flush()


async def test_a_record_that_is_too_large_is_refused_with_size_and_limit(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, settings={"max.message.bytes": 10_000})
    async with client.producer() as producer:
        with pytest.raises(RecordTooLarge, match=r"20000 bytes.*10000"):
            await producer.publish(topic, b"x" * 20_000)
        with pytest.raises(RecordTooLarge):
            await producer.publish_many(topic, [b"fits", b"x" * 20_000])
        await (await producer.publish(topic, b"x" * 9_000))
    assert len(await client.read(topic)) == 1


async def test_an_unknown_topic_is_named(client: Any, topic: str) -> None:
    async with client.producer() as producer:
        with pytest.raises(UnknownTopic, match=topic):
            await producer.publish(topic, b"v")


async def test_a_full_buffer_waits_and_then_says_overloaded(running: ThreadBroker, client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer(linger_ms=60_000, buffer_bytes=2_000, max_block_ms=50) as producer:
        with pytest.raises(Overloaded, match="buffer_bytes is 2000"):
            for _ in range(100):
                await producer.publish(topic, b"x" * 100)


async def test_publish_many_larger_than_the_buffer_goes_through_it(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    values = [b"%06d" % n + b"x" * 94 for n in range(5_000)]
    async with client.producer(buffer_bytes=50_000, batch_bytes=10_000) as producer:
        await producer.publish_many(topic, values)
    assert [record.value for record in (await read_all(client, topic))[0]] == values


async def test_callbacks_are_called_and_may_not_wait_for_themselves(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    called = asyncio.Queue[Any]()
    loop = asyncio.get_running_loop()
    async with client.producer() as producer:
        delivery = await producer.publish(topic, b"v")
        delivery.add_callback(lambda done: loop.call_soon_threadsafe(called.put_nowait, done.result()))
        assert await asyncio.wait_for(called.get(), 60) == levada.Position(topic, 0, 0)


async def test_acks_none_are_answered_and_stored(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer(acks="none") as producer:
        await producer.publish_many(topic, [b"a", b"b"])
    async with client.consumer(topic) as consumer:
        assert [record.value for record in await take(consumer, 2)] == [b"a", b"b"]


async def test_a_closed_producer_says_so(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    producer = client.producer()
    await producer.publish(topic, b"v")
    await producer.close()
    await producer.close()
    with pytest.raises(InvalidRequest, match="producer is closed"):
        await producer.publish(topic, b"v")
    assert len(await client.read(topic)) == 1


async def test_bad_settings_are_refused_by_name(client: Any, topic: str) -> None:
    with pytest.raises(InvalidRequest, match="acks"):
        client.producer(acks="some")
    with pytest.raises(InvalidRequest, match="batch_bytes"):
        client.producer(batch_bytes=0)
    with pytest.raises(InvalidRequest, match="start"):
        client.consumer(topic, start="middle")
    with pytest.raises(InvalidRequest, match="partitions, not both"):
        client.consumer(topic, group="g", partitions=[0])


# Consuming


async def test_a_group_goes_on_where_it_has_committed(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"%d" % n for n in range(20)])
    async with client.consumer(topic, group=topic, auto_commit=False) as consumer:
        assert [record.offset for record in await take(consumer, 15)] == list(range(15))
        await consumer.commit({(topic, 0): 12})
    async with client.consumer(topic, group=topic, auto_commit=False) as consumer:
        assert [record.offset for record in await take(consumer, 8)] == list(range(12, 20))
        await consumer.commit()
    (row,) = await client.manager.offsets(topic, topic)
    assert (row.committed, row.lag) == (20, 0)


async def test_auto_commit_leaves_out_the_record_in_hand_when_the_user_fails(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"%d" % n for n in range(10)])
    with pytest.raises(ZeroDivisionError):
        async with client.consumer(topic, group=topic) as consumer:
            async for record in consumer:
                if record.offset == 5:
                    raise ZeroDivisionError
    (row,) = await client.manager.offsets(topic)
    assert row.committed == 5
    async with client.consumer(topic, group=topic) as consumer:
        async for record in consumer:
            if record.offset == 7:
                break
    (row,) = await client.manager.offsets(topic)
    assert row.committed == 8


async def test_auto_commit_happens_by_itself(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"%d" % n for n in range(10)])
    async with client.consumer(topic, group=topic, auto_commit_ms=20) as consumer:
        await take(consumer, 4)
        await take(consumer, 4)
        # What the last poll returned is still in hand.
        assert await committed(client, topic) == 4
        assert await consumer.poll(1) and await committed(client, topic, 8) == 8


async def committed(client: Any, group: str, at_least: int = 1) -> int:
    async with asyncio.timeout(60):
        while True:
            rows = await client.manager.offsets(group)
            if rows and (rows[0].committed or 0) >= at_least:
                return int(rows[0].committed)
            await asyncio.sleep(0.02)


async def test_start_latest_and_none(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        await (await producer.publish(topic, b"before"))
        async with client.consumer(topic, group=topic, start="latest") as consumer:
            await (await producer.publish(topic, b"after"))
            assert [record.value for record in await take(consumer, 1)] == [b"after"]
    with pytest.raises(OffsetOutOfRange) as refused:
        async with client.consumer(topic, group=f"{topic}-none", start="none") as consumer:
            await consumer.poll()
    assert (refused.value.start, refused.value.end) == (0, 2)


async def test_seek_goes_back_and_forth_and_stays_within_the_partition(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer(batch_bytes=200) as producer:
        await producer.publish_many(topic, [b"%d" % n for n in range(100)])
    async with client.consumer(topic) as consumer:
        assert [record.offset for record in await take(consumer, 10)] == list(range(10))
        await consumer.seek(topic, 0, 3)
        assert [record.offset for record in await take(consumer, 10)] == list(range(3, 13))
        await consumer.seek(topic, 0, 90)
        await consumer.seek(topic, 0, 50)
        assert [record.offset for record in await take(consumer, 50)] == list(range(50, 100))
        await consumer.seek(topic, 0, 99)
        assert [record.offset async for record in first(consumer, 1)] == [99]
        with pytest.raises(OffsetOutOfRange) as refused:
            await consumer.seek(topic, 0, 101)
        assert (refused.value.start, refused.value.end) == (0, 100)
        with pytest.raises(UnknownPartition, match=f"{topic}/0"):
            await consumer.seek(topic, 7, 0)


async def first(consumer: Any, count: int) -> AsyncIterator[levada.Record]:
    async for record in consumer:
        yield record
        count -= 1
        if not count:
            return


async def test_a_group_that_is_moved_while_it_reads_goes_on_from_there(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"%d" % n for n in range(50)])
    async with client.consumer(topic, group=topic, auto_commit=False) as consumer:
        await take(consumer, 50)
        assert await client.manager.seek(topic, topic, 20) == {levada.At(topic, 0): 20}
        assert [record.offset for record in await take(consumer, 30)] == list(range(20, 50))


async def test_a_paused_partition_keeps_quiet_and_loses_nothing(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=2)
    async with client.producer() as producer:
        for partition in (0, 1):
            await producer.publish_many(topic, [b"%d" % n for n in range(20)], partition=partition)
    async with client.consumer(topic) as consumer:
        (record,) = await take(consumer, 1)
        paused, other = record.partition, 1 - record.partition
        await consumer.pause(topic, paused)
        assert [(each.partition, each.offset) for each in await take(consumer, 20)] == [(other, n) for n in range(20)]
        assert await consumer.poll(timeout_ms=50) == []
        await consumer.resume(topic, paused)
        assert [(each.partition, each.offset) for each in await take(consumer, 19)] == [
            (paused, n) for n in range(1, 20)
        ]


async def test_without_a_group_partitions_are_chosen(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=3)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"v"] * 9)
    async with client.consumer(topic, partitions=[2]) as consumer:
        assert {record.partition for record in await take(consumer, 3)} == {2}
        assert await consumer.assignment() == [levada.At(topic, 2)]
        assert await consumer.lag() == {levada.At(topic, 2): 0}
        with pytest.raises(InvalidRequest, match="without a group"):
            await consumer.commit()


async def test_members_share_the_partitions_and_take_over(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=6)
    told: list[tuple[str, list[levada.At]]] = []
    async with client.consumer(
        topic,
        group=topic,
        on_assigned=lambda ats: told.append(("came", list(ats))),
        on_revoked=lambda ats: told.append(("went", list(ats))),
    ) as one:
        assert len(await one.assignment()) == 6
        async with client.consumer(topic, group=topic) as two:
            await until(lambda: _owns(one, 3))
            await until(lambda: _owns(two, 3))
            mine, others = await one.assignment(), await two.assignment()
            assert sorted(mine + others) == [levada.At(topic, n) for n in range(6)]
        await until(lambda: _owns(one, 6))
        await until(lambda: _async(len(told) >= 3))
    assert [kind for kind, _ in told] == ["came", "went", "came"]
    assert told[1][1] == told[2][1] == others


async def _owns(consumer: Any, count: int) -> bool:
    return len(await consumer.assignment()) == count


async def _async(found: bool) -> bool:
    return found


async def until(look: Any) -> None:
    async with asyncio.timeout(60):
        while not await look():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_expansion_reaches_a_running_group(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=1)
    async with client.consumer(topic, group=topic) as consumer, client.producer() as producer:
        await client.manager.create_topic(topic, partitions=3)
        await producer.publish(topic, b"new", partition=2)
        assert [record.partition for record in await take(consumer, 1)] == [2]


async def test_a_fixed_group_is_fenced_by_a_new_generation(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=6)
    old = await client.manager.register_group(topic, topic, 3)
    assert (await client.manager.register_group(topic, topic, 3)) == type(old)(generation=old.generation, same=True)
    async with client.consumer(topic, group=topic, consumer=1, generation=old.generation) as consumer:
        assert await consumer.assignment() == [levada.At(topic, 1), levada.At(topic, 4)]
        new = await client.manager.register_group(topic, topic, 2)
        assert new.generation > old.generation
        with pytest.raises(IllegalGeneration):
            async with asyncio.timeout(60):
                while True:
                    await consumer.poll()
    with pytest.raises(GroupKindMismatch):
        async with client.consumer(topic, group=topic):
            pass


async def test_handlers_keep_the_order_of_each_partition_and_commit_what_they_finished(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=4)
    async with client.producer(batch_bytes=500) as producer:
        await producer.publish_many(topic, [b"%d" % n for n in range(4_000)])
    seen: dict[int, list[int]] = {}
    lock = threading.Lock()
    consumer = client.consumer(topic, group=topic)

    def handle(record: levada.Record) -> None:
        with lock:
            seen.setdefault(record.partition, []).append(record.offset)
            count = sum(map(len, seen.values()))
        if count == 4_000:
            consumer.stop()

    async with asyncio.timeout(30):
        await consumer.run(handle, workers=3)
    assert seen == {partition: list(range(1_000)) for partition in range(4)}
    assert {row.partition: row.committed for row in await client.manager.offsets(topic)} == dict.fromkeys(
        range(4), 1_000
    )
    await consumer.close()


async def test_a_handler_that_raises_ends_run_and_its_record_comes_again(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"%d" % n for n in range(10)])

    def handle(record: levada.Record) -> None:
        if record.offset == 6:
            raise ZeroDivisionError

    async with client.consumer(topic, group=topic) as consumer:
        with pytest.raises(ZeroDivisionError):
            await consumer.run(handle)
    async with client.consumer(topic, group=topic) as consumer:
        assert (await take(consumer, 1))[0].offset == 6


async def test_a_slow_partition_holds_up_no_other(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=2)
    async with client.producer(batch_bytes=2_000) as producer:
        await producer.publish_many(topic, [b"%d" % n for n in range(5_000)], partition=0)
        await producer.publish_many(topic, [b"%d" % n for n in range(5_000)], partition=1)
    gate = threading.Event()
    counts = Counter[int]()
    consumer = client.consumer(topic, group=topic)

    def handle(record: levada.Record) -> None:
        if record.partition == 0:
            gate.wait(30)
        counts[record.partition] += 1
        if counts[1] == 5_000:
            gate.set()
        if counts[0] == counts[1] == 5_000:
            consumer.stop()

    async with asyncio.timeout(60):
        await consumer.run(handle, workers=2)
    assert counts == {0: 5_000, 1: 5_000}
    await consumer.close()


async def test_a_record_that_cannot_be_read_is_named_and_can_be_passed(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"1", b"2", b"{broken", b"4"])
    async with client.consumer(topic, value=levada.JSON) as consumer:
        assert [record.value for record in await take(consumer, 2)] == [1, 2]
        for _ in range(2):
            with pytest.raises(InvalidRecord, match=f"{topic}, partition 0, offset 2"):
                await consumer.poll()
        await consumer.seek(topic, 0, 3)
        assert [record.value for record in await take(consumer, 1)] == [4]


async def test_an_aborted_transaction_is_left_out(client: Any, running: ThreadBroker, topic: str) -> None:
    from levada.records.build import build
    from levada.wire.blocking import BlockingClient

    await client.manager.create_topic(topic)
    with BlockingClient(running.bootstrap) as kafka:
        producer = kafka.transactional_producer(topic)
        producer.init()
        for value, end in ((b"aborted", producer.abort), (b"committed", producer.commit)):
            producer.send({(topic, 0): build([(None, value)], timestamp_ms=1)})
            end()
        kafka.produce((topic, 0), build([(None, b"plain")], timestamp_ms=1))
    async with client.consumer(topic, read_committed=True) as consumer:
        assert [record.value for record in await take(consumer, 2)] == [b"committed", b"plain"]
    async with client.consumer(topic) as consumer:
        assert [record.value for record in await take(consumer, 3)] == [b"aborted", b"committed", b"plain"]


async def test_stop_ends_an_iteration(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer, client.consumer(topic) as consumer:
        await producer.publish(topic, b"v")
        await producer.flush()
        seen = []
        async for record in consumer:
            seen.append(record.value)
            consumer.stop()
    assert seen == [b"v"]


async def test_after_stop_no_further_record_comes_and_none_is_lost(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"%d" % n for n in range(50)])
    async with client.consumer(topic, group=topic) as consumer:
        seen = []
        for _ in range(2):
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) % 3 == 0:
                    consumer.stop()
        assert seen == list(range(6))
        assert [record.offset for record in await take(consumer, 44)] == list(range(6, 50))


async def test_expansion_reaches_a_running_producer_of_records_with_keys(
    client: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levada.client.routes.MAX_AGE_S", 0.0)
    await client.manager.create_topic(topic, partitions=1)
    async with client.producer() as producer, asyncio.timeout(60):
        await (await producer.publish(topic, b"v", key=b"user-123"))
        await client.manager.expand_topic(topic, 12)
        while (await (await producer.publish(topic, b"v", key=b"user-123"))).partition != 7:
            pass


async def test_an_unknown_topic_cannot_be_consumed(client: Any, topic: str) -> None:
    for group in ("", topic):
        with pytest.raises(UnknownTopic, match=topic):
            async with client.consumer(topic, group=group):
                pass


async def test_a_member_stays_in_while_its_user_works(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"a", b"b"])
    async with client.consumer(topic, group=topic, session_timeout_ms=1_000) as consumer:
        await take(consumer, 1)
        before = await client.manager.group(topic)
        await asyncio.sleep(2.5)
        assert (await client.manager.group(topic)).members == before.members
        await take(consumer, 1)
        await consumer.commit()


# Managing


async def test_topics_are_created_grown_altered_and_deleted(client: Any, topic: str) -> None:
    made = await client.manager.create_topic(topic, partitions=4, settings={"retention.ms": 60_000})
    assert (made.outcome, made.partitions, made.settings["retention.ms"]) == ("created", 4, "60000")
    assert (await client.manager.create_topic(topic, partitions=4)).outcome == "same"
    assert (await client.manager.create_topic(topic, partitions=6)).outcome == "expanded"
    with pytest.raises(PartitionsCannotShrink):
        await client.manager.create_topic(topic, partitions=3)
    assert (await client.manager.expand_topic(topic, 7)).partitions == 7
    altered = await client.manager.alter_topic(topic, set={"levada.dedup": "id"}, unset=["retention.ms"])
    assert (altered.dedup, "retention.ms" in altered.settings) == ("id", False)
    shown = await client.manager.topic(topic)
    assert [each.index for each in shown.places] == list(range(7))
    assert {each.name: each.value for each in shown.details if each.set}["levada.dedup"] == "id"
    assert topic in [each.name for each in await client.manager.topics()]
    await client.manager.delete_topic(topic)
    with pytest.raises(UnknownTopic):
        await client.manager.topic(topic)


async def test_groups_are_shown_moved_and_forgotten(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=2)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"v"] * 10)
    async with client.consumer(topic, group=topic) as consumer:
        await take(consumer, 10)
        shown = await client.manager.group(topic)
        assert (shown.kind, shown.size) == ("dynamic", 1)
        assert sorted(shown.members[0].partitions) == [levada.At(topic, 0), levada.At(topic, 1)]
    await client.manager.commit(topic, {(topic, 0): 1, (topic, 1): 2})
    assert [row.committed for row in await client.manager.offsets(topic)] == [1, 2]
    assert await client.manager.seek(topic, topic, shift=1, dry_run=True) == {
        levada.At(topic, 0): 2,
        levada.At(topic, 1): 3,
    }
    assert [row.committed for row in await client.manager.offsets(topic)] == [1, 2]
    await client.manager.seek(topic, topic, "latest", partitions=[1])
    assert [row.committed for row in await client.manager.offsets(topic)] == [1, 5]
    with pytest.raises(InvalidRequest, match="say where to"):
        await client.manager.seek(topic, topic)
    assert topic in [each.group for each in await client.manager.groups()]
    await client.manager.delete_group(topic)
    assert topic not in [each.group for each in await client.manager.groups()]


async def test_the_cluster_is_shown(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic, partitions=2)
    nodes = await client.manager.nodes()
    assert [node.self for node in nodes].count(True) == 1
    assert [(each.partition, each.last_offset) for each in await client.manager.placement(topic)] == [(0, -1), (1, -1)]
    assert (await client.manager.stats()).version == levada.__version__


async def test_reading_out_of_range_says_what_there_is(client: Any, topic: str) -> None:
    await client.manager.create_topic(topic)
    async with client.producer() as producer:
        await producer.publish_many(topic, [b"%d" % n for n in range(20)])
    assert [record.offset for record in await client.read(topic, 0, 9, limit=5)] == list(range(9, 14))
    with pytest.raises(OffsetOutOfRange) as refused:
        await client.read(topic, 0, 21)
    assert (refused.value.start, refused.value.end) == (0, 20)
    assert len(await client.read(topic, 0, 99, out_of_range="earliest")) == 20


async def test_blocking_on_the_loop_that_sends_is_refused_instead_of_waiting_for_ever(
    running: ThreadBroker, topic: str
) -> None:
    async with levada.aio.connect(running.grpc) as client, client.producer() as producer:
        await client.manager.create_topic(topic)
        delivery = await producer.publish(topic, b"v")
        with pytest.raises(InvalidRequest, match="await the delivery"):
            delivery.result()
        assert await delivery == delivery.result() == levada.Position(topic, 0, 0)


# When the connection or the broker goes


@pytest.mark.parametrize("face", FACES)
async def test_nothing_answers_at_the_address(face: str) -> None:
    with pytest.raises(Unreachable, match="levada up"):
        async with connected(face, "127.0.0.1:1"):
            pass
    with pytest.raises(InvalidRequest, match="host:port"):
        async with connected(face, "localhost"):
            pass


@pytest.fixture
def proxy(running: ThreadBroker) -> Iterator[TcpProxy]:
    between = TcpProxy()
    host, _, port = running.grpc.rpartition(":")
    between.target = (host, int(port))
    yield between
    between.close()


@pytest.mark.parametrize("face", FACES)
async def test_cut_answers_neither_lose_nor_repeat_nor_reorder(face: str, proxy: TcpProxy, topic: str) -> None:
    async with connected(face, proxy.address) as client:
        await client.manager.create_topic(topic, partitions=3)
        async with client.producer(linger_ms=1, batch_bytes=1_000) as producer:
            deliveries = []
            proxy.cut_answers(10, every=20)
            for start in range(0, 20_000, 200):
                deliveries.append(await producer.publish_many(topic, [b"%06d" % n for n in range(start, start + 200)]))
                await asyncio.sleep(0.005)
            positions = [position for each in deliveries for position in await each]
        assert proxy.cuts == 10
        stored = await read_all(client, topic, 3)
    assert [stored[position.partition][position.offset].value for position in positions] == [
        b"%06d" % n for n in range(20_000)
    ]
    assert sum(map(len, stored.values())) == 20_000
    for records in stored.values():
        assert [record.value for record in records] == sorted(record.value for record in records)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("group", ["", "cut-group"])
async def test_a_consumer_that_is_cut_off_goes_on_without_loss(
    face: str, group: str, proxy: TcpProxy, topic: str
) -> None:
    async with connected(face, proxy.address) as client:
        await client.manager.create_topic(topic, partitions=2)
        async with client.producer(batch_bytes=1_000) as producer:
            await producer.publish_many(topic, [b"%d" % n for n in range(10_000)])
        seen: dict[int, list[int]] = {0: [], 1: []}
        async with client.consumer(topic, group=group and f"{group}-{topic}", auto_commit=False) as consumer:
            for _ in range(5):
                for record in await take(consumer, 2_000):
                    seen[record.partition].append(record.offset)
                proxy.cut_all()
    # Nobody else is in the group, and what was handed out already does not come again.
    assert seen == {0: list(range(5_000)), 1: list(range(5_000))}


@pytest.mark.parametrize("face", FACES)
async def test_a_broker_that_is_killed_and_comes_back_loses_and_repeats_nothing(
    face: str, topic: str, tmp_path: Path
) -> None:
    with broker(process=True, data=tmp_path / "data") as killed:
        async with connected(face, killed.grpc) as client:
            await client.manager.create_topic(topic, partitions=3)
            seen: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
            async with (
                client.producer(linger_ms=1, batch_bytes=2_000) as producer,
                client.consumer(topic, group=topic, auto_commit_ms=50) as consumer,
            ):
                deliveries = []
                for start in range(0, 20_000, 200):
                    deliveries.append(
                        await producer.publish_many(topic, [b"%06d" % n for n in range(start, start + 200)])
                    )
                    await asyncio.sleep(0.005)
                    if start in (5_000, 12_000):
                        killed.kill()
                        await asyncio.to_thread(killed.start)
                positions = [position for each in deliveries for position in await each]
                for record in await take(consumer, 20_000):
                    seen[record.partition].append(record.value)
            stored = await read_all(client, topic, 3)
    assert [stored[position.partition][position.offset].value for position in positions] == [
        b"%06d" % n for n in range(20_000)
    ]
    assert sum(map(len, stored.values())) == 20_000
    assert seen == {partition: [record.value for record in records] for partition, records in stored.items()}
    for values in seen.values():
        assert values == sorted(values)


@pytest.mark.parametrize("face", FACES)
async def test_a_delivery_fails_in_the_end_when_the_broker_stays_away(face: str, topic: str) -> None:
    with broker() as leaving:
        async with connected(face, leaving.grpc) as client:
            await client.manager.create_topic(topic)
            producer = client.producer(delivery_timeout_ms=300)
            await (await producer.publish(topic, b"v"))
            await asyncio.to_thread(leaving.stop)
            delivery = await producer.publish(topic, b"w")
            with pytest.raises(TimedOut, match="not delivered in time"):
                await delivery
            await producer.close()


async def test_a_forked_child_is_told_to_connect_anew(running: ThreadBroker) -> None:
    import os

    with levada.connect(running.grpc) as client, client.producer() as producer:
        client.manager.create_topic("forked")
        producer.publish("forked", b"v").result()
        child = os.fork()
        if not child:
            try:
                producer.publish("forked", b"w")
            except InvalidRequest as error:
                os._exit(7 if "after the fork" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7  # noqa: ASYNC222
        producer.publish("forked", b"x").result()


# What a reader copies


def example(doc: str | None) -> str:
    """The first block of code in a docstring."""
    lines = inspect.cleandoc(doc or "").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("    "))
    end = next((number for number in range(begin, len(lines)) if lines[number][:1].strip()), len(lines))
    return textwrap.dedent("\n".join(lines[begin:end]))


def test_the_example_of_the_package_works(running: ThreadBroker, capsys: pytest.CaptureFixture[str]) -> None:
    with levada.connect(running.grpc) as client:
        client.manager.create_topic("orders", partitions=4)
    code = example(levada.__doc__).replace("localhost:9094", running.grpc)
    # A reader's loop goes on for ever; ours ends after the first record.
    exec(code.replace("print(record.value)", "print(record.value); consumer.stop()"), {})
    assert capsys.readouterr().out == "{'id': 7}\n"


@pytest.mark.parametrize(
    "face", [faces.Client, faces.Manager, faces.Producer, faces.Consumer, faces.Producer.publish_many]
)
def test_the_examples_of_the_blocking_face_work(
    face: Any, running: ThreadBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    with levada.connect(running.grpc) as client, client.producer() as producer:
        client.manager.create_topic("orders", partitions=4)
        producer.publish("orders", b"{}").result()
        code = example(face.__doc__).replace("localhost:9094", running.grpc)
        code = code.replace("record.value)", "record.value); consumer.stop()")
        names = {"levada": levada, "client": client, "producer": producer}
        exec(code, names)
    if face in (faces.Producer, faces.Manager, faces.Consumer):
        assert capsys.readouterr().out


@pytest.mark.parametrize(
    "doc",
    [aio.__doc__, aio.Client.__doc__, aio.Producer.__doc__, aio.Consumer.__doc__]
    + [
        getattr(aio.Manager, name).__doc__
        for name in ("create_topic", "alter_topic", "register_group", "seek", "commit")
    ]
    + [aio.Client.read.__doc__, aio.Producer.publish_many.__doc__],
)
async def test_the_examples_of_the_async_face_work(doc: str, running: ThreadBroker) -> None:
    async with levada.aio.connect(running.grpc) as client, client.producer() as producer:
        await client.manager.create_topic("orders", partitions=4)
        for partition in range(4):
            await producer.publish_many("orders", [b"{}"] * 1_000, partition=partition)
        await producer.flush()
        group = f"billing-{next(_names)}"
        await client.manager.commit(group, {("orders", 0): 500})
        code = example(doc).replace("localhost:9094", running.grpc).replace("billing", group)
        if "register_group" in code:
            code = code.replace(group, f"{group}-fixed")
        code = code.replace("record.value)", "record.value); consumer.stop()")
        names: dict[str, Any] = {"levada": levada, "client": client, "producer": producer}
        exec("async def run():\n" + textwrap.indent(code, "    "), names)
        async with asyncio.timeout(60):
            await names["run"]()
