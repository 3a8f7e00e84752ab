"""Where groups stand, over a real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from levada.broker.streams import Committer, Edge, Positions, Shift, StreamGroups, ToOffset, ToTime
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import At, Committed
from levada.errors import (
    GroupKindMismatch,
    IllegalGeneration,
    InvalidGroupId,
    LevadaError,
    OffsetMetadataTooLarge,
    OffsetOutOfRange,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from support.batches import make_batch
from support.engines import make_topic, running
from support.streams import SESSION_MS, Consumer

BEGAN_MS = 1_700_000_000_000


class World:
    """A topic of two partitions: offsets 4..10 in the first, 0..5 in the second."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self.store = engine.offset_store
        self.held_by_kafka: set[str] = set()
        self.groups = StreamGroups(engine.view, self.store.save_group, self.store.forget_group, self)
        self.positions = Positions(engine, self.groups, metadata_max=10)

    def holds(self, group_id: str) -> bool:
        return group_id in self.held_by_kafka

    def give_up(self, group_id: str, now_ms: int) -> int:
        return 0

    async def fill(self) -> None:
        await make_topic(self.engine, "t", 2)
        for _ in range(2):
            await self.engine.append(At("t", 0), make_batch(5, timestamp_ms=BEGAN_MS).view)
        await self.engine.trim(At("t", 0), 4)
        await self.engine.append(At("t", 1), make_batch(5, timestamp_ms=BEGAN_MS + 1_000).view)

    def join(self, group: str = "g") -> Consumer:
        consumer = Consumer()
        consumer.member = self.groups.join(
            group, ["t"], session_timeout_ms=SESSION_MS, now_ms=0, changed=consumer, client_id="c"
        )
        consumer.told.append(consumer.member.assignment)
        return consumer

    async def commit(self, offsets: Mapping[int, int], by: Committer | None = None) -> dict[int, type[LevadaError]]:
        rows = {At("t", partition): Committed(offset) for partition, offset in offsets.items()}
        errors = await self.positions.commit("g", rows, by or Committer())
        return {at.partition: type(error) for at, error in errors.items()}

    async def stored(self) -> dict[int, int]:
        return {at.partition: one.offset for at, one in (await self.engine.offsets("g")).items()}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path, topic={"levada.durability": "os"}) as engine:
        world = World(engine)
        await world.fill()
        yield world


async def test_a_group_is_shown_with_start_end_and_lag(world: World) -> None:
    await world.positions.commit("g", {At("t", 0): Committed(7, metadata="note")})
    first, second = await world.positions.committed("g", "t")
    assert first == (At("t", 0), 7, 4, 10, 3, "note", "")
    assert second == (At("t", 1), None, 0, 5, 5, "", "")


async def test_without_a_topic_it_is_those_with_offsets_and_those_that_are_read(world: World) -> None:
    await make_topic(world.engine, "u")
    await make_topic(world.engine, "v")
    await world.positions.commit("g", {At("u", 0): Committed(0)})
    assert [place.at for place in await world.positions.committed("g")] == [At("u", 0)]
    member = world.join()
    places = await world.positions.committed("g")
    assert [(place.at, place.member_id) for place in places] == [
        (At("t", 0), member.id),
        (At("t", 1), member.id),
        (At("u", 0), ""),
    ]
    assert await world.positions.committed("nobody's") == []
    with pytest.raises(UnknownTopic):
        await world.positions.committed("g", "none")


async def test_what_was_committed_below_the_start_lags_from_the_start(world: World) -> None:
    assert await world.commit({0: 1}) == {}
    (first, _) = await world.positions.committed("g", "t")
    assert (first.committed, first.lag) == (1, 6)


async def test_the_bad_one_of_a_batch_is_refused_by_name_and_the_others_are_stored(world: World) -> None:
    rows = {
        At("t", 0): Committed(8),
        At("t", 1): Committed(6),
        At("t", 2): Committed(0),
        At("none", 0): Committed(0),
    }
    errors = await world.positions.commit("g", rows)
    assert {at: type(error) for at, error in errors.items()} == {
        At("t", 1): OffsetOutOfRange,
        At("t", 2): UnknownPartition,
        At("none", 0): UnknownTopic,
    }
    refused = errors[At("t", 1)]
    assert isinstance(refused, OffsetOutOfRange) and (refused.start, refused.end) == (0, 5)
    assert "offset 6 of t-1" in str(refused)
    assert await world.stored() == {0: 8}


async def test_offsets_are_from_zero_to_the_end(world: World) -> None:
    assert await world.commit({0: 10, 1: 5}) == {}
    assert await world.commit({0: -1, 1: 6}) == {0: OffsetOutOfRange, 1: OffsetOutOfRange}
    assert await world.stored() == {0: 10, 1: 5}


async def test_long_metadata_is_refused(world: World) -> None:
    errors = await world.positions.commit("g", {At("t", 0): Committed(5, metadata="x" * 11)})
    assert isinstance(errors[At("t", 0)], OffsetMetadataTooLarge)


async def test_members_commit_what_they_own_and_nobody_else_does(world: World) -> None:
    first, second = world.join(), world.join()
    by = Committer(first.id, 2)
    assert (first.owned, second.owned) == ([0], [1])
    assert await world.commit({0: 5, 1: 3}, by) == {1: IllegalGeneration}
    assert await world.commit({0: 6}, by._replace(generation=1)) == {0: IllegalGeneration}
    assert await world.commit({0: 6}) == {0: UnknownMember}
    assert await world.stored() == {0: 5}


async def test_a_late_commit_of_a_dead_member_is_refused(world: World) -> None:
    dead, _ = world.join(), world.join()
    by = Committer(dead.id, 2)
    world.groups.leave("g", dead.id, 0)
    assert await world.commit({0: 5}, by) == {0: IllegalGeneration}
    assert await world.commit({0: 5}, by._replace(generation=3)) == {0: UnknownMember}
    assert await world.stored() == {}


async def test_a_consumer_of_a_fixed_group_commits_by_its_number(world: World) -> None:
    generation = world.groups.register("t", "g", 2, 0).generation
    assert await world.commit({0: 5, 1: 3}, Committer("", generation, 1)) == {0: IllegalGeneration}
    assert await world.stored() == {1: 3}


async def test_a_group_id_that_is_not_allowed_has_no_offsets(world: World) -> None:
    errors = await world.positions.commit("__levada.keyless", {At("t", 0): Committed(5)})
    assert isinstance(errors[At("t", 0)], InvalidGroupId)
    with pytest.raises(InvalidGroupId):
        await world.positions.seek("__levada.keyless", "t", [], Edge.LATEST, now_ms=0)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (Edge.EARLIEST, {0: 4, 1: 0}),
        (Edge.LATEST, {0: 10, 1: 5}),
        (ToOffset(5), {0: 5, 1: 5}),
        (ToTime(0), {0: 4, 1: 0}),
        (ToTime(BEGAN_MS + 1_002), {0: 10, 1: 2}),
        (ToTime(BEGAN_MS + 9_999), {0: 10, 1: 5}),
        (Shift(-2), {0: 6, 1: 0}),
        (Shift(3), {0: 10, 1: 3}),
        (Shift(-99), {0: 4, 1: 0}),
    ],
)
async def test_a_group_is_moved(world: World, to: ToOffset | ToTime | Shift | Edge, expected: dict[int, int]) -> None:
    await world.commit({0: 8})
    told = await world.positions.seek("g", "t", [], to, now_ms=0, dry_run=True)
    assert {at.partition: offset for at, offset in told.items()} == expected
    assert await world.stored() == {0: 8}, "a dry run changes nothing"
    assert await world.positions.seek("g", "t", [], to, now_ms=0) == told
    assert await world.stored() == expected


async def test_some_partitions_are_moved_and_others_not(world: World) -> None:
    await world.commit({0: 8, 1: 1})
    assert await world.positions.seek("g", "t", [1, 1], Edge.LATEST, now_ms=0) == {At("t", 1): 5}
    assert await world.stored() == {0: 8, 1: 5}


async def test_an_offset_out_of_range_moves_nothing_and_says_the_range(world: World) -> None:
    await world.commit({0: 8, 1: 1})
    with pytest.raises(OffsetOutOfRange, match="offset 6 of t-1: must be from 0 to 5") as refused:
        await world.positions.seek("g", "t", [], ToOffset(6), now_ms=0)
    assert (refused.value.start, refused.value.end) == (0, 5)
    with pytest.raises(OffsetOutOfRange, match="must be from 4 to 10"):
        await world.positions.seek("g", "t", [0], ToOffset(3), now_ms=0)
    with pytest.raises(UnknownPartition, match="partitions 0 to 1, not 2"):
        await world.positions.seek("g", "t", [0, 2], Edge.LATEST, now_ms=0)
    with pytest.raises(UnknownTopic):
        await world.positions.seek("g", "none", [], Edge.LATEST, now_ms=0)
    assert await world.stored() == {0: 8, 1: 1}


async def test_running_members_are_told_to_go_on_from_there(world: World) -> None:
    member = world.join()
    by = Committer(member.id, member.generation)
    await world.positions.seek("g", "t", [0], ToOffset(5), now_ms=0)
    assert member.now.moved == {At("t", 0): 5}
    assert await world.commit({0: 9}, by) == {0: IllegalGeneration}, "of what was read before"
    assert await world.commit({0: 6}, by._replace(generation=member.generation)) == {}


async def test_a_commit_that_comes_while_a_seek_is_written_does_not_undo_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = world.join()
    by = Committer(member.id, member.generation)
    write = world.engine.commit_offsets
    waiting = [True]

    async def slow(group: str, offsets: Mapping[At, Committed]) -> None:
        await write(group, offsets)
        if waiting.pop() if waiting else False:
            assert await world.commit({0: 9}, by) == {}

    monkeypatch.setattr(world.engine, "commit_offsets", slow)
    await world.positions.seek("g", "t", [0], ToOffset(5), now_ms=0)
    assert await world.stored() == {0: 5}


async def test_a_commit_of_what_was_read_before_a_seek_is_refused_in_a_fixed_group_too(world: World) -> None:
    generation = world.groups.register("t", "g", 2, 0).generation
    member = Consumer()
    member.member = world.groups.attach("g", 0, session_timeout_ms=SESSION_MS, now_ms=0, changed=member)
    await world.positions.seek("g", "t", [0], ToOffset(5), now_ms=0)
    assert member.now.moved == {At("t", 0): 5}
    by = Committer(member.id, generation)
    assert await world.commit({0: 9}, by) == {0: IllegalGeneration}
    assert await world.stored() == {0: 5}
    assert await world.commit({0: 6}, by._replace(generation=member.generation)) == {}


async def test_a_group_with_kafkas_members_is_not_moved(world: World) -> None:
    world.held_by_kafka.add("g")
    with pytest.raises(GroupKindMismatch):
        await world.positions.seek("g", "t", [], Edge.LATEST, now_ms=0)
    assert await world.commit({0: 5}) == {0: GroupKindMismatch}
