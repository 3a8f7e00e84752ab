"""Accumulator and Draft: gathered by partition, bounded, and told together."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from levada.client.accumulator import Accumulator
from levada.client.delivery import Deliveries, Delivery
from levada.client.draft import Landed
from levada.client.handover import Handover
from levada.client.parcel import Parcel, parcels_of, spread_out
from levada.client.records import Position
from levada.client.route import SPREAD, Route
from levada.errors import InvalidRecord, TimedOut, UnknownPartition
from levada.records.batch import Batch
from levada.records.pack import ROW_OVERHEAD, size_of
from levada.records.read import read

ROW: Any = (1, None, b"v" * 64, [])
SIZE = size_of(*ROW[1:])


class World:
    """An accumulator, and how often it asked to be looked at."""

    def __init__(self, *, batch_bytes: int = 1_000, buffer_bytes: int = 100_000, linger: bool = True) -> None:
        self.woken = 0
        self.accumulator = Accumulator(
            batch_bytes=batch_bytes, buffer_bytes=buffer_bytes, delivery_timeout_ms=1_000, linger=linger, wake=self.wake
        )

    def wake(self) -> None:
        self.woken += 1

    def add(self, route: Route, partition: int = 0) -> Delivery:
        found = self.accumulator.add(route, partition, ROW, SIZE)
        assert found is not None
        return Delivery(*found)

    def full(self) -> list[Any]:
        return self.accumulator.collect(lingered=lambda draft: False)

    def all(self) -> list[Any]:
        return self.accumulator.collect(lingered=lambda draft: True)


def make_route(partitions: int = 1, keyless: str = "round_robin", max_message_bytes: int = 1_000_000) -> Route:
    return Route("t", b"id", partitions, "fnv1a64", keyless, max_message_bytes)


def test_a_record_lingers_until_its_draft_is_full() -> None:
    world, route = World(batch_bytes=3 * SIZE + 61), make_route()
    world.add(route)
    world.add(route)
    assert (world.full(), world.woken) == ([], 1)
    world.add(route)
    (draft,) = world.full()
    assert (len(draft), world.woken) == (3, 2)


def test_without_linger_each_draft_is_to_leave_at_once() -> None:
    world = World(linger=False)
    world.add(make_route())
    assert len(world.full()) == 1


def test_partitions_gather_apart_and_in_order() -> None:
    world, route = World(), make_route(3)
    for partition in (2, 0, 2):
        world.add(route, partition)
    assert {draft.partition: len(draft) for draft in world.all()} == {2: 2, 0: 1}


def test_a_batch_is_never_larger_than_the_topic_takes() -> None:
    world, route = World(batch_bytes=10_000), make_route(max_message_bytes=500)
    for _ in range(20):
        world.add(route)
    for draft in world.all():
        (parcel,) = parcels_of(draft, 0)
        parcel.stamp((1, 0), 0, 0)
        assert len(parcel.data) <= 500


def test_not_even_where_all_large_records_of_what_is_spread_out_come_together() -> None:
    world, route = World(batch_bytes=400), make_route(4, max_message_bytes=500)
    values = [b"x" * 200 if n % 4 == 0 else b"" for n in range(40)]
    Handover("t", values, None, None, 5).advance(world.accumulator, route)
    for draft in world.all():
        for parcel in spread_out(draft, 0, 4, 0):
            parcel.stamp((1, 0), 0, 0)
            assert len(parcel.data) <= 500


def test_when_the_buffer_is_full_nothing_more_is_taken_until_it_was_answered() -> None:
    world, route = World(buffer_bytes=2 * SIZE + 61), make_route()
    world.add(route)
    world.add(route)
    assert world.accumulator.add(route, 0, ROW, SIZE) is None
    assert not world.accumulator.has_room
    world.accumulator.release(SIZE)
    assert world.accumulator.has_room
    world.add(route)


def test_what_is_larger_than_the_buffer_is_taken_when_it_is_empty() -> None:
    world = World(buffer_bytes=10)
    world.add(make_route())
    assert world.accumulator.add(make_route(), 0, ROW, SIZE) is None


def test_somebody_who_waits_has_his_draft_sent() -> None:
    world = World()
    delivery = world.add(make_route())
    with pytest.raises(TimedOut):
        delivery.result(timeout=0.01)
    assert len(world.full()) == 1


@pytest.mark.parametrize("count", [1, 7, 500])
def test_many_values_go_the_way_of_single_ones(count: int) -> None:
    world, route = World(batch_bytes=700), make_route()
    values = [b"%d" % n for n in range(count)]
    handover = Handover("t", values, None, None, 5)
    assert handover.advance(world.accumulator, route)
    rows = [row for draft in world.all() for row in draft.records]
    assert rows == [(5, None, value, []) for value in values]
    assert len(Deliveries(handover.parts)) == count


def test_many_values_stop_where_there_is_no_room_and_go_on_there() -> None:
    world, route = World(batch_bytes=400, buffer_bytes=1_000), make_route()
    values = [b"%02d" % n * 30 for n in range(40)]
    handover = Handover("t", values, None, None, 5)
    rows: list[Any] = []
    rounds = 0
    while not handover.advance(world.accumulator, route):
        rounds += 1
        for draft in world.all():
            rows += draft.records
            world.accumulator.release(draft.size)
    rows += [row for draft in world.all() for row in draft.records]
    assert rounds > 1 and [row[2] for row in rows] == values


def test_what_was_taken_in_is_given_back_to_the_byte() -> None:
    world, route = World(batch_bytes=500), make_route(3)
    Handover("t", [b"v" * n for n in range(90)], None, None, 5).advance(world.accumulator, route)
    for partition in (0, 1, SPREAD):
        world.add(route, partition)
    for draft in world.all():
        made = spread_out(draft, 5, 3, 0) if draft.partition == SPREAD else parcels_of(draft, 0)
        for parcel in made:
            world.accumulator.release(parcel.size)
    assert world.accumulator.buffered == 0


# What becomes of them


@pytest.mark.parametrize(("count", "first"), [(1, 0), (2, 5), (10, 7), (12, 2)])
def test_records_that_are_spread_out_are_found_again(count: int, first: int) -> None:
    world, route = World(batch_bytes=10**6), make_route(4)
    handover = Handover("t", [b"%d" % n for n in range(count)], None, None, 5)
    handover.advance(world.accumulator, route)
    (draft,) = world.all()
    logs: dict[int, list[bytes | None]] = {}
    for parcel in spread_out(draft, first, 4, 0):
        parcel.stamp((1, 0), 0, 0)
        logs[parcel.partition] = [record.value for record in read(Batch(memoryview(parcel.data)))]
        parcel.landed(Landed(parcel.partition, 100 * parcel.partition))
    positions = Deliveries(handover.parts).result()
    assert [position.partition for position in positions] == [(first + n) % 4 for n in range(count)]
    found = [logs[each.partition][each.offset - 100 * each.partition] for each in positions]
    assert found == [b"%d" % n for n in range(count)]


def settled_delivery(outcome: Any) -> tuple[World, Delivery, Parcel]:
    world = World()
    delivery = world.add(make_route())
    (parcel,) = parcels_of(world.all()[0], 0)
    if outcome is not None:
        parcel.landed(outcome) if isinstance(outcome, Landed) else parcel.failed(outcome)
    return world, delivery, parcel


def test_a_delivery_says_where_its_record_lies_or_why_not() -> None:
    assert settled_delivery(Landed(3, 41))[1].result() == Position("t", 3, 41)
    assert settled_delivery(Landed(3, 41, duplicates={0: (1, 7)}))[1].result() == Position("t", 1, 7, True)
    refused = settled_delivery(InvalidRecord("no"))[1]
    with pytest.raises(InvalidRecord):
        refused.result()
    assert isinstance(refused.exception(), InvalidRecord)


def test_callbacks_are_called_before_and_after_the_answer() -> None:
    called: list[str] = []
    _, delivery, parcel = settled_delivery(None)
    delivery.add_callback(lambda done: called.append(f"early {done.result().offset}"))
    delivery.add_callback(lambda done: 1 // 0)
    parcel.landed(Landed(0, 9))
    delivery.add_callback(lambda done: called.append(f"late {done.result().offset}"))
    assert called == ["early 9", "late 9"]


def test_whoever_waits_in_another_thread_is_woken() -> None:
    _, delivery, parcel = settled_delivery(None)
    found: list[Position] = []
    thread = threading.Thread(target=lambda: found.append(delivery.result(60)))
    thread.start()
    parcel.landed(Landed(0, 4))
    thread.join(60)
    assert found == [Position("t", 0, 4)]


# Routes


def test_a_chosen_partition_comes_first_then_the_key_then_the_rule() -> None:
    route = make_route(3)
    assert route.partition(b"user-123", 0) == 0
    assert (route.partition(b"user-123", None), route.partition(b"user-456", None)) == (1, 0)
    assert route.partition(None, None) == route.partition(b"", None) == SPREAD
    assert make_route(3, "zero").partition(None, None) == make_route(1).partition(None, None) == 0
    for partition in (-1, 3):
        with pytest.raises(UnknownPartition, match="0 to 2"):
            route.partition(None, partition)


def test_the_overhead_is_never_less_than_what_a_record_needs() -> None:
    from levada.records.pack import pack

    for rows in ([(0, None, b"", [])], [(0, b"k", None, [("é" * 9, b"x"), ("", None)]), (2**62, b"", b"v", [])]):
        bound = 61 + sum(size_of(*row[1:]) for row in rows)
        assert len(pack(rows)) <= bound  # type: ignore[arg-type]
    assert size_of(None, None, []) == ROW_OVERHEAD
