"""Publishing natively, over a real engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from levada.broker.publishing import Gate, NewRecord, Position, Publisher, Spread
from levada.broker.publishing.gate import RECORDS_MAX, Load
from levada.config import BrokerConfig
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import Acks, At, TopicSpec
from levada.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    InvalidTopicName,
    Overloaded,
    RecordTooLarge,
    UnknownPartition,
    UnknownTopic,
)
from levada.records.batch import CONTROL, TRANSACTIONAL, batches
from levada.records.build import build
from levada.records.read import Record, read
from support.dedup import dedup_over


class World:
    """An engine and a publisher on it."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self.gate = Gate()
        self.spread = Spread(engine, engine.view)
        self.publisher = Publisher(
            engine,
            engine.view,
            self.spread,
            self.gate,
            config_of=engine.config_of,
            now_ms=engine.now_ms,
            admit=engine.admit,
        )

    async def create(self, name: str = "t", partitions: int = 4, **settings: str) -> None:
        given = {"levada.durability": "os", "levada.router": "fnv1a64"}
        given |= {key.replace("_", "."): value for key, value in settings.items()}
        await self.engine.create(TopicSpec(name=name, partitions=partitions, settings=given))

    async def stored(self, name: str = "t") -> dict[int, list[Record]]:
        info = self.engine.view.get(name)
        assert info is not None
        found: dict[int, list[Record]] = {}
        for index in range(info.partitions):
            data = (await self.engine.read(At(name, index), 0, 1 << 24)).batches
            found[index] = [record for batch in batches(data) for record in read(batch)]
        return found

    async def values(self, name: str = "t") -> dict[int, list[bytes | None]]:
        return {index: [record.value for record in held] for index, held in (await self.stored(name)).items()}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    engine = await EmbeddedEngine.open(tmp_path, BrokerConfig(data=tmp_path))
    try:
        yield World(engine)
    finally:
        await engine.close()


async def test_keys_go_where_the_topics_router_says_and_keep_their_order(world: World) -> None:
    await world.create(partitions=3)
    keys = [b"user-123", b"user-456", b"user-123", b"user-123"]
    sent = [NewRecord(b"%d" % number, key=key) for number, key in enumerate(keys)]
    positions = await world.publisher.publish("t", sent)
    assert positions == [Position(1, 0), Position(0, 0), Position(1, 1), Position(1, 2)]
    assert await world.values() == {0: [b"1"], 1: [b"0", b"2", b"3"], 2: []}


@pytest.mark.parametrize(("key", "partition"), [(b"user-123", 7), (b"user-456", 0), (b"order-123", 6), (b"user:1", 3)])
async def test_of_twelve_partitions_too(world: World, key: bytes, partition: int) -> None:
    await world.create(partitions=12)
    assert (await world.publisher.publish("t", [NewRecord(b"v", key=key)]))[0].partition == partition


async def test_keyless_records_are_spread_evenly_by_one_request_and_by_many(world: World) -> None:
    await world.create()
    positions = await world.publisher.publish("t", [NewRecord(b"v")] * 8)
    assert Counter(each.partition for each in positions) == {0: 2, 1: 2, 2: 2, 3: 2}

    async def publishes() -> list[int]:
        return [(await world.publisher.publish("t", [NewRecord(b"v")]))[0].partition for _ in range(50)]

    landed = [partition for each in await asyncio.gather(*(publishes() for _ in range(8))) for partition in each]
    assert Counter(landed) == {0: 100, 1: 100, 2: 100, 3: 100}


async def test_an_empty_key_is_no_key(world: World) -> None:
    await world.create()
    positions = await world.publisher.publish("t", [NewRecord(b"v", key=b"")] * 4)
    assert {each.partition for each in positions} == {0, 1, 2, 3}


async def test_keyless_zero_puts_all_into_the_first(world: World) -> None:
    await world.create(levada_keyless="zero")
    assert {each.partition for each in await world.publisher.publish("t", [NewRecord(b"v")] * 9)} == {0}


async def test_keyless_sticky_keeps_a_request_together_and_moves_on(world: World) -> None:
    await world.create(levada_keyless="sticky")
    seen = [{each.partition for each in await world.publisher.publish("t", [NewRecord(b"v")] * 9)} for _ in range(4)]
    assert seen == [{0}, {1}, {2}, {3}]


async def test_a_partition_that_is_named_wins_over_the_key(world: World) -> None:
    await world.create(partitions=3)
    positions = await world.publisher.publish(
        "t", [NewRecord(b"v", partition=2), NewRecord(b"v", b"user-123", partition=2)]
    )
    assert positions == [Position(2, 0), Position(2, 1)]


@pytest.mark.parametrize("partition", [2, -1, 99])
async def test_a_partition_that_is_not_there_stores_nothing_and_moves_no_counter(world: World, partition: int) -> None:
    await world.create(partitions=2)
    with pytest.raises(UnknownPartition, match=f"partitions 0 to 1, not {partition}"):
        await world.publisher.publish("t", [NewRecord(b"v"), NewRecord(b"v", partition=partition)])
    assert await world.values() == {0: [], 1: []}
    assert await world.spread.take("t", 1) == 0


async def test_one_record_that_is_too_large_stores_nothing_of_its_request(world: World) -> None:
    await world.create(max_message_bytes="1000")
    with pytest.raises(RecordTooLarge, match=r"record 2 has \d{4} bytes .* max.message.bytes is 1000") as refusal:
        await world.publisher.publish("t", [NewRecord(b"v"), NewRecord(b"v"), NewRecord(b"v" * 1000)])
    assert refusal.value.index == 2
    assert not any((await world.values()).values())
    assert await world.spread.take("t", 1) == 0


async def test_a_record_that_just_fits_is_stored(world: World) -> None:
    await world.create(max_message_bytes="1000", partitions=1)
    size = len(build([Record(0, 0, None, b"v" * 800, ())]))
    fits = b"v" * (800 + 1000 - size)
    await world.publisher.publish("t", [NewRecord(fits, timestamp_ms=world.engine.now_ms())])
    with pytest.raises(RecordTooLarge):
        await world.publisher.publish("t", [NewRecord(fits + b"v")])


async def test_a_request_larger_than_a_batch_may_be_is_stored_as_several(world: World) -> None:
    await world.create(partitions=1, max_message_bytes="2000")
    sent = [NewRecord(b"%4d" % number * 100) for number in range(50)]
    positions = await world.publisher.publish("t", sent)
    assert [each.offset for each in positions] == list(range(50))
    assert (await world.values())[0] == [record.value for record in sent]


async def test_headers_times_and_ids_are_stored(world: World) -> None:
    await world.create(partitions=1)
    headers = [("a", b"1"), ("a", None), ("message_id", b"old")]
    await world.publisher.publish("t", [NewRecord(None, b"k", headers, 1234, message_id="m-1")])
    [record] = (await world.stored())[0]
    assert (record.key, record.value, record.timestamp_ms) == (b"k", None, 1234)
    assert list(record.headers) == [("a", b"1"), ("a", None), ("message_id", b"m-1")]


@pytest.mark.parametrize(
    ("record", "settings", "error"),
    [
        (NewRecord(b"v"), {"cleanup_policy": "compact"}, InvalidRecord),
        (NewRecord(b"v", timestamp_ms=2**62), {}, InvalidTimestamp),
        (NewRecord(b"v", timestamp_ms=-5), {}, InvalidTimestamp),
        (NewRecord(b"v", timestamp_ms=1), {"message_timestamp_before_max_ms": "1000"}, InvalidTimestamp),
    ],
)
async def test_what_the_topic_does_not_take_is_named_by_its_place(
    world: World, record: NewRecord, settings: dict[str, str], error: type[InvalidRecord]
) -> None:
    await world.create(**settings)
    with pytest.raises(error, match="record 1 ") as refusal:
        await world.publisher.publish("t", [NewRecord(b"v", key=b"k"), record])
    assert refusal.value.index == 1
    assert not any((await world.values()).values())


async def test_topics_that_are_not_for_publishing(world: World) -> None:
    with pytest.raises(UnknownTopic):
        await world.publisher.publish("nope", [NewRecord(b"v")])
    await world.create()
    await world.publisher.publish("t", [NewRecord(b"v")])  # makes __consumer_offsets
    with pytest.raises(InvalidTopicName):
        await world.publisher.publish("__consumer_offsets", [NewRecord(b"v")])
    with pytest.raises(InvalidRequest):
        await world.publisher.publish("t", [])


async def test_ready_made_batches_go_where_they_say(world: World) -> None:
    await world.create()
    one, two = build([(None, b"1"), (None, b"2")]), build([(None, b"3")])
    assert await world.publisher.publish_batches("t", [(3, bytes(one)), (1, bytes(two)), (3, bytes(two))]) == [
        Position(3, 0),
        Position(1, 0),
        Position(3, 2),
    ]
    assert await world.values() == {0: [], 1: [b"3"], 2: [], 3: [b"1", b"2", b"3"]}


async def test_a_batch_that_is_broken_stores_nothing_of_its_request(world: World) -> None:
    await world.create()
    good = bytes(build([(None, b"1")]))
    bad = good[:-1] + bytes([good[-1] ^ 1])
    for sent in ([(0, good), (1, bad)], [(0, bad)], [(0, good + b"x")]):
        with pytest.raises(CorruptBatch):
            await world.publisher.publish_batches("t", sent)
    assert not any((await world.values()).values())


async def test_a_batch_that_is_too_large_stores_nothing_of_its_request(world: World) -> None:
    await world.create(max_message_bytes="500")
    good, large = bytes(build([(None, b"1")])), bytes(build([(None, b"1" * 600)]))
    with pytest.raises(RecordTooLarge, match=r"6\d\d bytes, .* 500"):
        await world.publisher.publish_batches("t", [(0, good), (1, large)])
    assert not any((await world.values()).values())


async def test_a_producers_repeat_is_answered_with_the_first_position(world: World) -> None:
    await world.create()
    batch = bytes(build([(None, b"1")], producer_id=7, producer_epoch=0, base_sequence=0))
    assert await world.publisher.publish_batches("t", [(0, batch)]) == [Position(0, 0)]
    assert await world.publisher.publish_batches("t", [(0, batch)]) == [Position(0, 0, duplicate=True)]


async def test_what_is_started_first_is_appended_first(world: World) -> None:
    """Whether a request has one batch or several."""
    await world.create(partitions=2)
    started = []
    for number in range(40):
        records = [NewRecord(b"%d" % number, partition=0)]
        if number % 2:
            records.append(NewRecord(b"%d" % number, partition=1))
        started.append(await world.publisher.start("t", records))
    for each in started:
        await each.positions()
    assert (await world.values())[0] == [b"%d" % number for number in range(40)]


async def test_room_is_given_back_when_the_answer_is_there(world: World) -> None:
    await world.create(levada_durability="fsync")
    started = await world.publisher.start("t", [NewRecord(b"v", partition=0)] * 3)
    assert world.gate.waiting()[At("t", 0)].records == 3
    await started.positions()
    await asyncio.sleep(0)
    assert world.gate.waiting() == {}


async def test_a_full_partition_answers_overloaded_after_the_topics_wait(world: World) -> None:
    await world.create(levada_enqueue_timeout_ms="30")
    await world.gate.enter({At("t", 0): Load(RECORDS_MAX, 1)}, 0)
    with pytest.raises(Overloaded, match="within 30 ms"):
        await world.publisher.publish("t", [NewRecord(b"v", partition=0)])
    await world.publisher.publish("t", [NewRecord(b"v", partition=1)])
    assert {index: len(held) for index, held in (await world.values()).items()} == {0: 0, 1: 1, 2: 0, 3: 0}


async def test_without_acks_the_answer_does_not_wait_for_the_disk(world: World) -> None:
    await world.create(levada_durability="fsync")
    [position] = await world.publisher.publish("t", [NewRecord(b"v", partition=0)], Acks.NONE)
    assert position == Position(0, 0)


@pytest.mark.parametrize("dedup", ["off", "id"])
@pytest.mark.parametrize("bits", [TRANSACTIONAL, CONTROL, TRANSACTIONAL | CONTROL])
async def test_a_batch_of_a_transaction_is_refused_and_readers_of_what_is_committed_go_on(
    world: World, dedup: str, bits: int
) -> None:
    await world.create(partitions=1, levada_dedup=dedup)
    remembering = dedup_over(world.engine)
    publisher = Publisher(
        world.engine, world.engine.view, world.spread, world.gate, remembering,
        config_of=world.engine.config_of, now_ms=world.engine.now_ms, admit=world.engine.admit,
    )  # fmt: skip
    made = {"transactional": bool(bits & TRANSACTIONAL), "control": bool(bits & CONTROL)}
    of_transaction = build([(None, b"x")], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=0, **made)
    plain = build([(None, b"y")], timestamp_ms=1)
    for given in ([(0, of_transaction)], [(0, plain), (0, of_transaction)]):
        with pytest.raises(InvalidRecord, match="control" if bits & CONTROL else "transactional"):
            await publisher.publish_batches("t", given)
    await publisher.publish_batches("t", [(0, plain)])
    bounds = await world.engine.bounds(At("t", 0))
    assert (bounds.stable_end, bounds.end) == (1, 1)
    await remembering.close()
