"""Records: appended, refused, read, waited for, found by time, trimmed."""

from __future__ import annotations

import asyncio
import time

import pytest

from levada.engine.port import Acks, At, Bounds, Engine
from levada.errors import (
    CorruptBatch,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordTooLarge,
)
from levada.records.batch import batches
from levada.records.build import end_marker
from support.homes import Home, MakeTopic
from support.reading import batch_of, records, values


async def test_records_are_read_as_they_were_appended(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    appended = await engine.append(at, batch_of(b"a", None, b""))
    assert (appended.base_offset, appended.last_offset, appended.durable) == (0, 2, True)
    assert not appended.duplicate
    found = await records(engine, at)
    assert [(record.offset, record.key, record.value) for record in found] == [
        (0, b"k", b"a"),
        (1, b"k", None),
        (2, b"k", b""),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_taken_and_given_back(engine: Engine, make_topic: MakeTopic, codec: str) -> None:
    at = await make_topic()
    await engine.append(at, batch_of(b"a" * 500, b"b" * 500, codec=codec))
    assert await values(engine, at) == [b"a" * 500, b"b" * 500]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_any_buffer_is_taken_and_a_read_only_one_left_as_it_was(
    engine: Engine, make_topic: MakeTopic, kind: type
) -> None:
    at = await make_topic()
    await engine.append(at, batch_of(b"first"))
    batch = kind(bytes(batch_of(b"second")))
    await engine.append(at, batch)
    assert await values(engine, at) == [b"first", b"second"]
    if kind is bytes:
        assert batch == bytes(batch_of(b"second"))


async def test_offsets_follow_one_another_in_each_partition(engine: Engine, make_topic: MakeTopic) -> None:
    await make_topic(partitions=2)
    first, second = At("t", 0), At("t", 1)
    assert (await engine.append(first, batch_of(b"1", b"2"))).base_offset == 0
    assert (await engine.append(first, batch_of(b"3"))).base_offset == 2
    assert (await engine.append(second, batch_of(b"4"))).base_offset == 0
    assert await values(engine, first) == [b"1", b"2", b"3"]
    assert await values(engine, second) == [b"4"]


async def test_appends_at_once_all_land_and_none_twice(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    batches_ = [batch_of(b"%d" % number, b"%d again" % number) for number in range(100)]
    appended = await asyncio.gather(*(engine.append(at, batch) for batch in batches_))
    assert sorted(one.base_offset for one in appended) == list(range(0, 200, 2))
    found = {record.offset: record.value for record in await records(engine, at)}
    assert len(found) == 200
    for number, one in enumerate(appended):
        assert found[one.base_offset] == b"%d" % number
        assert found[one.last_offset] == b"%d again" % number


async def test_without_acks_the_answer_does_not_wait(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    await engine.append(at, batch_of(b"v"), Acks.NONE)
    slice_ = await engine.read(at, 0, 1000, wait_ms=5000)
    assert [batch.record_count for batch in batches(slice_.batches)] == [1]


# Refusals


async def assert_refused(
    engine: Engine, at: At, batch: bytearray, error: type[Exception], message: str | None = None
) -> None:
    before = await engine.bounds(at)
    with pytest.raises(error, match=message):
        await engine.append(at, batch)
    assert await engine.bounds(at) == before


async def test_a_damaged_batch_is_not_stored(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    flipped = batch_of(b"value")
    flipped[-1] ^= 1
    await assert_refused(engine, at, flipped, CorruptBatch)
    await assert_refused(engine, at, batch_of(b"value")[:-1], CorruptBatch)
    await assert_refused(engine, at, bytearray(b"\0" * 10), CorruptBatch)


async def test_a_batch_beyond_the_limit_is_not_stored(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic(max_message_bytes="300")
    await engine.append(at, batch_of(b"x" * 100))
    await assert_refused(engine, at, batch_of(b"x" * 300), RecordTooLarge, "300")
    await assert_refused(engine, at, batch_of(b"small", b"x" * 300, b"small"), RecordTooLarge, "300")


async def test_a_new_limit_holds_at_once(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic(max_message_bytes="300")
    await engine.alter("t", {"max.message.bytes": "1000"})
    await engine.append(at, batch_of(b"x" * 300))
    await engine.alter("t", {"max.message.bytes": "100"})
    await assert_refused(engine, at, batch_of(b"x" * 300), RecordTooLarge, "100")


async def test_markers_are_not_taken_from_outside(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    marker = end_marker(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)
    await assert_refused(engine, at, marker, InvalidRecord)


async def test_a_compacted_topic_takes_no_record_without_key(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic(cleanup_policy="compact")
    await engine.append(at, batch_of(b"v", key=b"k"))
    await assert_refused(engine, at, batch_of(b"v", key=None), InvalidRecord)


async def test_a_timestamp_in_the_far_future_is_refused(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    far_ms = int(time.time() * 1000) + 2 * 3_600_000
    await assert_refused(engine, at, batch_of(b"v", timestamp_ms=far_ms), InvalidTimestamp)


async def test_the_brokers_clock_is_given_where_the_topic_asks_for_it(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    appended = await engine.append(at, batch_of(b"v", timestamp_ms=5))
    assert appended.timestamp_ms >= before_ms
    assert [record.timestamp_ms for record in await records(engine, at)] == [appended.timestamp_ms]


# Idempotence


async def test_a_repeat_of_a_producers_batch_is_answered_with_the_first(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    first = await engine.append(at, batch_of(b"1", b"2", producer=(7, 0, 0)))
    await engine.append(at, batch_of(b"3", producer=(7, 0, 2)))
    again = await engine.append(at, batch_of(b"1", b"2", producer=(7, 0, 0)))
    assert again.duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert await values(engine, at) == [b"1", b"2", b"3"]


async def test_a_gap_or_an_older_epoch_of_a_producer_is_refused(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    await engine.append(at, batch_of(b"1", producer=(7, 1, 0)))
    await assert_refused(engine, at, batch_of(b"3", producer=(7, 1, 2)), OutOfOrderSequence)
    await assert_refused(engine, at, batch_of(b"2", producer=(7, 0, 1)), InvalidProducerEpoch)
    await engine.append(at, batch_of(b"2", producer=(7, 2, 0)))
    assert await values(engine, at) == [b"1", b"2"]


async def test_producers_are_remembered_over_a_restart(engine: Engine, make_topic: MakeTopic, home: Home) -> None:
    at = await make_topic()
    await engine.append(at, batch_of(b"1", b"2", producer=(7, 1, 0)))
    await home.stop()
    engine = await home.start()
    assert (await engine.append(at, batch_of(b"1", b"2", producer=(7, 1, 0)))).duplicate
    await assert_refused(engine, at, batch_of(b"4", producer=(7, 1, 3)), OutOfOrderSequence)
    await assert_refused(engine, at, batch_of(b"3", producer=(7, 0, 2)), InvalidProducerEpoch)
    await engine.append(at, batch_of(b"3", producer=(7, 1, 2)))
    assert await values(engine, at) == [b"1", b"2", b"3"]


# Reading


async def test_a_read_gives_whole_batches_within_its_limit_and_at_least_one(
    engine: Engine, make_topic: MakeTopic
) -> None:
    at = await make_topic()
    sizes = []
    for number in range(5):
        batch = batch_of(b"%d" % number * 100)
        sizes.append(len(batch))
        await engine.append(at, batch)
    for max_bytes, expected in ((1, 1), (sizes[0], 1), (sizes[0] * 3 + 1, 3), (10**6, 5)):
        slice_ = await engine.read(at, 0, max_bytes)
        assert [batch.base_offset for batch in batches(slice_.batches)] == list(range(expected))
        assert slice_.bounds == Bounds(0, 5, 5)


async def test_an_offset_within_a_batch_gives_the_whole_batch(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    await engine.append(at, batch_of(b"0", b"1", b"2"))
    await engine.append(at, batch_of(b"3", b"4", b"5"))
    slice_ = await engine.read(at, 4, 1000)
    assert [batch.base_offset for batch in batches(slice_.batches)] == [3]
    assert await values(engine, at, 4) == [b"4", b"5"]


async def test_at_the_end_there_is_nothing_and_beyond_it_an_error_with_the_range(
    engine: Engine, make_topic: MakeTopic
) -> None:
    at = await make_topic()
    await engine.append(at, batch_of(b"0", b"1"))
    empty = await engine.read(at, 2, 1000)
    assert (bytes(empty.batches), empty.bounds) == (b"", Bounds(0, 2, 2))
    for offset in (3, -1):
        with pytest.raises(OffsetOutOfRange) as refused:
            await engine.read(at, offset, 1000)
        assert (refused.value.start, refused.value.end) == (0, 2)


async def test_a_reader_at_the_end_is_woken_by_an_append(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    started = time.monotonic()
    readers = [asyncio.create_task(engine.read(at, 0, 1000, wait_ms=30_000)) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert not any(reader.done() for reader in readers)
    await engine.append(at, batch_of(b"here"))
    for slice_ in await asyncio.gather(*readers):
        assert [batch.record_count for batch in batches(slice_.batches)] == [1]
        assert slice_.bounds.end == 1
    assert time.monotonic() - started < 25


async def test_a_reader_that_waited_in_vain_gets_nothing(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    started = time.monotonic()
    slice_ = await engine.read(at, 0, 1000, wait_ms=50)
    assert bytes(slice_.batches) == b""
    assert time.monotonic() - started >= 0.05


async def test_a_reader_that_gives_up_leaves_nothing_behind(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    reader = asyncio.create_task(engine.read(at, 0, 1000, wait_ms=30_000))
    await asyncio.sleep(0.02)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    await engine.append(at, batch_of(b"v"))
    assert await values(engine, at) == [b"v"]


@pytest.mark.parametrize("durability", ["fsync", "interval:20", "os"])
async def test_an_acknowledged_record_is_visible_whatever_the_durability(
    engine: Engine, make_topic: MakeTopic, durability: str
) -> None:
    at = await make_topic(levada_durability=durability)
    for number in range(10):
        appended = await engine.append(at, batch_of(b"%d" % number))
        assert (await engine.bounds(at)).end == appended.last_offset + 1
    assert len(await values(engine, at)) == 10


# Looking up and trimming


async def test_a_record_is_found_by_its_time(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    for timestamp_ms in (1000, 2000, 3000):
        await engine.append(at, batch_of(b"v", timestamp_ms=timestamp_ms))
    for wanted_ms, offset, found_ms in ((0, 0, 1000), (1000, 0, 1000), (1001, 1, 2000), (3000, 2, 3000)):
        found = await engine.offset_at(at, wanted_ms)
        assert found is not None and (found.offset, found.timestamp_ms) == (offset, found_ms)
    assert await engine.offset_at(at, 3001) is None


async def test_nothing_is_found_in_an_empty_partition(engine: Engine, make_topic: MakeTopic) -> None:
    assert await engine.offset_at(await make_topic(), 0) is None


async def test_what_was_trimmed_is_below_the_start(engine: Engine, make_topic: MakeTopic, home: Home) -> None:
    at = await make_topic()
    for number in range(5):
        await engine.append(at, batch_of(b"%d" % number))
    assert await engine.trim(at, 3) == 3
    assert await engine.trim(at, 1) == 3
    assert await engine.bounds(at) == (3, 5, 5)
    with pytest.raises(OffsetOutOfRange) as refused:
        await engine.read(at, 2, 1000)
    assert (refused.value.start, refused.value.end) == (3, 5)
    assert await values(engine, at) == [b"3", b"4"]
    await home.stop()
    engine = await home.start()
    assert await engine.bounds(at) == (3, 5, 5)
    assert await values(engine, at) == [b"3", b"4"]


async def test_a_partition_can_be_trimmed_to_its_end_and_not_beyond(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    await engine.append(at, batch_of(b"0", b"1"))
    with pytest.raises(OffsetOutOfRange):
        await engine.trim(at, 3)
    assert await engine.trim(at, 2) == 2
    assert await engine.bounds(at) == (2, 2, 2)
    assert (await engine.append(at, batch_of(b"2"))).base_offset == 2


# Restart


async def test_acknowledged_records_outlive_the_engine(engine: Engine, make_topic: MakeTopic, home: Home) -> None:
    at = await make_topic(segment_bytes="2000")
    for number in range(50):
        await engine.append(at, batch_of(b"%d" % number * 20))
    before = await records(engine, at)
    for _ in range(2):
        await home.stop()
        engine = await home.start()
        assert await records(engine, at) == before
        assert await engine.bounds(at) == (0, 50, 50)
    assert (await engine.append(at, batch_of(b"more"))).base_offset == 50
