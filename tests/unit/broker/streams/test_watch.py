"""Groups hear of topics by themselves, over a real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from levada.broker.streams import Assignment, StreamGroups, TopicWatch
from levada.engine.embedded.engine import EmbeddedEngine
from support.engines import make_topic, running
from support.streams import SESSION_MS

LONG_S = 60.0


class World:
    """A member of a group that reads topic t, and a watch."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        store = engine.offset_store
        self.engine = engine
        self.groups = StreamGroups(engine.view, store.save_group, store.forget_group, durable=store.durable)
        self.watch = TopicWatch(engine.view, self.groups, lambda: 0)
        self.last: Assignment | None = None
        self._news = asyncio.Event()

    def join(self) -> None:
        self.groups.join("g", ["t"], session_timeout_ms=SESSION_MS, now_ms=0, changed=self._changed)

    def _changed(self, assignment: Assignment) -> None:
        self.last = assignment
        self._news.set()

    async def told(self, partitions: int) -> None:
        """Until the member was told that it has so many."""
        async with asyncio.timeout(LONG_S):
            while self.last is None or len(self.last.partitions) != partitions:
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path, topic={"levada.durability": "os"}) as engine:
        await make_topic(engine, "t", 1)
        world = World(engine)
        world.watch.start()
        yield world
        await world.watch.stop()


async def test_expansion_deletion_and_making_again_reach_a_member(world: World) -> None:
    world.join()
    await world.engine.expand("t", 3)
    await world.told(3)
    assert world.last is not None
    await world.groups.durable(world.last.receipt)
    await world.engine.delete("t")
    await world.told(0)
    await make_topic(world.engine, "t", 2)
    await world.told(2)


async def test_a_failure_is_not_the_end_of_watching(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.join()
    failed = asyncio.Event()

    def fail(now_ms: int) -> None:
        failed.set()
        raise RuntimeError("a bug")

    with monkeypatch.context() as broken:
        broken.setattr(world.groups, "topics_changed", fail)
        await world.engine.expand("t", 2)
        async with asyncio.timeout(LONG_S):
            await failed.wait()
    await world.engine.expand("t", 3)
    await world.told(3)


async def test_stopping_twice_is_stopping(world: World) -> None:
    await world.watch.stop()
    await world.watch.stop()
