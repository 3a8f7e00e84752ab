"""Random histories of topics that remember messages, on an engine that is stopped, killed and cut off from power, against a model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from levada.config import BrokerConfig
from levada.engine.embedded import datadir
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import Acks, At, TopicSpec, Write
from support.dedup import Clock, batch_with, dedup_over, positions
from support.reading import records
from support.simulated_tree import SimulatedTree

DATA = Path("/data")
WINDOW = 1_000
T = TypeVar("T")
#: t and u remember for themselves, b and c share what they remember.
SETTINGS = {
    "t": {"levada.dedup": "payload"},
    "u": {"levada.dedup": "payload", "segment.bytes": "400"},
    "b": {"levada.dedup": "payload", "levada.dedup.scope": "broker"},
    "c": {"levada.dedup": "payload", "levada.dedup.scope": "broker"},
}
ats = st.builds(At, st.sampled_from(list(SETTINGS)), st.integers(0, 1))
values = st.lists(st.sampled_from([b"%d" % n for n in range(12)]), min_size=1, max_size=5)


class Copy(NamedTuple):
    time_ms: int
    at: At
    offset: int


class DedupMachine(RuleBasedStateMachine):
    """The model: of each memory the copies of each value that are stored and decided; and what the open transaction has written."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.tree = SimulatedTree()
        self.clock = Clock()
        self.boots = 0
        self.copies: dict[str, dict[bytes, list[Copy]]] = {"t": {}, "u": {}, "broker": {}}
        self.stored: dict[At, dict[int, bytes]] = {At(name, index): {} for name in SETTINGS for index in (0, 1)}
        self.pending: list[tuple[bytes, Copy]] = []
        self.sequences: dict[At, int] = {}
        self.last: dict[At, tuple[list[bytes], int, int, dict[int, Any], int]] = {}

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.run(self.dedup.close())
        self.run(self.engine.close())
        self.loop.close()

    @initialize()
    def begin(self) -> None:
        self.start()
        for name, own in SETTINGS.items():
            spec = TopicSpec(name=name, partitions=2, settings={**own, "levada.dedup.window.ms": str(WINDOW)})
            self.run(self.engine.create(spec))
        self.idempotent = self.run(self.engine.transactions.init_producer_id(None, 0))
        self.producer = self.run(self.engine.transactions.init_producer_id("tx", 60_000))

    def start(self) -> None:
        with mock.patch.object(datadir, "boot_id", lambda: f"boot {self.boots}"):
            opened = EmbeddedEngine.open(DATA, BrokerConfig(data=DATA), disk=self.tree, now_ms=self.clock)
            self.engine = self.run(opened)

        async def make() -> None:
            self.dedup = dedup_over(self.engine)
            self.dedup.start()

        self.run(make())

    # What the model says

    @staticmethod
    def memory_of(at: At) -> str:
        return at.topic if at.topic in ("t", "u") else "broker"

    def is_alive(self, copy: Copy) -> bool:
        return self.clock.ms - copy.time_ms < WINDOW

    def check(self, at: At, given: list[bytes], found: list[tuple[int, int, bool]], *, pending: bool = False) -> None:
        """What was answered for each value is right; what was stored is remembered."""
        memory = self.copies[self.memory_of(at)]
        for value, (partition, offset, repeat) in zip(given, found, strict=True):
            copies = list(memory.get(value, ()))
            if pending:
                copies += [
                    copy
                    for held, copy in self.pending
                    if held == value and self.memory_of(copy.at) == self.memory_of(at)
                ]
            alive = [copy for copy in copies if self.is_alive(copy)]
            if repeat:
                assert (partition, offset) in {(copy.at.partition, copy.offset) for copy in alive}
                continue
            # With copies of different ages, which only transactions can leave, either may be the one that is remembered.
            assert len(alive) < max(1, len(copies)) or not alive
            assert partition == at.partition
            copy = Copy(self.clock.ms, at, offset)
            assert offset not in self.stored[at]
            self.stored[at][offset] = value
            if pending:
                self.pending.append((value, copy))
            else:
                memory.setdefault(value, []).append(copy)

    def forget_old(self) -> None:
        for memory in self.copies.values():
            for value, copies in memory.items():
                if len(copies) > 1 and not any(self.is_alive(copy) for copy in copies[:-1]):
                    memory[value] = copies[-1:]

    # Publishing

    @rule(at=ats, given=values, dense=st.booleans(), codec=st.sampled_from(["none", "gzip", "lz4"]))
    def publish(self, at: At, given: list[bytes], dense: bool, codec: str) -> None:
        batch = batch_with(given, timestamp_ms=self.clock.ms, codec=codec)
        self.check(at, given, positions(self.run(self.dedup.publish(at, batch, Acks.ALL, dense=dense)), at))
        self.forget_old()

    @rule(at=ats, given=values, more=values)
    def publish_at_once(self, at: At, given: list[bytes], more: list[bytes]) -> None:
        async def both() -> list[Any]:
            return await asyncio.gather(
                *(
                    self.dedup.publish(at, batch_with(each, timestamp_ms=self.clock.ms), Acks.ALL, dense=True)
                    for each in (given, more)
                )
            )

        first, second = self.run(both())
        self.check(at, given, positions(first, at))
        self.forget_old()
        self.check(at, more, positions(second, at))
        self.forget_old()

    @rule(at=ats, given=values)
    def publish_as_a_producer(self, at: At, given: list[bytes]) -> None:
        sequence = self.sequences.get(at, 0)
        stored = self.run(self.send(at, given, sequence))
        self.check(at, given, positions(stored, at))
        self.forget_old()
        assert stored.appended is not None
        assert stored.appended.last_offset - stored.appended.base_offset == len(given) - 1
        self.last[at] = (given, sequence, stored.appended.base_offset, dict(stored.repeats), self.clock.ms)
        self.sequences[at] = sequence + len(given)

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from(sorted(self.last)))
        given, sequence, base_offset, repeats, sent_ms = self.last[at]
        stored = self.run(self.send(at, given, sequence))
        assert stored.appended is not None
        assert (stored.appended.base_offset, stored.appended.duplicate) == (base_offset, True)
        if self.clock.ms == sent_ms:  # nothing can have been forgotten since
            assert dict(stored.repeats) == repeats, "its records lie where the first answer said"

    async def send(self, at: At, given: list[bytes], sequence: int) -> Any:
        batch = batch_with(given, timestamp_ms=self.clock.ms, producer=(*self.idempotent, sequence))
        return await self.dedup.publish(at, batch, Acks.ALL, dense=False)

    # Transactions

    @rule(at=ats, given=values)
    def write_in_a_transaction(self, at: At, given: list[bytes]) -> None:
        async def write() -> Any:
            await self.dedup.open(at.topic)
            self.engine.transactions.on_transactional_append(*self.producer, at, transactional_id="tx", implicit=True)
            batch = batch_with(
                given, timestamp_ms=self.clock.ms, producer=(*self.producer, self.tx_sequence(at)), transactional=True
            )
            return await self.dedup.publish(at, batch, Acks.ALL, dense=False)

        self.check(at, given, positions(self.run(write()), at), pending=True)
        self.tx_sequences[at] = self.tx_sequence(at) + len(given)
        self.is_open = True

    tx_sequences: dict[At, int]
    is_open = False

    def tx_sequence(self, at: At) -> int:
        if "tx_sequences" not in self.__dict__:
            self.tx_sequences = {}
        return self.tx_sequences.get(at, 0)

    @precondition(lambda self: self.is_open)
    @rule(commit=st.booleans())
    def end_the_transaction(self, commit: bool) -> None:
        before = self.producer
        self.producer = self.run(self.engine.transactions.end("tx", *self.producer, commit, tv2=True))
        assert self.producer != before
        self.tx_sequences = {}
        self.is_open = False
        self.ended(commit=commit)

    def ended(self, *, commit: bool) -> None:
        for value, copy in self.pending:
            if commit:
                self.copies[self.memory_of(copy.at)].setdefault(value, []).append(copy)
        self.pending.clear()

    @precondition(lambda self: not self.is_open)
    @rule(at=ats, value=st.sampled_from([b"%d" % n for n in range(12)]))
    def transact(self, at: At, value: bytes) -> None:
        """What the broker itself writes is not screened, and remembered once it is committed."""

        async def write() -> int:
            await self.dedup.open(at.topic)
            async with self.engine.own("shard") as owner:
                batch = bytes(batch_with([value], timestamp_ms=self.clock.ms).view)
                return (await self.engine.transact(owner, [Write(at, batch)]))[0].base_offset

        offset = self.run(write())
        self.stored[at][offset] = value
        self.copies[self.memory_of(at)].setdefault(value, []).append(Copy(self.clock.ms, at, offset))

    # Time

    @rule(step=st.integers(0, WINDOW + 300))
    def pass_time(self, step: int) -> None:
        self.clock.ms += step

    @rule()
    def sweep(self) -> None:
        if self.dedup._keeper is not None:
            self.run(self.dedup._keeper.upkeep.sweep())

    # Stopping

    @rule()
    def stop(self) -> None:
        self.run(self.dedup.close())
        self.run(self.engine.close())
        self.start()

    @rule(power=st.booleans(), seed=st.integers(0, 2**32))
    def kill(self, power: bool, seed: int) -> None:
        left = self.tree.fork()
        if power:
            left.crash(Random(seed))
            self.boots += 1
        self.run(self.dedup.close())
        self.run(self.engine.close())
        self.tree = left
        self.start()

    @rule(topic=st.sampled_from(["t", "u"]))
    def forget_on_request(self, topic: str) -> None:
        """Off and on again: what the log holds within the window is remembered all the same."""

        async def switch() -> None:
            await self.engine.alter(topic, {"levada.dedup": "off"})
            await asyncio.sleep(0)
            await self.engine.alter(topic, {"levada.dedup": "payload"})

        self.run(switch())

    # What must hold

    @invariant()
    def nothing_is_stored_that_was_not_answered(self) -> None:
        for at, expected in self.stored.items():
            found = {record.offset: record.value for record in self.run(records(self.engine, at))}
            assert found == expected


DedupMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestDedupMachine = DedupMachine.TestCase
