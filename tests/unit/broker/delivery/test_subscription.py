"""One consumer: what it gets, in which order, and what it can ask for."""

from __future__ import annotations

import asyncio

import pytest

from levada.broker.delivery import Assigned, Batches, Records, Start, Wanted
from levada.engine.port import At, Committed, Isolation
from levada.errors import (
    IllegalGeneration,
    InvalidRequest,
    LevadaError,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
)
from support.delivery import World, settle

T0 = At("t", 0)
T1 = At("t", 1)


async def test_the_first_delivery_says_what_it_owns_and_where_it_begins(world: World) -> None:
    await world.create(partitions=2)
    await world.publish(T1, 3)
    consumer = await world.open(partitions=[T0, T1], offsets={T1: 2})
    await consumer.until_got(1)
    assert consumer.deliveries[0] == Assigned("", 0, {T0: 0, T1: 2})
    assert [(at, record.offset) for at, record in consumer.records()] == [(T1, 2)]


@pytest.mark.parametrize("raw", [False, True])
async def test_records_come_in_order_and_once_also_those_published_later(world: World, raw: bool) -> None:
    await world.create()
    for number in range(10):
        await world.publish(count=7, first=7 * number)
    consumer = await world.open(raw=raw)
    await consumer.until_got(70)
    for number in range(10, 20):
        await world.publish(count=7, first=7 * number)
    await consumer.until_got(140)
    assert consumer.offsets(T0) == list(range(140))
    assert consumer.values() == [b"%d" % number for number in range(140)]
    assert all(isinstance(each, Batches if raw else Records) for each in consumer.deliveries[1:])


async def test_each_delivery_says_where_reading_goes_on_and_the_end(world: World) -> None:
    await world.create()
    await world.publish(count=5)
    records = await world.open()
    raw = await world.open(raw=True, offsets={T0: 3})
    await records.until_got(5)
    await raw.until_got(2)
    assert records.deliveries[1][2:] == (5, 5)  # next_offset, end
    batches = raw.deliveries[1]
    assert isinstance(batches, Batches)
    assert (batches.from_offset, batches.to_offset, batches.end, batches.record_count) == (3, 5, 5, 2)


async def test_partitions_take_turns(world: World) -> None:
    await world.create(partitions=2)
    for _ in range(5):
        await world.publish(T0, 1, size=20_000)
        await world.publish(T1, 1, size=20_000)
    consumer = await world.open(partitions=[T0, T1], bytes_max=40_000)
    await consumer.until_got(10)
    order = [at.partition for at, _ in consumer.records()]
    assert order == [0, 1] * 5


async def test_a_group_begins_where_it_stopped(world: World) -> None:
    await world.create()
    await world.publish(count=10)
    await world.commit("g", {T0: 6})
    consumer = await world.open(group="g")
    await consumer.until_got(4)
    assert consumer.offsets(T0) == [6, 7, 8, 9]


@pytest.mark.parametrize(("start", "begins"), [(Start.EARLIEST, 4), (Start.LATEST, 10)])
@pytest.mark.parametrize("committed", [None, 2])
async def test_without_an_offset_that_is_there_the_policy_says_where_to_begin(
    world: World, start: Start, begins: int, committed: int | None
) -> None:
    await world.create()
    await world.publish(count=10)
    if committed is not None:
        await world.commit("g", {T0: committed})
    await world.engine.trim(T0, 4)
    consumer = await world.open(group="g", start=start)
    await consumer.until_assigned(T0)
    assert consumer.assigned[0].partitions == {T0: begins}


@pytest.mark.parametrize("committed", [None, 2])
async def test_by_the_policy_none_it_ends_with_the_range_there_is(world: World, committed: int | None) -> None:
    await world.create()
    await world.publish(count=10)
    if committed is not None:
        await world.commit("g", {T0: committed})
    await world.engine.trim(T0, 4)
    consumer = await world.open(group="g", start=Start.NONE)
    reason = await consumer.over()
    assert isinstance(reason, OffsetOutOfRange)
    assert (reason.start, reason.end) == (4, 10)
    assert "t-0" in str(reason)
    assert world.groups.describe("g").members == []


async def test_records_deleted_before_the_reader_came_to_them_are_jumped_over_by_policy(world: World) -> None:
    await world.create()
    consumer = await world.open()
    await consumer.until_assigned(T0)
    consumer.it.pause([T0])
    await world.publish(count=10)
    await world.engine.trim(T0, 4)
    consumer.it.resume([T0])
    await consumer.until_got(6)
    assert consumer.assigned[-1].partitions == {T0: 4}
    assert consumer.offsets(T0) == [4, 5, 6, 7, 8, 9]


async def test_a_reader_that_is_passed_ends_by_the_policy_none(world: World) -> None:
    await world.create()
    consumer = await world.open(offsets={T0: 0}, start=Start.NONE)
    await consumer.until_assigned(T0)
    consumer.it.pause([T0])
    await world.publish(count=10)
    await world.engine.trim(T0, 4)
    consumer.it.resume([T0])
    reason = await consumer.over()
    assert isinstance(reason, OffsetOutOfRange)
    assert (reason.start, reason.end) == (4, 10)


async def test_a_seek_is_told_before_any_record_from_there(world: World) -> None:
    await world.create()
    await world.publish(count=10)
    consumer = await world.open()
    await consumer.until_got(10)
    await consumer.it.seek({T0: 7})
    await consumer.until_got(13)
    assert [type(each) for each in consumer.deliveries] == [Assigned, Records, Assigned, Records]
    assert consumer.assigned[-1].partitions == {T0: 7}
    assert consumer.offsets(T0, since=2) == [7, 8, 9]


async def test_a_seek_while_something_is_being_delivered_wins(world: World) -> None:
    await world.create()
    consumer = await world.open()
    await consumer.until_assigned(T0)
    consumer.stall()
    await world.publish(count=10)
    await consumer.until(lambda it: it.held is not None)
    await consumer.it.seek({T0: 0})
    consumer.go_on()
    await consumer.until_got(20)
    assert consumer.assigned[-1].partitions == {T0: 0}
    assert consumer.offsets(T0, since=2) == list(range(10))


@pytest.mark.parametrize("offset", [-1, 3, 11])
async def test_a_seek_out_of_range_names_the_range_and_moves_nothing(world: World, offset: int) -> None:
    await world.create(partitions=2)
    await world.publish(T0, 10)
    await world.engine.trim(T0, 4)
    consumer = await world.open(partitions=[T0, T1], start=Start.LATEST)
    await consumer.until_assigned(T0, T1)
    with pytest.raises(OffsetOutOfRange, match="4 to 10"):
        await consumer.it.seek({T1: 0, T0: offset})
    await settle()
    assert len(consumer.deliveries) == 1


async def test_a_seek_may_go_to_both_ends(world: World) -> None:
    await world.create()
    await world.publish(count=10)
    await world.engine.trim(T0, 4)
    consumer = await world.open(start=Start.LATEST)
    await consumer.until_assigned(T0)
    await consumer.it.seek({T0: 4})
    await consumer.until_got(6)
    await consumer.it.seek({T0: 10})
    await world.publish()
    await consumer.until_got(7)
    assert consumer.offsets(T0) == [4, 5, 6, 7, 8, 9, 10]


async def test_nothing_of_a_paused_partition_comes_until_it_is_resumed(world: World) -> None:
    await world.create(partitions=2)
    consumer = await world.open(partitions=[T0, T1])
    await consumer.until_assigned(T0, T1)
    consumer.it.pause([T0])
    await world.publish(T0, 3)
    await world.publish(T1, 3)
    await consumer.until_got(3)
    await settle()
    assert consumer.offsets(T0) == []
    consumer.it.resume([T0])
    await consumer.until_got(6)
    assert consumer.offsets(T0) == [0, 1, 2]


async def test_pausing_and_resuming_twice_delivers_once(world: World) -> None:
    await world.create()
    await world.publish(count=3)
    consumer = await world.open()
    for _ in range(3):
        consumer.it.pause([T0])
        consumer.it.resume([T0])
    await consumer.until_got(3)
    for _ in range(3):
        consumer.it.pause([T0])
        consumer.it.pause([T0])
        consumer.it.resume([T0])
        consumer.it.resume([T0])
    await world.publish(count=3)
    await consumer.until_got(6)
    await settle()
    assert consumer.offsets(T0) == list(range(6))


async def test_partitions_it_does_not_own_are_passed_over(world: World) -> None:
    await world.create(partitions=2)
    consumer = await world.open()
    await consumer.until_assigned(T0)
    consumer.it.pause([T1])
    consumer.it.resume([T1])
    await consumer.it.seek({T1: 0})
    await world.publish(T1)
    await world.publish(T0)
    await consumer.until_got(1)
    assert consumer.records()[0][0] == T0


async def test_commits_are_the_members_own(world: World) -> None:
    await world.create(partitions=2)
    await world.publish(T0, 10)
    consumer = await world.open(group="g")
    await consumer.until_assigned(T0, T1)
    refused = await consumer.it.commit({T0: Committed(5), T1: Committed(1), At("t", 2): Committed(0)})
    assert {at: type(error) for at, error in refused.items()} == {T1: OffsetOutOfRange, At("t", 2): UnknownPartition}
    assert (await world.engine.offsets("g"))[T0].offset == 5


async def test_a_commit_of_an_older_generation_is_refused(world: World) -> None:
    await world.create()
    await world.publish(count=10)
    consumer = await world.open(group="g")
    await consumer.until_assigned(T0)
    before = consumer.it.generation
    other = await world.open(group="g")
    await consumer.until(lambda it: it.assigned[-1].generation == before + 1)
    refused = await consumer.it.commit({T0: Committed(5)}, before)
    assert isinstance(refused[T0], IllegalGeneration)
    owner = consumer if consumer.assigned[-1].partitions else other
    assert not await owner.it.commit({T0: Committed(5)})


async def test_a_commit_is_a_sign_of_life(world: World) -> None:
    await world.create()
    consumer = await world.open(group="g", session_timeout_ms=10_000)
    await consumer.until_assigned(T0)
    world.pass_time(9_000)
    await consumer.it.commit({T0: Committed(0)})
    world.pass_time(9_000)
    consumer.it.alive()
    world.pass_time(9_000)
    assert len(world.groups.describe("g").members) == 1


async def test_without_a_group_there_is_nothing_to_commit(world: World) -> None:
    await world.create()
    consumer = await world.open()
    with pytest.raises(InvalidRequest):
        await consumer.it.commit({T0: Committed(0)})


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (InvalidRequest, Wanted()),
        (InvalidRequest, Wanted(topics=["t"])),
        (InvalidRequest, Wanted(group="g")),
        (InvalidRequest, Wanted(group="g", topics=["t"], partitions=[T0])),
        (InvalidRequest, Wanted(partitions=[T0], consumer=0)),
        (InvalidRequest, Wanted(partitions=[T0, T0])),
        (InvalidRequest, Wanted(partitions=[T0], offsets={T1: 0})),
        (InvalidRequest, Wanted(partitions=[T0], records_max=0)),
        (InvalidRequest, Wanted(partitions=[T0], records_max=1_001)),
        (InvalidRequest, Wanted(partitions=[T0], bytes_max=0)),
        (UnknownTopic, Wanted(partitions=[At("nope", 0)])),
        (UnknownPartition, Wanted(partitions=[T1])),
        (UnknownTopic, Wanted(group="g", topics=["nope"])),
    ],
)
async def test_what_cannot_be_is_refused_when_it_is_opened(
    world: World, error: type[LevadaError], wanted: Wanted
) -> None:
    await world.create()

    async def deliver(_: object) -> None:
        raise AssertionError("nothing is delivered")

    with pytest.raises(error):
        await world.subscriptions.open(wanted, deliver)
    assert not world.subscriptions.all() and not world.subscriptions.out()


async def test_a_transport_that_breaks_ends_it_and_leaves_the_group(world: World) -> None:
    await world.create()

    async def broken(_: object) -> None:
        raise ConnectionResetError("gone")

    subscription = await world.subscriptions.open(Wanted(group="g", topics=["t"]), broken)
    with pytest.raises(ConnectionResetError):
        await subscription.wait()
    assert world.groups.describe("g").members == []
    await subscription.close()


async def test_closing_leaves_the_group_at_once_and_twice_does_no_harm(world: World) -> None:
    await world.create()
    await world.publish(count=3)
    consumer = await world.open(group="g", grants=False)
    await consumer.until_got(3)
    consumer.stall()
    await world.publish()
    await consumer.until(lambda it: it.held is not None)
    await consumer.it.close()
    assert world.groups.describe("g").members == []
    assert await consumer.over() is None
    await consumer.it.close()
    assert not world.subscriptions.all() and not world.subscriptions.out()


async def test_what_goes_out_is_counted(world: World) -> None:
    await world.create(partitions=2)
    await world.publish(T0, 5)
    await world.publish(T1, 3)
    consumer = await world.open(partitions=[T0, T1], raw=True)
    await consumer.until_got(8)
    assert {at: records for at, (records, _) in world.out.items()} == {T0: 5, T1: 3}
    sent = sum(len(each.data) for each in consumer.deliveries if isinstance(each, Batches))
    assert sum(size for _, size in world.out.values()) == sent


async def test_a_deleted_topic_ends_who_chose_its_partitions(world: World) -> None:
    await world.create()
    consumer = await world.open()
    await consumer.until_assigned(T0)
    await world.engine.delete("t")
    assert isinstance(await consumer.over(), UnknownTopic)


@pytest.mark.parametrize("told", [True, False])
async def test_a_member_reads_a_topic_that_was_made_again_from_its_beginning(world: World, told: bool) -> None:
    await world.create()
    await world.publish(count=3)
    consumer = await world.open(group="g")
    await consumer.until_got(3)
    await consumer.it.commit({T0: Committed(3)})
    await world.engine.delete("t")
    if told:
        world.groups.topics_changed(world.clock_ms)
        await consumer.until_assigned()
    await world.create()
    world.groups.topics_changed(world.clock_ms)
    await world.publish(count=5, first=100)
    await consumer.until_got(8)
    assert consumer.values()[3:] == [b"%d" % number for number in range(100, 105)]
    assert consumer.assigned[-1].partitions == {T0: 0}


async def test_a_topic_made_again_is_another_one_also_where_it_has_more_records(world: World) -> None:
    """Neither the group nor the consumer has heard of it when reading goes on."""
    await world.create()
    await world.publish(count=3)
    consumer = await world.open(group="g")
    await consumer.until_got(3)
    consumer.it.pause([T0])
    await world.engine.delete("t")
    await world.create()
    await world.publish(count=5, first=100)
    consumer.it.resume([T0])
    await consumer.until_got(8)
    assert consumer.values()[3:] == [b"%d" % number for number in range(100, 105)]
    assert consumer.assigned[-1].partitions == {T0: 0}


async def test_a_generation_is_told_once_it_is_kept_for_good(world: World) -> None:
    await world.create()
    kept = asyncio.Event()
    durable = world.groups.durable

    async def slow(receipt: int) -> None:
        await durable(receipt)
        await kept.wait()

    world.groups.durable = slow  # type: ignore[method-assign,assignment]
    consumer = await world.open(group="g")
    await settle(200)
    assert consumer.deliveries == []
    kept.set()
    await consumer.until_assigned(T0)


@pytest.mark.parametrize("what", ["pause", "seek", "seek to the same"])
async def test_what_was_being_read_when_it_was_paused_or_sought_is_not_delivered(world: World, what: str) -> None:
    await world.create()
    consumer = await world.open()
    await consumer.until_assigned(T0)
    consumer.it.pause([T0])
    await world.publish(count=10)
    begun, may_end = asyncio.Event(), asyncio.Event()
    read = world.engine.read

    async def slow(*args: object) -> object:
        found = await read(*args)  # type: ignore[arg-type]
        begun.set()
        await may_end.wait()
        return found

    world.engine.read = slow  # type: ignore[method-assign,assignment]
    consumer.it.resume([T0])
    await begun.wait()
    if what == "pause":
        consumer.it.pause([T0])
        may_end.set()
        await settle()
        assert consumer.records() == []
        consumer.it.resume([T0])
        await consumer.until_got(10)
        assert consumer.offsets(T0) == list(range(10))
    else:
        offset = 4 if what == "seek" else 0
        await consumer.it.seek({T0: offset})
        may_end.set()
        await consumer.until_got(10 - offset)
        assert [type(each) for each in consumer.deliveries] == [Assigned, Assigned, Records]
        assert consumer.assigned[-1].partitions == {T0: offset}
        assert consumer.offsets(T0) == list(range(offset, 10))


async def test_a_seek_in_the_middle_of_a_batch_leaves_out_the_rest_of_it(world: World) -> None:
    await world.create()
    consumer = await world.open(bytes_max=5_000, grants=False)
    await consumer.until_assigned(T0)
    consumer.stall()
    await world.publish(count=10, size=1_000)
    await consumer.until(lambda it: it.held is not None)
    await consumer.it.seek({T0: 8})
    consumer.go_on()
    await consumer.until(lambda it: len(it.assigned) == 2 and len(it.records()) == 4)
    await settle()
    assert consumer.offsets(T0) == [0, 1, 8, 9]
    assert consumer.it.out == 4


async def test_a_batch_that_is_too_large_for_the_bytes_still_comes(world: World) -> None:
    await world.create()
    await world.publish(count=3, size=50_000)
    await world.publish(count=1)
    for raw in (False, True):
        consumer = await world.open(bytes_max=1_000, raw=raw)
        await consumer.until_got(4)
        assert consumer.offsets(T0) == [0, 1, 2, 3]


async def test_records_of_one_batch_are_cut_to_the_bytes(world: World) -> None:
    await world.create()
    await world.publish(count=10, size=1_000)
    consumer = await world.open(bytes_max=5_000)
    await consumer.until_got(10)
    assert [len(each.records) for each in consumer.deliveries if isinstance(each, Records)] == [2, 2, 2, 2, 2]
    assert [each.next_offset for each in consumer.deliveries if isinstance(each, Records)] == [2, 4, 6, 8, 10]


async def test_read_committed_is_what_isolation_says(world: World) -> None:
    await world.create()
    await world.publish(count=3)
    consumer = await world.open(isolation=Isolation.READ_COMMITTED)
    await consumer.until_got(3)
    assert consumer.offsets(T0) == [0, 1, 2]
