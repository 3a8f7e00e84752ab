"""The coordinator against a model that fits on a page: whoever came last under an id has it, and ends are all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from levada.engine.embedded.markers import OFFSETS
from levada.engine.port import At, Committed
from levada.errors import (
    InvalidProducerEpoch,
    InvalidProducerMapping,
    InvalidTransactionState,
    LevadaError,
    ProducerFenced,
)
from support.transaction_world import P0, P1, World

REFUSALS = (ProducerFenced, InvalidProducerEpoch, InvalidProducerMapping, InvalidTransactionState)
IDS = st.sampled_from(["a", "b"])

#: (transactional id, producer id, epoch): what a client holds.
Token = tuple[str, int, int]


class Model:
    """What should be: the current token of each id, what is in its open transaction, and what everyone sees."""

    def __init__(self) -> None:
        self.current: dict[str, Token] = {}
        self.open: dict[str, list[tuple[At, bytes]]] = {}
        self.offset: dict[str, int] = {}
        self.seen: dict[At, set[bytes]] = {P0: set(), P1: set()}
        self.offsets: dict[str, int] = {}

    def end(self, name: str, commit: bool) -> None:
        for at, value in self.open.pop(name, []):
            if commit and at != OFFSETS:
                self.seen[at].add(value)
        if name in self.offset:
            offset = self.offset.pop(name)
            if commit:
                self.offsets[name] = offset


class Coordinator(RuleBasedStateMachine):
    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = Model()
        self.count = 0

    @initialize()
    def start(self) -> None:
        async def make() -> World:
            return World()

        self.world: World = self.loop.run_until_complete(make())

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The answer, or the refusal."""
        try:
            return self.loop.run_until_complete(work)
        except LevadaError as refusal:
            return refusal

    def holds(self, token: Token) -> bool:
        return self.model.current.get(token[0]) == token

    @rule(target=tokens, name=IDS)
    def begin(self, name: str) -> Token:
        producer_id, epoch = self.call(self.world.transactions.init_producer_id(name, 60_000))
        self.model.end(name, False)
        self.model.current[name] = (name, producer_id, epoch)
        return name, producer_id, epoch

    @rule(target=tokens, token=tokens)
    def go_on_after_an_error(self, token: Token) -> Any:
        """KIP-360: the holder gets the next epoch; anyone else is fenced, but for the holder's own repeated call."""
        name = token[0]
        answer = self.call(self.world.transactions.init_producer_id(name, 60_000, *token[1:]))
        if not self.holds(token):
            assert isinstance(answer, ProducerFenced) or (name, *answer) == self.model.current[name]
            return multiple()
        assert answer > token[1:]
        self.model.end(name, False)
        self.model.current[name] = (name, *answer)
        return name, *answer

    @rule(token=tokens, at=st.sampled_from([P0, P1]))
    def produce(self, token: Token, at: At) -> None:
        self.count += 1
        value = b"%d" % self.count

        async def work() -> None:
            self.world.produce(at, value, *token[1:])

        answer = self.call(work())
        if self.holds(token):
            assert answer is None
            self.model.open.setdefault(token[0], []).append((at, value))
        else:
            assert isinstance(answer, REFUSALS)

    @rule(token=tokens)
    def send_offsets(self, token: Token) -> None:
        self.count += 1
        offsets = {P0: Committed(self.count)}
        answer = self.call(
            self.world.transactions.commit_offsets(*token, token[0], offsets, implicit=True),
        )
        if self.holds(token):
            assert answer is None
            self.model.open.setdefault(token[0], []).append((OFFSETS, b""))
            self.model.offset[token[0]] = self.count
        else:
            assert isinstance(answer, REFUSALS)

    @rule(target=tokens, token=tokens, commit=st.booleans(), tv2=st.booleans())
    def end(self, token: Token, commit: bool, tv2: bool) -> Any:
        name = token[0]
        answer = self.call(self.world.transactions.end(*token, commit, tv2=tv2))
        if not self.holds(token) or isinstance(answer, InvalidTransactionState):
            # A repeat of the end that made the current epoch is answered with it; a commit of nothing is refused.
            if self.holds(token):
                assert name not in self.model.open
            assert isinstance(answer, REFUSALS) or (name, *answer) == self.model.current[name]
            return multiple()
        self.model.end(name, commit)
        self.model.current[name] = (name, *answer)
        return name, *answer

    @rule()
    def restart(self) -> None:
        async def work() -> None:
            self.world.crash()
            await self.world.settle()

        self.call(work())

    @rule()
    def time_passes(self) -> None:
        async def work() -> None:
            self.world.now_ms += 60_001
            self.world.transactions.tick(self.world.now_ms)
            await self.world.settle()

        self.call(work())
        for name in list(self.model.open):
            self.model.end(name, False)
            found = self.world.transactions.get(name)
            # Nobody has been told this epoch, but a TV2 client learns it when it aborts.
            self.model.current[name] = (name, found.producer_id, found.epoch)

    @invariant()
    def readers_see_what_was_committed(self) -> None:
        if hasattr(self, "world"):
            for at, values in self.model.seen.items():
                assert set(self.world.log(at).decided()) == values
            for name in ("a", "b"):
                stored = [committed.offset for committed in self.world.offsets.fetch(name).values()]
                assert stored == ([self.model.offsets[name]] if name in self.model.offsets else [])

    def teardown(self) -> None:
        self.loop.close()


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
