"""Random histories of an engine with tiny segments, stopped, killed and cut off from power at will, against a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from levada.config import BrokerConfig
from levada.engine.embedded import datadir
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import Acks, At, Committed, Isolation, TopicSpec, Write
from levada.errors import OffsetOutOfRange, PartitionsCannotShrink, TopicExists, UnknownPartition, UnknownTopic
from support.reading import batch_of, records
from support.simulated_tree import SimulatedTree

DATA = Path("/data")
SETTINGS = {"segment.bytes": "300", "index.interval.bytes": "100"}
T = TypeVar("T")

names = st.sampled_from(["a", "b", "a-0"])
partitions = st.integers(0, 2)


class EngineMachine(RuleBasedStateMachine):
    """The model: of each topic the values by offset, per partition, and of a group the offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.tree = SimulatedTree()
        self.boots = 0
        self.topics: dict[str, list[dict[int, bytes]]] = {}
        self.starts: dict[At, int] = {}
        self.committed: dict[At, int] = {}
        self.unacknowledged: list[tuple[At, int, bytes]] = []
        self.count = 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.run(self.engine.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    @initialize()
    def start(self) -> None:
        config = BrokerConfig(data=DATA)
        with mock.patch.object(datadir, "boot_id", lambda: f"boot {self.boots}"):
            self.engine = self.run(EmbeddedEngine.open(DATA, config, disk=self.tree))

    def place(self, name: str, partition: int) -> At | None:
        return At(name, partition) if partition < len(self.topics.get(name, ())) else None

    def value(self) -> bytes:
        self.count += 1
        return b"value %d" % self.count

    def refused(self, kind: type[Exception], make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            self.run(make())
        except kind:
            return
        raise AssertionError(f"{kind.__name__} expected")

    # Topics

    @rule(name=names, count=st.integers(1, 3))
    def create(self, name: str, count: int) -> None:
        spec = TopicSpec(name=name, partitions=count, settings=SETTINGS)
        if name in self.topics:
            self.refused(TopicExists, lambda: self.engine.create(spec))
            return
        self.run(self.engine.create(spec))
        self.topics[name] = [{} for _ in range(count)]

    @rule(name=names, count=st.integers(1, 3))
    def expand(self, name: str, count: int) -> None:
        if name not in self.topics:
            self.refused(UnknownTopic, lambda: self.engine.expand(name, count))
        elif count < len(self.topics[name]):
            self.refused(PartitionsCannotShrink, lambda: self.engine.expand(name, count))
        else:
            self.run(self.engine.expand(name, count))
            self.topics[name] += [{} for _ in range(count - len(self.topics[name]))]

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name not in self.topics:
            self.refused(UnknownTopic, lambda: self.engine.delete(name))
            return
        self.run(self.engine.delete(name))
        del self.topics[name]
        self.starts = {at: start for at, start in self.starts.items() if at.topic != name}
        self.committed = {at: offset for at, offset in self.committed.items() if at.topic != name}
        self.unacknowledged = [lost for lost in self.unacknowledged if lost[0].topic != name]

    # Records

    @rule(name=names, partition=partitions, count=st.integers(1, 3))
    def append(self, name: str, partition: int, count: int) -> None:
        at = At(name, partition)
        if self.place(name, partition) is None:
            kind = UnknownPartition if name in self.topics else UnknownTopic
            self.refused(kind, lambda: self.engine.append(at, batch_of(b"v")))
            return
        payloads = [self.value() for _ in range(count)]
        appended = self.run(self.engine.append(at, batch_of(*payloads)))
        self.topics[name][partition].update(
            zip(range(appended.base_offset, appended.last_offset + 1), payloads, strict=True)
        )
        self.settle(at)

    @rule(name=names, partition=partitions)
    def append_without_waiting(self, name: str, partition: int) -> None:
        at = self.place(name, partition)
        if at is not None:
            value = self.value()
            appended = self.run(self.engine.append(at, batch_of(value), Acks.NONE))
            self.unacknowledged.append((at, appended.base_offset, value))

    def settle(self, at: At) -> None:
        """What was appended before an acknowledged append is durable with it."""
        for place, offset, value in self.unacknowledged:
            if place == at:
                self.topics[at.topic][at.partition][offset] = value
        self.unacknowledged = [lost for lost in self.unacknowledged if lost[0] != at]

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def transact(self, data: st.DataObject) -> None:
        ats = [At(name, index) for name, held in self.topics.items() for index in range(len(held))]
        chosen = data.draw(st.lists(st.sampled_from(ats), min_size=1, max_size=3, unique=True))
        value = self.value()
        appended = self.run(self.run_transaction(chosen, value))
        for at, offset in zip(chosen, appended, strict=True):
            self.topics[at.topic][at.partition][offset] = value
            self.settle(at)
        self.committed[chosen[0]] = self.count

    async def run_transaction(self, ats: list[At], value: bytes) -> list[int]:
        async with self.engine.own("shard") as owner:
            offsets = {"group": {ats[0]: Committed(self.count)}}
            appended = await self.engine.transact(owner, [Write(at, bytes(batch_of(value))) for at in ats], offsets)
        return [one.base_offset for one in appended]

    @rule(name=names, partition=partitions)
    def commit(self, name: str, partition: int) -> None:
        at = self.place(name, partition)
        if at is not None:
            self.count += 1
            self.run(self.engine.commit_offsets("group", {at: Committed(self.count)}))
            self.committed[at] = self.count

    @rule(name=names, partition=partitions, before=st.integers(0, 12))
    def trim(self, name: str, partition: int, before: int) -> None:
        at = self.place(name, partition)
        if at is None:
            return
        if before > self.run(self.engine.bounds(at)).end:
            self.refused(OffsetOutOfRange, lambda: self.engine.trim(at, before))
            return
        start = max(before, self.starts.get(at, 0))
        assert self.run(self.engine.trim(at, before)) == start
        self.starts[at] = start

    @rule()
    def checkpoint(self) -> None:
        self.run(self.engine._partitions.checkpoint())

    # Stopping

    @rule()
    def stop(self) -> None:
        self.run(self.engine.close())
        for at in {lost[0] for lost in self.unacknowledged}:
            self.settle(at)
        self.start()

    @rule()
    def kill(self) -> None:
        self.leave(self.tree.fork())

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        crashed = self.tree.fork()
        crashed.crash(Random(seed))
        self.boots += 1
        self.leave(crashed)

    def leave(self, tree: SimulatedTree) -> None:
        """Go on with what is left; what was not acknowledged is there or it is not."""
        self.run(self.engine.close())
        self.tree = tree
        self.start()
        for at, offset, value in self.unacknowledged:
            found = {record.offset: record.value for record in self.run(records(self.engine, at))}
            if found.get(offset) == value:
                self.topics[at.topic][at.partition][offset] = value
        self.unacknowledged.clear()

    # What must hold

    @invariant()
    def topics_are_those_of_the_model(self) -> None:
        found = {info.name: info.partitions for info in self.engine.view.all() if not info.internal}
        assert found == {name: len(held) for name, held in self.topics.items()}

    @invariant()
    def records_are_those_of_the_model(self) -> None:
        for name, held in self.topics.items():
            for partition, expected in enumerate(held):
                at = At(name, partition)
                lost = {offset: value for place, offset, value in self.unacknowledged if place == at}
                for isolation in Isolation:
                    found = {
                        record.offset: record.value
                        for record in self.run(records(self.engine, at, isolation=isolation))
                        if record.offset not in lost
                    }
                    start = self.starts.get(at, 0)
                    assert found == {offset: value for offset, value in expected.items() if offset >= start}

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        found = {at: committed.offset for at, committed in self.run(self.engine.offsets("group")).items()}
        assert found == self.committed


EngineMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestEngineMachine = EngineMachine.TestCase
