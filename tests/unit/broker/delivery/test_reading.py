"""Reading once, outside of any group."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levada.broker.delivery import Opener, OutOfRange, Portion, read_once
from levada.broker.delivery.opener import UNPACKED_BYTES_MAX
from levada.broker.delivery.reading import LIMIT_MAX, size_of
from levada.engine.port import At
from levada.errors import InvalidRequest, OffsetOutOfRange, RecordError, UnknownPartition, UnknownTopic
from levada.records.build import build
from support.delivery import World, settle

T0 = At("t", 0)
numbers = itertools.count()


async def read(world: World, offset: int, at: At = T0, **more: object) -> Portion:
    return await read_once(world.engine, at, offset, now_ms=world.engine.now_ms, **more)  # type: ignore[arg-type]


def offsets(found: Portion) -> list[int]:
    return [record.offset for record in found.records]


async def test_16_of_offsets_0_to_1000_from_9_limit_5_are_9_to_13(world: World) -> None:
    await world.create()
    for first in range(0, 1001, 7):
        await world.publish(count=7, first=first)
    found = await read(world, 9, limit=5)
    assert offsets(found) == [9, 10, 11, 12, 13]
    assert [record.value for record in found.records] == [b"9", b"10", b"11", b"12", b"13"]
    assert (found.start, found.end, found.next_offset) == (0, 1001, 14)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
async def test_reading_on_from_where_it_says_gives_everything_once(world: World, data: st.DataObject) -> None:
    at = await world.create(f"t{next(numbers)}")
    counts = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    for count in counts:
        await world.publish(at, count, size=data.draw(st.sampled_from([0, 100, 5_000])))
    limit, bytes_max = data.draw(st.integers(1, 12)), data.draw(st.sampled_from([1, 300, 10_000, 1_000_000]))
    seen: list[int] = []
    offset = 0
    while offset < sum(counts):
        found = await read(world, offset, at, limit=limit, bytes_max=bytes_max)
        assert 1 <= len(found.records) <= limit
        assert len(found.records) == 1 or sum(map(size_of, found.records)) <= bytes_max
        seen += offsets(found)
        assert found.next_offset == seen[-1] + 1
        offset = found.next_offset
    assert seen == list(range(sum(counts)))


async def test_a_limit_is_reached_over_many_batches(world: World) -> None:
    await world.create()
    for _ in range(300):
        await world.publish(size=10_000)
    found = await read(world, 0, limit=250, bytes_max=50_000_000)
    assert offsets(found) == list(range(250))


async def test_15_below_the_start_it_fails_with_the_range_or_goes_where_it_is_told(world: World) -> None:
    await world.create()
    await world.publish(count=10)
    await world.engine.trim(T0, 4)
    for offset in (-1, 0, 3, 11):
        with pytest.raises(OffsetOutOfRange, match="4 to 10") as failed:
            await read(world, offset)
        assert (failed.value.start, failed.value.end) == (4, 10)
        assert offsets(await read(world, offset, out_of_range=OutOfRange.TO_EARLIEST)) == [4, 5, 6, 7, 8, 9]
        assert await read(world, offset, out_of_range=OutOfRange.TO_LATEST) == ([], 4, 10, 10)
    assert offsets(await read(world, 4)) == [4, 5, 6, 7, 8, 9]
    assert await read(world, 10) == ([], 4, 10, 10)


async def test_at_the_end_it_waits_for_the_first_record(world: World) -> None:
    await world.create()
    waiting = asyncio.create_task(read(world, 0, wait_ms=30_000))
    await settle()
    assert not waiting.done()
    await world.publish(count=3)
    assert offsets(await waiting) == [0, 1, 2]


async def test_nothing_comes_and_it_says_so(world: World) -> None:
    await world.create()
    assert await read(world, 0, wait_ms=1) == ([], 0, 0, 0)


async def test_what_is_deleted_while_it_waits_is_out_of_range(world: World) -> None:
    await world.create()
    await world.publish(count=3)
    waiting = asyncio.create_task(read(world, 3, wait_ms=30_000))
    await settle()
    await world.engine.delete("t")
    with pytest.raises(UnknownTopic):
        await waiting


@pytest.mark.parametrize(
    "more", [{"limit": 0}, {"limit": LIMIT_MAX + 1}, {"bytes_max": 0}, {"wait_ms": -1}], ids=lambda more: str(more)
)
async def test_senseless_limits_are_refused(world: World, more: dict[str, int]) -> None:
    await world.create()
    with pytest.raises(InvalidRequest):
        await read(world, 0, **more)


async def test_what_is_not_there_cannot_be_read(world: World) -> None:
    await world.create()
    with pytest.raises(UnknownTopic):
        await read(world, 0, At("nope", 0))
    with pytest.raises(UnknownPartition):
        await read(world, 0, At("t", 1))


# Batches that unpack to much


def packed(*sizes: int) -> bytearray:
    return build([(None, bytes(size)) for size in sizes], timestamp_ms=1, codec="zstd")


async def test_a_batch_that_unpacks_beyond_the_limit_is_refused_by_its_offset_and_what_is_before_it_is_read(
    world: World,
) -> None:
    await world.create()
    await world.publish(count=3)
    await world.engine.append(T0, packed(UNPACKED_BYTES_MAX))
    before = await read(world, 0)
    assert (offsets(before), before.next_offset) == ([0, 1, 2], 3)
    with pytest.raises(RecordError, match=f"at offset 3 .*{UNPACKED_BYTES_MAX}"):
        await read(world, 3)


async def test_compressed_batches_are_opened_beside_the_loop(world: World) -> None:
    await world.create()
    await world.publish(count=3)
    opened = []

    async def in_thread(work: Any) -> Any:
        opened.append(work)
        return work()

    opener = Opener(in_thread)
    assert offsets(await read(world, 0, opener=opener)) == [0, 1, 2]
    assert not opened
    await world.engine.append(T0, packed(1, 1))
    assert offsets(await read(world, 3, opener=opener)) == [3, 4]
    assert opened


async def test_a_subscription_is_told_of_a_batch_that_unpacks_beyond_the_limit(world: World) -> None:
    await world.create()
    await world.publish(count=3)
    await world.engine.append(T0, packed(UNPACKED_BYTES_MAX))
    consumer = await world.open()
    await world.until(lambda: consumer.failed)
    assert consumer.offsets(T0) == [0, 1, 2]
    assert "at offset 3 " in str(consumer.failed[0].error)


async def test_of_a_batch_that_unpacks_to_much_only_some_is_held_and_all_is_delivered_once(world: World) -> None:
    await world.create()
    await world.engine.append(T0, packed(*[1_000_000] * 20))
    await world.publish(count=2)
    most = 0

    async def in_thread(work: Any) -> Any:
        nonlocal most
        done = work()
        most = max(most, sum(map(len, done.chunks)))
        return done

    world.subscriptions.opener = Opener(in_thread)
    consumer = await world.open()
    await world.until(lambda: consumer.got >= 22)
    assert consumer.offsets(T0) == list(range(22))
    assert 1 <= most < 10
    assert world.out[T0][0] == 22
