"""Flow: what is out is bounded, what is in flight is bounded, and whoever stalls holds back nobody else."""

from __future__ import annotations

import asyncio

import pytest

from levada.broker.delivery import Batches, Records
from levada.broker.delivery.credit import GROUP_RECORDS_MAX
from levada.engine.port import At
from support.batches import make_batch
from support.delivery import World, counted, settle

T0 = At("t", 0)


@pytest.mark.parametrize("raw", [False, True])
async def test_no_more_is_delivered_than_was_granted(world: World, raw: bool) -> None:
    await world.create()
    for _ in range(300):
        await world.publish(count=10)
    consumer = await world.open(grants=False, raw=raw)
    await consumer.until_got(1_000)
    await settle()
    assert consumer.got == consumer.it.out == 1_000
    consumer.it.grant(250)
    await consumer.until_got(1_250)
    await settle()
    assert (consumer.got, consumer.it.out) == (1_250, 1_000)
    assert consumer.offsets(T0) == list(range(1_250))


@pytest.mark.parametrize("raw", [False, True])
async def test_a_batch_larger_than_what_is_granted_comes_whole_and_nothing_after_it(world: World, raw: bool) -> None:
    await world.create()
    for _ in range(3):
        await world.publish(count=25)
    consumer = await world.open(grants=False, records_max=10, raw=raw)
    await consumer.until_got(25)
    await settle()
    assert consumer.got == 25
    consumer.it.grant(15)  # ten are out, as many as may be
    await settle()
    assert consumer.got == 25
    consumer.it.grant(1)
    await consumer.until_got(50)
    await settle()
    assert consumer.got == 50


async def test_a_limit_smaller_than_the_default_holds(world: World) -> None:
    await world.create()
    for _ in range(20):
        await world.publish()
    consumer = await world.open(grants=False, records_max=3)
    for granted in range(4):
        await consumer.until_got(3 + granted)
        await settle()
        assert consumer.got == 3 + granted
        consumer.it.grant(1)


async def test_all_partitions_share_what_is_granted_in_turn(world: World) -> None:
    await world.create(partitions=3)
    ats = [At("t", index) for index in range(3)]
    consumer = await world.open(grants=False, records_max=10, partitions=ats)
    await consumer.until_assigned(*ats)
    for _ in range(10):
        for at in ats:
            await world.publish(at)
    await consumer.until_got(10)
    await settle()
    assert consumer.got == 10
    for turn in (2, 3):
        consumer.it.grant(10)
        await consumer.until_got(10 * turn)
        await settle()
        assert consumer.got == 10 * turn
    assert {at for at, _ in consumer.records()} == set(ats)


async def test_a_group_has_no_more_than_ten_thousand_out(world: World) -> None:
    members = 11
    await world.create(partitions=members)
    for index in range(members):
        for _ in range(12):
            await world.publish(At("t", index), 100)
    consumers = [await world.open(group="g", grants=False) for _ in range(members)]
    await world.until(lambda: sum(consumer.got for consumer in consumers) >= GROUP_RECORDS_MAX)
    await settle()
    assert sum(consumer.it.out for consumer in consumers) == GROUP_RECORDS_MAX
    assert world.subscriptions.out() == {"g": GROUP_RECORDS_MAX}
    # What one gives back is there for another, who was never at its own limit.
    short = next(consumer for consumer in consumers if consumer.it.out < 1_000)
    full = next(consumer for consumer in consumers if consumer.it.out == 1_000)
    before = short.got
    full.it.pause(full.assigned[-1].partitions)
    full.it.grant(300)
    await short.until(lambda it: it.got >= before + 300)
    # And so is what somebody held who is gone.
    await full.it.close()
    assert sum(consumer.it.out for consumer in consumers) <= GROUP_RECORDS_MAX


async def test_14_a_stalled_group_delays_neither_another_group_nor_the_publishers(world: World) -> None:
    """The stalled one takes nothing at all until the others have everything: no clock is looked at."""
    await world.create(partitions=4)
    ats = [At("t", index) for index in range(4)]
    stalled = await world.open(group="stalled")
    alone = await world.open(partitions=ats, grants=False)
    quick = await world.open(group="quick")
    for consumer in (stalled, quick, alone):
        await consumer.until_assigned(*ats)
    stalled.stall()
    for turn in range(50):
        for at in ats:
            await world.publish(at, 50, first=50 * turn)
    await quick.until_got(10_000)
    await alone.until_got(1_000)
    for at in ats:
        assert quick.offsets(at) == list(range(2_500))
    assert len(stalled.records()) == 0
    assert stalled.held is not None
    stalled.go_on()
    await stalled.until_got(10_000)
    for at in ats:
        assert stalled.offsets(at) == list(range(2_500))


async def test_a_stalled_member_delays_no_other_member_of_its_group(world: World) -> None:
    await world.create(partitions=2)
    stalled = await world.open(group="g")
    await stalled.until_assigned(At("t", 0), At("t", 1))
    other = await world.open(group="g")
    await other.until(lambda it: len(it.assigned) == 1)
    await stalled.until(lambda it: len(it.assigned) == 2)
    [at] = other.assigned[-1].partitions
    stalled.stall()
    for index in range(2):
        for turn in range(20):
            await world.publish(At("t", index), 100, first=100 * turn)
    await other.until_got(2_000)
    assert other.offsets(at) == list(range(2_000))
    assert len(stalled.records()) == 0


async def test_what_is_read_ahead_for_a_stalled_consumer_is_within_its_bytes(world: World) -> None:
    """Whatever was read and not taken is in the places and in the transport's hand."""
    partitions, bytes_max = 8, 64_000
    await world.create(partitions=partitions)
    ats = [At("t", index) for index in range(partitions)]
    consumer = await world.open(partitions=ats, bytes_max=bytes_max, raw=True)
    await consumer.until_assigned(*ats)
    await settle()
    consumer.stall()
    for _ in range(40):
        for at in ats:
            await world.publish(at, 10, size=100)
    await settle()
    pump = consumer.it._pump
    waiting = sum(len(place.found.batches) for place in pump._places.values() if place.found is not None)
    assert isinstance(consumer.held, Batches)
    assert 0 < waiting + len(consumer.held.data) <= bytes_max
    consumer.go_on()
    await consumer.until_got(partitions * 400)
    assert max(len(each.data) for each in consumer.deliveries if isinstance(each, Batches)) <= bytes_max


async def test_a_consumer_that_says_nothing_more_gets_all_as_fast_as_it_takes_it(world: World) -> None:
    await world.create()
    for _ in range(50):
        await world.publish(count=100)
    consumer = await world.open(group="g", grants=False)
    await consumer.until_got(1_000)
    consumer.it.let_run()
    await consumer.until_got(5_000)
    assert consumer.offsets(T0) == list(range(5_000))
    await settle()
    assert consumer.it.out == 0
    assert world.subscriptions.out() == {"g": 0}


async def test_bytes_are_shared_anew_when_partitions_come(world: World) -> None:
    """Whoever waited alone for one partition may not hold all the bytes once there are eight."""
    partitions, bytes_max = 8, 64_000
    await world.create(partitions=1)
    consumer = await world.open(group="g", bytes_max=bytes_max, raw=True)
    await consumer.until_assigned(T0)
    await settle()
    await world.expand("t", partitions)
    ats = [At("t", index) for index in range(partitions)]
    await consumer.until_assigned(*ats)
    await settle()
    consumer.stall()
    for at in reversed(ats):
        partition = world.engine.partition(*at)
        for _ in range(60):
            partition.append(make_batch(10, value=b"." * 100))  # all before anybody who waits has a turn
    await settle()
    waited = [place.found for place in consumer.it._pump._places.values() if place.found is not None]
    assert len(waited) == partitions - 1  # of one the transport holds what was found
    assert all(len(found.batches) <= bytes_max // 2 // partitions for found in waited)
    consumer.go_on()
    await consumer.until_got(partitions * 600)


async def test_what_a_consumer_held_that_closed_is_there_for_the_rest_of_its_group(world: World) -> None:
    await world.create(partitions=2)
    first = await world.open(group="g", grants=False)
    second = await world.open(group="g", grants=False)
    await world.until(lambda: first.assigned and len(first.assigned[-1].partitions) == 1 and second.assigned)
    for index in range(2):
        await world.publish(At("t", index), 10)
    await first.until_got(10)
    await second.until_got(10)
    assert world.subscriptions.out() == {"g": 20}
    second.it.pause([At("t", 0), At("t", 1)])
    second.stall()
    await first.it.close()
    assert world.subscriptions.out() == {"g": 10}


async def test_its_call_is_its_sign_of_life(world: World) -> None:
    await world.create()
    consumer = await world.open(group="g", session_timeout_ms=6_000)
    await consumer.until_assigned(T0)
    consumer.it._session_timeout_ms = 3  # what it waits between two signs, and not what the group allows
    consumer.it.let_run()
    for _ in range(20):
        await asyncio.sleep(0.003)
        world.pass_time(1_000)
    assert len(world.groups.describe("g").members) == 1


async def test_reading_in_turn_does_not_read_much_more_than_there_is_room_for(world: World) -> None:
    await world.create()
    for _ in range(100):
        await world.publish(count=100)
    sizes: list[int] = []
    read = world.engine.read

    async def counting(at: At, offset: int, max_bytes: int, *rest: object) -> object:
        found = await read(at, offset, max_bytes, *rest)  # type: ignore[arg-type]
        sizes.append(len(found.batches))
        return found

    world.engine.read = counting  # type: ignore[method-assign,assignment]
    consumer = await world.open(raw=True)
    await consumer.until_got(10_000)
    delivered = sum(len(each.data) for each in consumer.deliveries if isinstance(each, Batches))
    assert sum(sizes) < 3 * delivered


def test_records_count_as_what_they_are() -> None:
    assert counted(Records(T0, [], 5, 5)) == 0
