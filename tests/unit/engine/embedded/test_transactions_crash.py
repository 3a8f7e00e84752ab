"""Producers, syncs, timeouts and crashes at random: no transaction is ever half visible.

Each log loses any part of what it had not synced. The producers behave as Kafka's do: they commit when every batch was
acknowledged, send again what was not, and after an error abort or begin anew. What is random follows from the seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from levada.engine.embedded.markers import OFFSETS
from levada.engine.port import At, Committed
from levada.errors import LevadaError
from support.transaction_world import P0, P1, STATE, World, turn

ROUNDS = int(os.environ.get("LEVADA_CRASH_ROUNDS", "40"))
STEPS = 300
PARTITIONS = (P0, P1)
LOGS = (P0, P1, STATE, OFFSETS)
#: What a client may do, and how often it does it when it may.
STEPS_OF_CLIENTS = {
    "send": 8,
    "send offsets": 2,
    "send again": 8,
    "commit": 5,
    "abort": 1,
    "end again": 3,
    "begin anew": 1,
}


@dataclass
class Sent:
    at: At
    value: bytes
    sequence: int
    acked: bool = False


@dataclass
class Txn:
    """One transaction as its client knows it."""

    sent: list[Sent] = field(default_factory=list)
    #: What the group's offset is if this commits, and whether the broker said it has it.
    offset: int | None = None
    offset_acked: bool = False
    asked: bool | None = None
    answered: bool = False
    failed: bool = False

    @property
    def all_acked(self) -> bool:
        return all(sent.acked for sent in self.sent) and (self.offset is None or self.offset_acked)


class Client:
    def __init__(self, name: str, *, tv2: bool) -> None:
        self.name = name
        self.tv2 = tv2
        self.producer: tuple[int, int] | None = None
        self.sequences: dict[At, int] = {}
        self.txn = Txn()
        self.history: list[Txn] = [self.txn]
        self.busy = False
        #: A crash came, and it has not yet sent again what was not acknowledged.
        self.must_resend = False

    def begin(self) -> None:
        self.txn = Txn()
        self.history.append(self.txn)

    @property
    def is_idle(self) -> bool:
        return self.producer is not None and not self.busy and not self.txn.failed

    def can(self, step: str) -> bool:
        txn = self.txn
        match step:
            case "begin anew":
                return not self.busy
            case "send" | "send offsets":
                return self.is_idle and txn.asked is None and not self.must_resend
            case "send again":
                return self.is_idle and txn.asked is None and self.must_resend
            case "commit":
                return self.can("send") and bool(txn.sent) and txn.all_acked
            case "abort":
                # Without a new epoch, a client that is not sure what arrived could not tell a repeat from a gap.
                return self.is_idle and txn.asked is None and bool(txn.sent) and (self.tv2 or txn.all_acked)
            case _:
                return self.is_idle and txn.asked is not None


class Simulation:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clients = [Client("two", tv2=True), Client("one", tv2=False)]
        self.count = 0
        self.steps: list[str] = []
        self.committed = 0

    async def run(self) -> None:
        self.world = World(eager=False)
        for _ in range(STEPS):
            await self.step()
        await self.check_all_or_nothing()
        await self.stop()

    async def step(self) -> None:
        kind = self.rng.choices(["client", "sync", "crash", "time", "settle"], [80, 10, 6, 1, 3])[0]
        if kind == "client":
            await self.let_a_client_act()
        elif kind == "sync":
            await self.sync()
        elif kind == "crash":
            await self.crash()
        elif kind == "time":
            self.steps.append("a minute passes")
            self.world.now_ms += 61_000
            self.world.transactions.tick(self.world.now_ms)
        else:
            await self.check_all_or_nothing()

    async def sync(self) -> None:
        """Sync everything until nothing happens any more, or a few logs once: what a crash then finds is anything."""
        some = self.rng.choice(
            [LOGS, (P0, P1), (P0, P1, OFFSETS), (STATE,), (P0, STATE), (P1, STATE), (P0,), (P1,), ()]
        )
        self.steps.append(f"sync {', '.join(map(str, some))}")
        if some == LOGS:
            await self.world.settle()
        elif some:
            self.world.sync(*some)
        await turn(self.rng.randint(1, 8))

    async def let_a_client_act(self) -> None:
        choices = [(client, step) for client in self.clients for step in STEPS_OF_CLIENTS if client.can(step)]
        if choices:
            weights = [STEPS_OF_CLIENTS[step] for _, step in choices]
            client, step = self.rng.choices(choices, weights)[0]
            self.steps.append(f"{client.name}: {step}")
            asyncio.get_running_loop().create_task(self.attempt(client, self.work_of(client, step)))
        await turn()
        for _ in range(self.rng.randint(0, 4)):
            await self.sync()

    async def attempt(self, client: Client, work: Coroutine[Any, Any, None]) -> None:
        client.busy = True
        try:
            await work
        except LevadaError as error:
            self.steps.append(f"{client.name}: {error!r}")
            client.txn.failed = True
        client.busy = False

    def work_of(self, client: Client, step: str) -> Coroutine[Any, Any, None]:
        match step:
            case "begin anew":
                return self.begin(client)
            case "send":
                self.count += 1
                at = self.rng.choice(PARTITIONS)
                sent = Sent(at, b"%d" % self.count, client.sequences.get(at, 0))
                client.sequences[at] = sent.sequence + 1
                client.txn.sent.append(sent)
                return self.deliver(client, sent)
            case "send offsets":
                self.count += 1
                client.txn.offset, client.txn.offset_acked = self.count, False
                return self.deliver_offset(client)
            case "send again":
                return self.deliver_again(client)
            case "commit" | "abort":
                client.txn.asked = step == "commit"
        return self.end(client)

    # What clients do

    async def begin(self, client: Client) -> None:
        client.begin()
        client.producer = None
        client.producer = await self.world.transactions.init_producer_id(client.name, 60_000)
        client.sequences = {}
        client.must_resend = False

    async def deliver(self, client: Client, sent: Sent) -> None:
        assert client.producer is not None
        transactions = self.world.transactions
        if not client.tv2:
            await transactions.add_partitions(client.name, *client.producer, {sent.at})
        receipt = self.world.produce(sent.at, sent.value, *client.producer, implicit=client.tv2, sequence=sent.sequence)
        partition = self.world.partition_of(sent.at)
        waiting = partition.when_durable(partition.log_end)
        if waiting is not None:
            await waiting
        if receipt is not None:
            await transactions.durable(receipt)
        sent.acked = True

    async def deliver_offset(self, client: Client) -> None:
        assert client.producer is not None and client.txn.offset is not None
        transactions = self.world.transactions
        if not client.tv2:
            await transactions.add_offsets(client.name, *client.producer)
        await transactions.commit_offsets(
            client.name, *client.producer, client.name, {P0: Committed(client.txn.offset)}, implicit=client.tv2
        )
        client.txn.offset_acked = True

    async def deliver_again(self, client: Client) -> None:
        client.must_resend = False
        for sent in client.txn.sent:
            if not sent.acked:
                await self.deliver(client, sent)
        if client.txn.offset is not None and not client.txn.offset_acked:
            await self.deliver_offset(client)

    async def end(self, client: Client) -> None:
        txn = client.txn
        assert client.producer is not None and txn.asked is not None
        client.producer = await self.world.transactions.end(client.name, *client.producer, txn.asked, tv2=client.tv2)
        txn.answered = True
        client.begin()
        client.must_resend = False
        if client.tv2:
            client.sequences = {}

    # What happens to them

    async def crash(self) -> None:
        self.steps.append("crash")
        self.check_nothing_unasked_is_visible()
        await self.stop()
        self.world.crash(self.rng)
        await turn()
        for client in self.clients:
            client.busy = False
            client.must_resend = client.txn.asked is None
            if not client.tv2 and not client.txn.all_acked:
                client.producer = None  # without a new epoch it could not tell a repeat from a gap

    async def stop(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await turn()

    # What must hold

    def visible(self) -> set[bytes]:
        return {value for at in PARTITIONS for value in self.world.log(at).decided()}

    def check_nothing_unasked_is_visible(self) -> None:
        visible = self.visible()
        for client in self.clients:
            for txn in client.history:
                if txn.asked is not True:
                    assert not visible & {sent.value for sent in txn.sent}, self.steps

    async def check_all_or_nothing(self) -> None:
        await self.world.settle()
        self.check_nothing_unasked_is_visible()
        visible = self.visible()
        for client in self.clients:
            newest = 0
            for txn in client.history:
                values = {sent.value for sent in txn.sent}
                seen = visible & values
                assert seen in (set(), values), (seen, values, self.steps)
                if txn.answered and txn.asked:
                    assert seen == values, (txn, self.steps)
                if seen and txn.offset is not None:
                    newest = txn.offset
                self.committed += bool(seen)
            stored = [committed.offset for committed in self.world.offsets.fetch(client.name).values()]
            assert stored == ([newest] if newest else []), self.steps


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_no_transaction_is_half_visible_whatever_happens(seed):
    simulation = Simulation(seed)
    await simulation.run()
    assert simulation.committed, "nothing was ever committed: the test proves nothing"
