"""What a consumer sees of transactions: with read_committed, nothing that is open or aborted."""

from __future__ import annotations

import pytest

from levada.broker.delivery import Batches, OutOfRange, Records, Start, read_once
from levada.engine.port import At, Isolation
from support.batches import make_batch
from support.delivery import World, settle

T0 = At("t", 0)
COMMITTED = Isolation.READ_COMMITTED


class Producer:
    """A transactional producer of partition 0 of topic t."""

    def __init__(self, world: World, producer_id: int) -> None:
        self.engine = world.engine
        self.partition = world.engine.partition("t", 0)
        self.id = producer_id
        self.sequence = 0

    def write(self, count: int) -> None:
        # Of now, as the markers are: a segment does not hold both the old and the new.
        now_ms = self.engine.now_ms()
        batch = make_batch(count, producer_id=self.id, sequence=self.sequence, transactional=True, timestamp_ms=now_ms)
        self.sequence += count
        self.partition.append(batch)

    def end(self, *, commit: bool) -> None:
        self.partition.append_marker(self.id, 0, commit=commit, coordinator_epoch=0)


@pytest.fixture
async def producers(world: World) -> tuple[Producer, Producer]:
    await world.create()
    return Producer(world, 7), Producer(world, 8)


@pytest.mark.parametrize("raw", [False, True])
async def test_it_waits_for_what_is_open(world: World, producers: tuple[Producer, Producer], raw: bool) -> None:
    seven, eight = producers
    consumer = await world.open(isolation=COMMITTED, raw=raw)
    everything = await world.open()
    seven.write(3)  # 0–2
    eight.write(2)  # 3–4
    eight.end(commit=True)  # 5
    await everything.until_got(5)
    await settle()
    assert consumer.records() == []
    seven.end(commit=True)  # 6
    await consumer.until_got(5)
    assert consumer.offsets(T0) == [0, 1, 2, 3, 4]
    assert everything.offsets(T0) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("raw", [False, True])
async def test_it_leaves_out_what_was_aborted(world: World, producers: tuple[Producer, Producer], raw: bool) -> None:
    seven, eight = producers
    seven.write(3)  # 0–2
    eight.write(2)  # 3–4
    seven.end(commit=False)  # 5
    eight.end(commit=True)  # 6
    seven.write(1)  # 7
    seven.end(commit=True)  # 8
    consumer = await world.open(isolation=COMMITTED, raw=raw, grants=False)
    await consumer.until_got(3)
    assert consumer.offsets(T0) == [3, 4, 7]
    last = consumer.deliveries[-1]
    if isinstance(last, Batches):
        assert [tuple(each) for each in last.aborted] == [(7, 0)]
        assert (last.to_offset, last.end, last.record_count) == (9, 9, 6)
        assert consumer.it.out == 6
    else:
        assert isinstance(last, Records)
        assert (last.next_offset, last.end) == (9, 9)
        assert consumer.it.out == 3, "nobody grants what was not delivered"


async def test_where_everything_was_aborted_only_the_place_moves(
    world: World, producers: tuple[Producer, Producer]
) -> None:
    seven, _ = producers
    seven.write(3)
    seven.end(commit=False)
    consumer = await world.open(isolation=COMMITTED, grants=False)
    await consumer.until(lambda it: len(it.deliveries) == 2)
    assert consumer.deliveries[1] == Records(T0, [], 4, 4)
    assert consumer.it.out == 0


async def test_only_the_aborted_transactions_of_what_is_delivered_are_named(
    world: World, producers: tuple[Producer, Producer]
) -> None:
    seven, _ = producers
    for _ in range(3):
        seven.write(5)
        seven.end(commit=False)
    consumer = await world.open(isolation=COMMITTED, raw=True, grants=False, records_max=5)
    await consumer.until_got(0)
    await consumer.until(lambda it: len(it.deliveries) == 2)
    first = consumer.deliveries[1]
    assert isinstance(first, Batches)
    assert (first.from_offset, first.to_offset) == (0, 5)
    assert [tuple(each) for each in first.aborted] == [(7, 0)]
    consumer.it.grant(5)
    await consumer.until(lambda it: len(it.deliveries) == 3)
    second = consumer.deliveries[2]
    assert isinstance(second, Batches)
    assert [tuple(each) for each in second.aborted] == [(7, 0), (7, 6)]
    assert consumer.records() == []


async def test_the_latest_is_the_last_stable_offset(world: World, producers: tuple[Producer, Producer]) -> None:
    seven, _ = producers
    await world.publish(count=2)
    seven.write(3)
    consumer = await world.open(isolation=COMMITTED, start=Start.LATEST)
    await consumer.until_assigned(T0)
    assert consumer.assigned[0].partitions == {T0: 2}
    seven.end(commit=True)
    await consumer.until_got(3)
    assert consumer.offsets(T0) == [2, 3, 4]


async def test_reading_once_leaves_out_what_was_aborted_and_goes_on_behind_it(
    world: World, producers: tuple[Producer, Producer]
) -> None:
    seven, eight = producers
    seven.write(3)
    seven.end(commit=False)
    eight.write(2)
    found = await read_once(world.engine, T0, 0, isolation=COMMITTED, now_ms=world.engine.now_ms)
    assert found == ([], 0, 4, 4)
    eight.end(commit=True)
    found = await read_once(world.engine, T0, 0, isolation=COMMITTED, now_ms=world.engine.now_ms)
    assert [record.offset for record in found.records] == [4, 5]
    assert found[1:] == (0, 7, 7)
    everything = await read_once(world.engine, T0, 99, out_of_range=OutOfRange.TO_EARLIEST, now_ms=world.engine.now_ms)
    assert [record.offset for record in everything.records] == [0, 1, 2, 4, 5]
