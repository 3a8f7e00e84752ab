"""How much may wait in a partition, and who waits for room."""

from __future__ import annotations

import asyncio

import pytest

from levada.broker.publishing.gate import BYTES_MAX, LINE_BYTES_MAX, RECORDS_MAX, Gate, Load
from levada.engine.port import At
from levada.errors import Overloaded

A, B = At("t", 0), At("t", 1)
FULL = Load(RECORDS_MAX, 1)


def one(records: int = 1, size: int = 1, at: At = A) -> dict[At, Load]:
    return {at: Load(records, size)}


async def enters(gate: Gate, loads: dict[At, Load], timeout_ms: int = 60_000) -> asyncio.Task[None]:
    task = asyncio.ensure_future(gate.enter(loads, timeout_ms))
    await asyncio.sleep(0)
    return task


async def test_nothing_is_kept_of_a_partition_where_nothing_waits() -> None:
    gate = Gate()
    await gate.enter(one(), 0)
    assert gate.waiting() == {A: Load(1, 1)}
    gate.leave(one())
    assert gate.waiting() == {}


@pytest.mark.parametrize("load", [FULL, Load(1, BYTES_MAX)])
async def test_a_full_partition_turns_publishers_away_with_a_hint(load: Load) -> None:
    gate = Gate()
    await gate.enter({A: load}, 0)
    with pytest.raises(Overloaded, match=r"t-0: .* no room within 20 ms") as refusal:
        await gate.enter(one(), 20)
    assert refusal.value.retry_after_ms > 0
    gate.leave({A: load})
    await gate.enter(one(), 0)


async def test_a_full_partition_does_not_hold_up_another() -> None:
    gate = Gate()
    await gate.enter({A: FULL}, 0)
    await gate.enter({B: FULL}, 0)


async def test_whoever_came_first_is_let_in_first() -> None:
    gate = Gate()
    await gate.enter({A: FULL}, 0)
    large = await enters(gate, one(RECORDS_MAX))
    small = await enters(gate, one())
    gate.leave({A: FULL})
    await large
    assert not small.done(), "the small one must not overtake"
    gate.leave(one(RECORDS_MAX))
    await small


async def test_whoever_gives_up_lets_those_behind_go_on() -> None:
    gate = Gate()
    await gate.enter(one(RECORDS_MAX - 1), 0)
    large = await enters(gate, one(5), timeout_ms=20)
    small = await enters(gate, one(1))
    with pytest.raises(Overloaded):
        await large
    await small
    assert gate.waiting() == {A: Load(RECORDS_MAX, 2)}


async def test_whoever_is_larger_than_all_the_room_is_let_in_alone() -> None:
    gate = Gate()
    await gate.enter(one(), 0)
    huge = await enters(gate, one(3 * RECORDS_MAX))
    assert not huge.done()
    gate.leave(one())
    await huge
    with pytest.raises(Overloaded):
        await gate.enter(one(), 0)


async def test_whoever_is_let_into_one_partition_and_not_the_other_holds_neither() -> None:
    gate = Gate()
    await gate.enter({B: FULL}, 0)
    with pytest.raises(Overloaded):
        await gate.enter({A: Load(5, 5), B: Load(5, 5)}, 20)
    assert gate.waiting() == {B: FULL}


async def test_a_publisher_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    gate = Gate()
    await gate.enter({A: FULL}, 0)
    waiting = await enters(gate, one())
    waiting.cancel()
    await asyncio.wait([waiting])
    gate.leave({A: FULL})
    assert gate.waiting() == {}


async def test_what_waits_in_line_is_bounded_over_all_partitions() -> None:
    gate = Gate()
    await gate.enter({A: FULL, B: FULL}, 0)
    first = await enters(gate, one(size=LINE_BYTES_MAX - 10))
    with pytest.raises(Overloaded, match="wait in line already"):
        await gate.enter(one(size=11, at=B), 60_000)
    second = await enters(gate, one(size=10, at=B))
    gate.leave({A: FULL, B: FULL})
    await asyncio.gather(first, second)
    gate.leave(one(size=LINE_BYTES_MAX - 10))
    await gate.enter(one(RECORDS_MAX), 0)
    third = await enters(gate, one(size=LINE_BYTES_MAX))
    assert not third.done(), "the line is free again"
    gate.leave(one(RECORDS_MAX))
    await third


async def test_one_that_is_larger_than_the_line_may_stand_in_it_alone() -> None:
    gate = Gate()
    await gate.enter({A: FULL}, 0)
    huge = await enters(gate, one(size=3 * LINE_BYTES_MAX))
    gate.leave({A: FULL})
    await huge
