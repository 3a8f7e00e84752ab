"""Commits: what goes out again when a generation has begun meanwhile, and what must not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import pytest

from levada.client.chunk import Opener
from levada.client.commits import Commits
from levada.client.feed import Feed
from levada.client.inbox import Inbox
from levada.client.records import At
from levada.client.serializers import BYTES
from levada.client.track import Track
from levada.errors import ConnectionLost, IllegalGeneration, LevadaError

T0, T1 = At("t", 0), At("t", 1)


class Broker:
    """Takes commits of one generation. `meanwhile` happens before the first is answered."""

    is_connected = True

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.stored: dict[At, int] = {}
        self.asked: list[tuple[int, dict[At, int]]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def commit(
        self, offsets: Mapping[At, int], generation: int, handed_over: Iterable[At] = ()
    ) -> Mapping[At, LevadaError]:
        self.asked.append((generation, dict(offsets)))
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        if generation != self.generation:
            return {at: IllegalGeneration() for at in offsets}
        self.stored |= offsets
        return {}


class World:
    """A consumer of two partitions in generation 1, read up to offset 10."""

    def __init__(self, broker_generation: int = 2) -> None:
        self.broker = Broker(broker_generation)
        self.inbox = Inbox(Opener(BYTES, BYTES, committed_only=False), lambda _: None)
        self.inbox.tracks = {at: Track(at, 10) for at in (T0, T1)}
        self.commits = Commits(cast(Feed, self.broker), self.inbox, 60.0)
        self.commits.begin(1)

    def told(self, generation: int, **moved: int) -> None:
        """The broker tells of a generation, in which some partitions, by number, were moved."""
        self.commits.begin(generation)
        for number, offset in moved.items():
            self.inbox.tracks[At("t", int(number.removeprefix("p")))].assigned(offset, moved=True)

    async def store(self) -> dict[At, type[LevadaError]]:
        return {at: type(error) for at, error in (await self.commits.store({T0: 7, T1: 8})).items()}


async def after_a_turn(work: Callable[[], object]) -> None:
    await asyncio.sleep(0)
    work()


@pytest.mark.parametrize("late", [False, True], ids=["before the answer", "after it"])
async def test_a_commit_that_meets_a_new_generation_goes_out_again_in_that(late: bool) -> None:
    world = World()
    telling: list[Awaitable[Any]] = []
    tell = lambda: world.told(2)  # noqa: E731
    world.broker.meanwhile = (lambda: telling.append(asyncio.ensure_future(after_a_turn(tell)))) if late else tell
    assert await world.store() == {}
    assert world.broker.asked == [(1, {T0: 7, T1: 8}), (2, {T0: 7, T1: 8})]
    assert [track.committed for track in world.inbox.tracks.values()] == [7, 8]


@pytest.mark.parametrize("offset", [3, 15], ids=["back", "forward"])
async def test_what_somebody_moved_with_the_generation_is_not_committed_again(offset: int) -> None:
    world = World()
    world.broker.meanwhile = lambda: world.told(2, p0=offset)
    assert await world.store() == {T0: IllegalGeneration}
    assert world.broker.stored == {T1: 8}
    assert [track.committed for track in world.inbox.tracks.values()] == [None, 8]


async def test_what_went_to_somebody_else_is_not_committed_again() -> None:
    world = World()

    def lose() -> None:
        world.told(2)
        world.inbox.drop([T0])

    world.broker.meanwhile = lose
    assert await world.store() == {T0: IllegalGeneration}
    assert world.broker.stored == {T1: 8}


async def test_what_was_moved_while_the_connection_was_lost_is_not_committed_on_the_next() -> None:
    world = World()

    def lost() -> None:
        world.told(2, p0=3)
        raise ConnectionLost

    world.broker.meanwhile = lost
    assert await world.store() == {T0: IllegalGeneration}
    assert world.broker.asked == [(1, {T0: 7, T1: 8}), (2, {T1: 8})]


async def test_a_generation_that_is_never_told_of_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levada.client.commits._NEWS_S", 0.01)
    world = World()
    assert await world.store() == {T0: IllegalGeneration, T1: IllegalGeneration}
    assert world.broker.stored == {}


async def test_what_happens_by_itself_goes_out_once() -> None:
    world = World()
    world.broker.meanwhile = lambda: world.told(2)
    await world.commits.store_quietly({T0: 7})
    assert len(world.broker.asked) == 1
