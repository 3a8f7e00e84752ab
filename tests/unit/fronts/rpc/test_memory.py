"""How much memory requests to publish may take, and who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from levada.errors import Overloaded
from levada.fronts.rpc.memory import Memory


async def begun(waiting: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    return task


async def test_only_some_are_read_at_a_time() -> None:
    memory = Memory(reads_max=2)
    await memory.begin_read(0)
    await memory.begin_read(0)
    third = await begun(memory.begin_read(60_000))
    assert not third.done()
    memory.end_read()
    await third


async def test_while_too_much_is_held_nothing_is_read() -> None:
    memory = Memory(bytes_max=100)
    memory.take(100)
    one = await begun(memory.begin_read(60_000))
    stream = await begun(memory.room())
    memory.give(1)
    await asyncio.gather(one, stream)


async def test_whoever_waits_too_long_is_told_when_to_come_back() -> None:
    memory = Memory(bytes_max=100)
    memory.take(150)
    with pytest.raises(Overloaded, match=r"150 bytes .* at most 100 .* within 20 ms") as refusal:
        await memory.begin_read(20)
    assert refusal.value.retry_after_ms > 0
    memory.give(150)
    await memory.begin_read(0)


async def test_whoever_came_first_is_read_first() -> None:
    memory = Memory(bytes_max=100, reads_max=1)
    memory.take(100)
    first, second = await begun(memory.begin_read(60_000)), await begun(memory.begin_read(60_000))
    memory.give(100)
    await first
    assert not second.done()
    late = await begun(memory.begin_read(60_000))
    memory.end_read()
    await second
    assert not late.done()
    memory.end_read()
    await late


async def test_a_stream_needs_no_turn_of_its_own() -> None:
    """It may be idle: then it would keep others from being read."""
    memory = Memory(reads_max=1)
    await memory.begin_read(0)
    await asyncio.wait_for(memory.room(), 30)


async def test_whoever_gives_up_lets_the_others_go_on() -> None:
    memory = Memory(reads_max=1)
    await memory.begin_read(0)
    gone, waiting = await begun(memory.begin_read(60_000)), await begun(memory.begin_read(60_000))
    gone.cancel()
    memory.end_read()
    await waiting
    await asyncio.wait([gone])
    memory.end_read()
    await memory.begin_read(0)


async def test_whoever_gives_up_at_its_turn_gives_the_turn_back() -> None:
    memory = Memory(reads_max=1)
    await memory.begin_read(0)
    gone = await begun(memory.begin_read(60_000))
    memory.end_read()  # it is its turn, and it does not know yet
    gone.cancel()
    await asyncio.wait([gone])
    await asyncio.wait_for(memory.begin_read(0), 30)


async def test_a_stream_does_not_wait_behind_calls_that_wait_for_their_turn() -> None:
    memory = Memory(bytes_max=100, reads_max=1)
    await memory.begin_read(0)
    memory.take(100)
    call, stream = await begun(memory.begin_read(60_000)), await begun(memory.room())
    memory.give(100)
    await stream
    assert not call.done()
    memory.end_read()
    await call


async def test_a_request_of_known_size_is_held_from_when_it_is_let_in() -> None:
    memory = Memory(bytes_max=100)
    await memory.reserve(90)
    await memory.reserve(90)  # there was room for more; how much is not asked
    waiting = [await begun(memory.reserve(90)) for _ in range(3)]
    memory.give(90)
    await waiting[0]
    assert memory.held_bytes == 180
    assert not waiting[1].done()
    memory.give(180)
    await asyncio.gather(*waiting[1:])
    assert memory.held_bytes == 180


async def test_nobody_passes_those_who_wait() -> None:
    memory = Memory(bytes_max=100)
    memory.take(100)
    first = await begun(memory.reserve(100))
    memory.give(1)
    late = await begun(memory.reserve(1))
    await first
    assert not late.done()
    memory.give(199)
    await late
    assert memory.held_bytes == 1


async def test_whoever_gives_up_holds_nothing() -> None:
    memory = Memory(bytes_max=100)
    memory.take(100)
    gone, at_its_turn = await begun(memory.reserve(50)), await begun(memory.reserve(50))
    gone.cancel()
    await asyncio.wait([gone])
    memory.give(1)  # it is the other's turn, and it does not know yet
    at_its_turn.cancel()
    await asyncio.wait([at_its_turn])
    assert memory.held_bytes == 99
