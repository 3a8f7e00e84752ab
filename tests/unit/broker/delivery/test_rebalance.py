"""Several consumers of a group: who gets what, and what happens when one comes, goes, dies or is taken over."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from levada.broker.delivery import Assigned, Records, Start, Wanted
from levada.broker.streams import Edge, ToOffset
from levada.engine.port import At, Committed
from levada.errors import (
    FencedInstance,
    GroupKindMismatch,
    IllegalGeneration,
    LevadaError,
    ShuttingDown,
    UnknownGroup,
    UnknownMember,
)
from support.delivery import Consumer, World, settle

T = [At("t", index) for index in range(6)]


async def test_11_each_partition_has_one_owner_and_two_groups_get_everything(world: World) -> None:
    await world.create(partitions=6)
    groups = {name: [await world.open(group=name) for _ in range(3)] for name in ("a", "b")}
    for members in groups.values():
        await world.until(lambda members=members: _settled(members, T))
        assert [len(member.assigned[-1].partitions) for member in members] == [2, 2, 2]
    for at in T:
        await world.publish(at, 5)
    for members in groups.values():
        await world.until(lambda members=members: sum(len(member.records()) for member in members) >= 30)
        got = Counter((at, record.offset) for member in members for at, record in member.records())
        assert got == Counter((at, offset) for at in T for offset in range(5))


async def test_11_consumer_i_of_a_fixed_group_owns_every_partition_with_that_remainder(world: World) -> None:
    await world.create(partitions=6)
    registered = world.groups.register("t", "g", 3, world.clock_ms)
    consumers = [await world.open(group="g", consumer=number, generation=registered.generation) for number in range(3)]
    for number, consumer in enumerate(consumers):
        await consumer.until_assigned(T[number], T[number + 3])
    for at in T:
        await world.publish(at, 5)
    for number, consumer in enumerate(consumers):
        await consumer.until_got(10)
        assert {at for at, _ in consumer.records()} == {T[number], T[number + 3]}


async def test_a_new_number_of_consumers_fences_those_of_before(world: World) -> None:
    await world.create(partitions=6)
    first = world.groups.register("t", "g", 3, world.clock_ms)
    consumer = await world.open(group="g", consumer=0, generation=first.generation)
    await consumer.until_assigned(T[0], T[3])
    second = world.groups.register("t", "g", 2, world.clock_ms)
    assert isinstance(await consumer.over(), IllegalGeneration)
    with pytest.raises(IllegalGeneration):
        await world.open(group="g", consumer=0, generation=first.generation)
    consumer = await world.open(group="g", consumer=0, generation=second.generation)
    await consumer.until_assigned(T[0], T[2], T[4])


async def test_whoever_takes_a_consumers_number_fences_the_one_before(world: World) -> None:
    await world.create(partitions=2)
    world.groups.register("t", "g", 1, world.clock_ms)
    older = await world.open(group="g", consumer=0)
    await older.until_assigned(T[0], T[1])
    newer = await world.open(group="g", consumer=0)
    await newer.until_assigned(T[0], T[1])
    assert isinstance(await older.over(), FencedInstance)
    before = len(older.deliveries)
    await world.publish(T[0])
    await newer.until_got(1)
    assert len(older.deliveries) == before


async def test_a_group_is_of_one_kind(world: World) -> None:
    await world.create(partitions=2)
    with pytest.raises(UnknownGroup):
        await world.open(group="g", consumer=0)
    await world.open(group="g")
    with pytest.raises(GroupKindMismatch):
        await world.open(group="g", consumer=0)
    world.groups.register("t", "fixed", 1, world.clock_ms)
    with pytest.raises(GroupKindMismatch):
        await world.open(group="fixed")


async def test_expansion_reaches_running_consumers(world: World) -> None:
    await world.create(partitions=4)
    dynamic = [await world.open(group="g") for _ in range(2)]
    world.groups.register("t", "fixed", 2, world.clock_ms)
    fixed = [await world.open(group="fixed", consumer=number) for number in range(2)]
    for members in (dynamic, fixed):
        await world.until(lambda members=members: _settled(members, T[:4]))
    await world.expand("t", 6)
    for members in (dynamic, fixed):
        await world.until(lambda members=members: _settled(members, T))
    for at in T:
        await world.publish(at)
    for members in (dynamic, fixed):
        await world.until(lambda members=members: sum(len(member.records()) for member in members) >= 6)
        assert sorted(at for member in members for at, _ in member.records()) == T
    assert fixed[0].assigned[-1].partitions == {T[0]: 0, T[2]: 0, T[4]: 0}


@pytest.mark.parametrize("start", [Start.LATEST, Start.NONE])
@pytest.mark.parametrize("fixed", [False, True])
async def test_partitions_made_meanwhile_are_read_from_their_start_whatever_the_policy(
    world: World, start: Start, fixed: bool
) -> None:
    await world.create(partitions=1)
    await world.publish(T[0], 3)
    await world.commit("g", {T[0]: 3})
    if fixed:
        world.groups.register("t", "g", 1, world.clock_ms)
    consumer = await world.open(group="g", start=start, **({"consumer": 0} if fixed else {}))
    await consumer.until_assigned(T[0])
    await world.engine.expand("t", 2)
    await world.publish(T[1], 3)
    world.groups.topics_changed(world.clock_ms)
    await consumer.until_assigned(T[0], T[1])
    assert consumer.assigned[-1].partitions == {T[0]: 3, T[1]: 0}
    await consumer.until_got(3)


async def test_where_nothing_moved_reading_goes_on_and_nothing_comes_twice(world: World) -> None:
    await world.create(partitions=2)
    first = await world.open(group="g")
    await first.until_assigned(T[0], T[1])
    for at in T[:2]:
        await world.publish(at, 10)
    await first.until_got(20)
    second = await world.open(group="g")
    await world.until(lambda: _settled([first, second], T[:2]))
    [kept], [handed] = (each.assigned[-1].partitions for each in (first, second))
    await world.publish(kept, 10)
    await world.publish(handed, 10)
    await first.until_got(30)
    assert first.offsets(kept) == list(range(20))
    # Nothing was committed, so the new owner begins at the beginning.
    await second.until_got(20)
    assert second.offsets(handed) == list(range(20))


@pytest.mark.parametrize("raw", [False, True])
async def test_nothing_of_a_partition_comes_after_it_was_told_to_be_another_ones(world: World, raw: bool) -> None:
    await world.create(partitions=2)
    first = await world.open(group="g", raw=raw)
    await first.until_assigned(T[0], T[1])
    first.stall()
    for at in T[:2]:
        for _ in range(5):
            await world.publish(at, 10)
    await first.until(lambda it: it.held is not None)
    second = await world.open(group="g", raw=raw)
    await second.until(lambda it: it.assigned)
    [handed] = second.assigned[-1].partitions
    await second.until_got(50)
    first.go_on()
    await first.until(lambda it: len(it.assigned) == 2)
    told = first.deliveries.index(first.assigned[-1])
    await first.until(lambda it: len(it.offsets(_other(handed))) == 50)
    await settle()
    assert first.offsets(handed, since=told) == []
    assert second.offsets(handed) == list(range(50))


async def test_12_a_member_that_gives_no_sign_of_life_loses_its_partitions_and_its_commits(world: World) -> None:
    await world.create(partitions=2)
    dead = await world.open(group="g", session_timeout_ms=10_000)
    alive = await world.open(group="g", session_timeout_ms=10_000)
    await world.until(lambda: _settled([dead, alive], T[:2]))
    [lost] = dead.assigned[-1].partitions
    await world.publish(lost, 10)
    await dead.until_got(10)
    assert not await dead.it.commit({lost: Committed(4)})
    generation = dead.it.generation
    world.pass_time(9_999)
    alive.it.alive()
    world.pass_time(1)
    reason = await dead.over()
    assert isinstance(reason, UnknownMember)
    assert "10000 ms" in str(reason)
    await alive.until_assigned(T[0], T[1])
    assert alive.assigned[-1].partitions[lost] == 4
    await alive.until(lambda it: len(it.offsets(lost)) == 6)
    assert alive.offsets(lost) == [4, 5, 6, 7, 8, 9]
    late = await dead.it.commit({lost: Committed(9)}, generation)
    assert isinstance(late[lost], LevadaError)
    assert (await world.engine.offsets("g"))[lost].offset == 4


async def test_a_stalled_member_that_dies_is_closed_at_once_and_gives_back_what_it_held(world: World) -> None:
    await world.create()
    dead = await world.open(group="g", session_timeout_ms=10_000, grants=False)
    await dead.until_assigned(T[0])
    dead.stall()
    await world.publish(count=10)
    await dead.until(lambda it: it.held is not None)
    assert world.subscriptions.out() == {"g": 10}
    world.pass_time(10_000)
    assert isinstance(await dead.over(), UnknownMember)
    assert world.subscriptions.out() == {}
    dead.go_on()
    await settle()
    assert dead.records() == []


async def test_when_the_groups_close_everybody_is_told(world: World) -> None:
    await world.create()
    consumer = await world.open(group="g")
    await consumer.until_assigned(T[0])
    world.groups.close(world.clock_ms)
    assert isinstance(await consumer.over(), ShuttingDown)
    await consumer.it.close()


async def test_13_a_group_goes_on_where_it_committed(world: World) -> None:
    await world.create()
    await world.publish(count=20)
    await world.commit("g", {T[0]: 10})
    consumer = await world.open(group="g")
    await consumer.until_got(10)
    assert consumer.offsets(T[0])[:5] == [10, 11, 12, 13, 14]
    assert not await consumer.it.commit({T[0]: Committed(15)})
    await consumer.it.close()
    again = await world.open(group="g")
    await again.until_got(5)
    assert again.offsets(T[0]) == [15, 16, 17, 18, 19]


@pytest.mark.parametrize("fixed", [False, True])
async def test_a_running_member_goes_on_where_an_administrator_put_the_group(world: World, fixed: bool) -> None:
    await world.create(partitions=2)
    await world.publish(T[0], 10)
    await world.publish(T[1], 10)
    if fixed:
        world.groups.register("t", "g", 1, world.clock_ms)
    consumer = await world.open(group="g", **({"consumer": 0} if fixed else {}))
    await consumer.until_got(20)
    before = len(consumer.deliveries)
    await world.positions.seek("g", "t", [0], ToOffset(7), now_ms=world.clock_ms)
    await consumer.until_got(23)
    assert consumer.assigned[-1].partitions == {T[0]: 7, T[1]: 10}
    assert isinstance(consumer.deliveries[before], Assigned)
    assert [(at, record.offset) for at, record in consumer.records(before)] == [(T[0], 7), (T[0], 8), (T[0], 9)]
    await world.positions.seek("g", "t", [], Edge.EARLIEST, now_ms=world.clock_ms)
    await consumer.until_got(43)
    assert consumer.assigned[-1].partitions == {T[0]: 0, T[1]: 0}


@pytest.mark.parametrize("seed", range(4))
async def test_36_whoever_comes_and_goes_nothing_is_lost_reordered_or_read_by_two(world: World, seed: int) -> None:
    """Members come, leave and die while records are published. Each handles what it gets and commits it; a record that is
    handled again was not committed, and no two handle it in the same generation."""
    chance = random.Random(seed)
    await world.create(partitions=6)
    members: list[Handler] = []
    everybody: list[Handler] = []
    published = Counter[At]()
    for _ in range(40):
        step = chance.random()
        if step < 0.25 and len(members) < 4:
            handler = Handler(world)
            await handler.open()
            members.append(handler)
            everybody.append(handler)
        elif step < 0.35 and len(members) > 1:
            await members.pop(chance.randrange(len(members))).it.close()
        elif step < 0.42 and len(members) > 1:
            members.pop(chance.randrange(len(members))).is_dead = True
            for member in members:
                member.it.alive()
            world.pass_time(6_000)
            for member in members:
                member.it.alive()
            world.pass_time(6_000)
        else:
            at = chance.choice(T)
            count = chance.randrange(1, 30)
            await world.publish(at, count, first=published[at])
            published[at] += count
        await settle(chance.randrange(20))
    if not members:
        handler = Handler(world)
        await handler.open()
        members.append(handler)
        everybody.append(handler)

    def all_committed() -> bool:
        kept = world.engine.offset_store.fetch("g")
        return all(at in kept and kept[at].offset == count for at, count in published.items())

    await world.until(all_committed)
    for at, count in published.items():
        handled = [offset for handler in everybody for offset in handler.handled[at]]
        assert set(handled) == set(range(count))
    # Two members never handled the same record in one generation, and each in order.
    seen: Counter[tuple[int, At, int]] = Counter()
    for handler in everybody:
        for generation, at, offset in handler.journal:
            seen[generation, at, offset] += 1
    assert not [key for key, times in seen.items() if times > 1]
    for handler in everybody:
        handler.check_order()


class Handler(Consumer):
    """Handles what it gets, and commits after each delivery."""

    def __init__(self, world: World) -> None:
        super().__init__(grants=True)
        self.world = world
        self.is_dead = False
        self.handled: dict[At, list[int]] = {at: [] for at in T}
        #: Generation, partition, offset.
        self.journal: list[tuple[int, At, int]] = []
        self.commits: set[asyncio.Task[object]] = set()
        self.noted = world._noted.set

    async def open(self) -> None:
        wanted = Wanted(group="g", topics=["t"], session_timeout_ms=10_000)
        self.subscription = await self.world.subscriptions.open(wanted, self.deliver)

    async def deliver(self, delivery: object) -> None:
        await super().deliver(delivery)  # type: ignore[arg-type]
        if self.is_dead:
            return
        generation = self.assigned[-1].generation
        if isinstance(delivery, Assigned):
            # What could not be committed in the generation before is committed in this one, where the partition has stayed.
            self._commit_soon(delivery.partitions, generation)
            return
        assert isinstance(delivery, Records)
        assert delivery.at in self.assigned[-1].partitions, "not told to be its own"
        for record in delivery.records:
            assert record.value == b"%d" % record.offset
            self.handled[delivery.at].append(record.offset)
            self.journal.append((generation, delivery.at, record.offset))
        self._commit_soon({delivery.at: delivery.next_offset}, generation)

    def _commit_soon(self, offsets: Mapping[At, int], generation: int) -> None:
        task = asyncio.ensure_future(self._commit(offsets, generation))
        self.commits.add(task)
        task.add_done_callback(self.commits.discard)

    async def _commit(self, offsets: Mapping[At, int], generation: int) -> None:
        await self.it.commit({at: Committed(offset) for at, offset in offsets.items()}, generation)
        self.noted()

    def check_order(self) -> None:
        """Offsets rise, but where a new assignment said to begin elsewhere."""
        standing: dict[At, int] = {}
        for delivery in self.deliveries:
            if isinstance(delivery, Assigned):
                standing = dict(delivery.partitions)
            elif isinstance(delivery, Records):
                for record in delivery.records:
                    assert record.offset == standing[delivery.at]
                    standing[delivery.at] += 1


def _settled(members: list[Consumer], ats: list[At]) -> bool:
    """Everybody knows of the same generation, and all partitions are somebody's."""
    told = [member.assigned[-1] for member in members if member.assigned]
    owned = sorted(at for each in told for at in each.partitions)
    return len(told) == len(members) and len({each.generation for each in told}) == 1 and owned == ats


def _other(at: At) -> At:
    return At(at.topic, 1 - at.partition)
