"""Whatever a consumer asks for and whatever happens around it: its records are in order, none is missing, the limits hold."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from levada.broker.delivery import Assigned, Batches, Records
from levada.engine.port import At
from support.delivery import Consumer, World, counted, records_of, settle
from support.delivery import world as open_world

ATS = [At("t", 0), At("t", 1)]
RECORDS_MAX = 20
BATCH_MAX = 15

places = st.sampled_from(ATS)
share = st.floats(0, 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), places, st.integers(1, BATCH_MAX)),
        st.tuples(st.just("publish"), places, st.integers(1, BATCH_MAX)),
        st.tuples(st.just("grant"), st.integers(0, 30)),
        st.tuples(st.just("pause"), places),
        st.tuples(st.just("resume"), places),
        st.tuples(st.just("seek"), places, share),
        st.tuples(st.just("trim"), places, share),
        st.tuples(st.just("stall")),
        st.tuples(st.just("go_on")),
        st.tuples(st.just("settle"), st.integers(1, 30)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps, raw=st.booleans(), bytes_max=st.sampled_from([1, 400, 1_000_000]))
def test_a_consumers_records_are_in_order_and_within_its_limits(
    steps: list[tuple[Any, ...]], raw: bool, bytes_max: int
) -> None:
    async def run(data: Path) -> None:
        async with open_world(data) as world:
            await world.create(partitions=len(ATS))
            consumer = await world.open(
                partitions=ATS, raw=raw, bytes_max=bytes_max, records_max=RECORDS_MAX, grants=False
            )
            await consumer.until_assigned(*ATS)
            for step in steps:
                await Steps(world, consumer).take(*step)
                assert consumer.it.out <= RECORDS_MAX + BATCH_MAX - 1
            await _drain(world, consumer)
            _check(consumer, {at: (await world.engine.bounds(at)).end for at in ATS})

    with tempfile.TemporaryDirectory() as data:
        asyncio.run(run(Path(data) / "data"))


class Steps:
    """What can happen."""

    def __init__(self, world: World, consumer: Consumer) -> None:
        self.world, self.consumer = world, consumer

    async def take(self, name: str, *args: Any) -> None:
        await getattr(self, name)(*args)

    async def publish(self, at: At, count: int) -> None:
        await self.world.publish(at, count)

    async def grant(self, count: int) -> None:
        self.consumer.it.grant(count)

    async def pause(self, at: At) -> None:
        self.consumer.it.pause([at])
        before = len(self.consumer.deliveries)
        held = self.consumer.held
        await settle(10)
        later = [each for each in self.consumer.deliveries[before:] if each is not held]
        assert not [each for each in later if isinstance(each, Records | Batches) and each.at == at]

    async def resume(self, at: At) -> None:
        self.consumer.it.resume([at])

    async def seek(self, at: At, share: float) -> None:
        start, _, end = await self.world.engine.bounds(at)
        await self.consumer.it.seek({at: start + round(share * (end - start))})

    async def trim(self, at: At, share: float) -> None:
        start, _, end = await self.world.engine.bounds(at)
        await self.world.engine.trim(at, start + round(share * (end - start)))

    async def stall(self) -> None:
        self.consumer.stall()

    async def go_on(self) -> None:
        self.consumer.go_on()

    async def settle(self, rounds: int) -> None:
        await settle(rounds)


async def _drain(world: World, consumer: Consumer) -> None:
    """Let everything come that there is."""
    consumer.go_on()
    consumer.it.resume(ATS)
    consumer.it.let_run()
    for at in ATS:
        await world.publish(at)
    ends = {at: (await world.engine.bounds(at)).end for at in ATS}
    await consumer.until(lambda it: _standing(it) == ends)


def _standing(consumer: Consumer) -> dict[At, int]:
    """Where reading goes on, as the consumer was told."""
    standing: dict[At, int] = {}
    for each in consumer.deliveries:
        if isinstance(each, Assigned):
            standing = dict(each.partitions)
        elif isinstance(each, Records | Batches):
            standing[each.at] = each.next_offset if isinstance(each, Records) else each.to_offset
    return standing


def _check(consumer: Consumer, ends: dict[At, int]) -> None:
    """Each delivery begins where the one before, or what was told since, said; and nothing in it is missing."""
    standing: dict[At, int] = {}
    for each in consumer.deliveries:
        if isinstance(each, Assigned):
            standing = dict(each.partitions)
        elif isinstance(each, Records | Batches):
            next_offset = each.next_offset if isinstance(each, Records) else each.to_offset
            assert [record.offset for record in records_of(each)] == list(range(standing[each.at], next_offset))
            assert counted(each) == next_offset - standing[each.at]
            assert each.end >= next_offset
            standing[each.at] = next_offset
    assert standing == ends
    assert consumer.it.out == 0
