"""An engine under load loses power at any change it makes to the disk. What it acknowledged before is there afterwards.

`LEVADA_CRASH_ROUNDS` sets how many moments are tried.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from levada.engine.embedded import datadir
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import At, Committed, Isolation, Write
from levada.errors import LevadaError
from support.engines import make_topic, running
from support.reading import batch_of, records
from support.simulated_tree import SimulatedTree

ROUNDS = int(os.environ.get("LEVADA_CRASH_ROUNDS", "12"))
DATA = Path("/data")
TOPICS = ("a", "b", "c")


class Event(NamedTuple):
    """Something that was acknowledged, or, with `begun`, asked for."""

    kind: str
    at: At
    offset: int = -1
    value: bytes = b""


class Load:
    """Clients of an engine that write down what they were told."""

    def __init__(self, engine: EmbeddedEngine, random: Random) -> None:
        self.engine = engine
        self.random = random
        self.events: list[Event] = []

    async def run(self) -> None:
        for name in TOPICS:
            await make_topic(self.engine, name, 2, segment_bytes="400", levada_durability="fsync")
            self.events.append(Event("created", At(name, 2)))
        await asyncio.gather(
            *(self.produce(At(name, partition)) for name in TOPICS for partition in range(2)),
            self.commit(),
            self.transact(),
            self.make_and_delete(),
            self.grow(),
        )

    async def produce(self, at: At) -> None:
        for number in range(12):
            value = f"{at}/{number}".encode()
            appended = await self.engine.append(at, batch_of(value))
            self.events.append(Event("appended", at, appended.base_offset, value))
            if self.random.random() < 0.3:
                await asyncio.sleep(0.001)

    async def commit(self) -> None:
        for number in range(12):
            at = At(self.random.choice(TOPICS), 0)
            await self.engine.commit_offsets("group", {at: Committed(number)})
            self.events.append(Event("committed", at, number))

    async def transact(self) -> None:
        async with self.engine.own("shard") as owner:
            for number in range(6):
                value = b"transaction %d" % number
                writes = [Write(At(name, 1), bytes(batch_of(value))) for name in TOPICS]
                await self.engine.transact(owner, writes, {"sink": {At("a", 1): Committed(number)}})
                self.events.append(Event("transacted", At("a", 1), number, value))

    async def make_and_delete(self) -> None:
        for number in range(4):
            at = await make_topic(self.engine, "fleeting")
            self.events.append(Event("created", At("fleeting", 1)))
            appended = await self.engine.append(at, batch_of(b"life %d" % number))
            self.events.append(Event("lived", at, appended.base_offset, b"life %d" % number))
            self.events.append(Event("deleting", at))
            await self.engine.delete("fleeting")
            self.events.append(Event("deleted", at))

    async def grow(self) -> None:
        for partitions in range(3, 6):
            await self.engine.expand("c", partitions)
            self.events.append(Event("created", At("c", partitions)))


async def crashed(seed: int, monkeypatch: pytest.MonkeyPatch, *, power: bool) -> tuple[SimulatedTree, list[Event]]:
    """The disk as it was at some moment of a run, after the power came back, and what had been acknowledged by then."""
    random = Random(seed)
    tree = SimulatedTree()
    tree.fork_at = random.randint(10, 1100)
    monkeypatch.setattr(datadir, "boot_id", lambda: "before")
    known = 0
    async with running(DATA, disk=tree) as engine:
        load = Load(engine, random)

        def remember() -> None:
            nonlocal known
            known = len(load.events)

        tree.on_fork = remember
        await load.run()
        if tree.forked is None:
            remember()
            tree.forked = tree.fork()
    if power:
        tree.forked.crash(random)
        monkeypatch.setattr(datadir, "boot_id", lambda: "after")
    return tree.forked, load.events[:known]


async def check(engine: EmbeddedEngine, events: list[Event]) -> None:
    await check_topics(engine, events)
    await check_records(engine, events)
    await check_transactions(engine, events)
    await check_offsets(engine, events)


async def check_topics(engine: EmbeddedEngine, events: list[Event]) -> None:
    for event in events:
        if event.kind == "created" and event.at.topic != "fleeting":
            info = engine.view.get(event.at.topic)
            assert info is not None and info.partitions >= event.at.partition
    fleeting = [event for event in events if event.at.topic == "fleeting"]
    if fleeting and fleeting[-1].kind in ("created", "lived"):
        assert engine.view.get("fleeting") is not None
        if fleeting[-1].kind == "lived":
            assert [record.value for record in await records(engine, At("fleeting", 0))] == [fleeting[-1].value]
    if engine.view.get("fleeting") is not None and (not fleeting or fleeting[-1].kind == "deleted"):
        # Made again, or for the first time, and not yet acknowledged: then it is new.
        assert (await engine.bounds(At("fleeting", 0))).end <= 1


async def check_records(engine: EmbeddedEngine, events: list[Event]) -> None:
    for name in TOPICS:
        info = engine.view.get(name)
        for partition in range(info.partitions if info is not None else 0):
            at = At(name, partition)
            assert engine.partition(*at).damage is None
            found = {record.offset: record.value for record in await records(engine, at)}
            for event in events:
                if event.kind == "appended" and event.at == at:
                    assert found[event.offset] == event.value
            values = list(found.values())
            assert len(values) == len(set(values))


async def check_transactions(engine: EmbeddedEngine, events: list[Event]) -> None:
    if any(engine.view.get(name) is None for name in TOPICS):
        return
    async with engine.own("shard"):
        pass  # whoever was writing is fenced, and what it left open is aborted
    seen = []
    for name in TOPICS:
        at = At(name, 1)
        found = await records(engine, at, isolation=Isolation.READ_COMMITTED)
        seen.append([record.value for record in found if (record.value or b"").startswith(b"transaction")])
        bounds = await engine.bounds(at)
        assert bounds.stable_end == bounds.end
    assert seen[0] == seen[1] == seen[2]
    acknowledged = [event.value for event in events if event.kind == "transacted"]
    assert seen[0][: len(acknowledged)] == acknowledged
    sink = (await engine.offsets("sink")).get(At("a", 1))
    assert (-1 if sink is None else sink.offset) == len(seen[0]) - 1


async def check_offsets(engine: EmbeddedEngine, events: list[Event]) -> None:
    acknowledged = {event.at: event.offset for event in events if event.kind == "committed"}
    found = await engine.offsets("group")
    for at, offset in acknowledged.items():
        assert found[at].offset >= offset


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_after_a_power_failure_everything_acknowledged_is_there(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, events = await crashed(seed, monkeypatch, power=True)
    async with running(DATA, disk=tree) as engine:
        await check(engine, events)
        await keep_writing(engine)
    async with running(DATA, disk=tree) as engine:
        await check(engine, events)


@pytest.mark.parametrize("seed", range(1000, 1000 + ROUNDS // 2))
async def test_after_a_kill_everything_acknowledged_is_there(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, events = await crashed(seed, monkeypatch, power=False)
    async with running(DATA, disk=tree) as engine:
        await check(engine, events)
        await keep_writing(engine)


@pytest.mark.parametrize("seed", range(2000, 2000 + ROUNDS // 2))
async def test_a_second_crash_during_recovery_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    tree, events = await crashed(seed, monkeypatch, power=True)
    tree.fork_at = random.randint(1, 25)
    async with running(DATA, disk=tree) as engine:
        await check(engine, events)
        twice = tree.forked or tree.fork()
    twice.crash(random)
    monkeypatch.setattr(datadir, "boot_id", lambda: "later")
    async with running(DATA, disk=twice) as engine:
        await check(engine, events)


async def keep_writing(engine: EmbeddedEngine) -> None:
    for info in engine.view.all():
        if not info.internal:
            try:
                appended = await engine.append(At(info.name, 0), batch_of(b"after the crash of " + info.name.encode()))
                assert appended.durable
            except LevadaError as error:
                pytest.fail(f"{info.name} takes no writes: {error}")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("default", ["os", "interval:60000"])
async def test_a_topic_outlives_a_power_failure_whatever_the_default(
    default: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = SimulatedTree()
    monkeypatch.setattr(datadir, "boot_id", lambda: "before")
    async with running(DATA, disk=tree, topic={"levada.durability": default}) as engine:
        at = await make_topic(engine, "money", levada_durability="fsync")
        assert (await engine.append(at, batch_of(b"paid"))).durable
        fork = tree.fork()
        fork.crash(Random(seed))
    monkeypatch.setattr(datadir, "boot_id", lambda: "after")
    async with running(DATA, disk=fork, topic={"levada.durability": default}) as engine:
        assert [record.value for record in await records(engine, at)] == [b"paid"]
