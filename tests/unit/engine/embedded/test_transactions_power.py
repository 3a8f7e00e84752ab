"""Producers with transactions over several requests lose the broker to a power failure, at any change it makes to the disk.

Afterwards either the next producer takes over, or the same ones go on: they send again what was not acknowledged and ask
again for the end they had asked for. Nothing is half visible, and what was answered stands. `LEVADA_CRASH_ROUNDS` sets
how many moments are tried.
"""

from __future__ import annotations

import asyncio
import copy
import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from levada.engine.embedded import datadir
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import At, Committed, Isolation
from levada.errors import ConcurrentTransactions
from levada.records.batch import Batch
from levada.records.build import build
from support.engines import make_topic, running
from support.reading import records
from support.simulated_tree import SimulatedTree

ROUNDS = int(os.environ.get("LEVADA_CRASH_ROUNDS", "12"))
DATA = Path("/data")
PLACES = (At("a", 0), At("a", 1), At("b", 0))


@dataclass
class Txn:
    """One transaction as its client knows it."""

    producer: tuple[int, int]
    #: Place, value and sequence of everything sent, and how much of it was acknowledged.
    sent: list[tuple[At, bytes, int]] = field(default_factory=list)
    acked: int = 0
    offset: int = -1
    asked: bool | None = None
    answered: bool = False

    @property
    def values(self) -> set[bytes]:
        return {value for _, value, _ in self.sent}


@dataclass
class Client:
    name: str
    tv2: bool
    history: list[Txn] = field(default_factory=list)
    sequences: dict[At, int] = field(default_factory=dict)


async def deliver(engine: EmbeddedEngine, client: Client, txn: Txn, place: tuple[At, bytes, int]) -> None:
    at, value, sequence = place
    transactions = engine.transactions
    if not client.tv2:
        await transactions.add_partitions(client.name, *txn.producer, {at})
    partition = engine.partition(*at)
    receipt = await admitted(engine, client, txn, at)
    batch = build(
        [(None, value)],
        timestamp_ms=1,
        producer_id=txn.producer[0],
        producer_epoch=txn.producer[1],
        base_sequence=sequence,
        transactional=True,
    )
    appended = partition.append(Batch(memoryview(batch)))
    waiting = partition.when_durable(appended.last_offset + 1)
    if waiting is not None:
        await waiting
    if receipt is not None:
        await transactions.durable(receipt)
    txn.acked += 1


async def admitted(engine: EmbeddedEngine, client: Client, txn: Txn, at: At) -> int | None:
    """Tried again while the end before a crash is being carried out, as clients do."""
    while True:
        try:
            return engine.transactions.on_transactional_append(
                *txn.producer, at, transactional_id=client.name, implicit=client.tv2
            )
        except ConcurrentTransactions:
            await asyncio.sleep(0.001)


async def send_offset(engine: EmbeddedEngine, client: Client, txn: Txn) -> None:
    if not client.tv2:
        await engine.transactions.add_offsets(client.name, *txn.producer)
    await engine.transactions.commit_offsets(
        client.name, *txn.producer, client.name, {PLACES[0]: Committed(txn.offset)}, implicit=client.tv2
    )


async def end(engine: EmbeddedEngine, client: Client, txn: Txn) -> tuple[int, int]:
    assert txn.asked is not None
    after = await engine.transactions.end(client.name, *txn.producer, txn.asked, tv2=client.tv2)
    txn.answered = True
    return after


async def work(engine: EmbeddedEngine, client: Client, random: Random) -> None:
    """Ten transactions."""
    producer = await engine.transactions.init_producer_id(client.name, 60_000)
    for number in range(10):
        txn = Txn(producer, offset=number + 1)
        client.history.append(txn)
        for _ in range(random.randint(1, 4)):
            at = random.choice(PLACES)
            sequence = client.sequences.get(at, 0)
            client.sequences[at] = sequence + 1
            txn.sent.append((at, f"{client.name} {number} {len(txn.sent)}".encode(), sequence))
            await deliver(engine, client, txn, txn.sent[-1])
        await send_offset(engine, client, txn)
        txn.asked = random.random() < 0.7
        producer = await end(engine, client, txn)
        if client.tv2:
            client.sequences.clear()


async def crashed(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[SimulatedTree, list[Client]]:
    """The disk after a power failure at some moment, and what the clients knew then."""
    random = Random(seed)
    tree = SimulatedTree()
    clients = [Client("two", tv2=True), Client("one", tv2=False)]
    known = clients
    monkeypatch.setattr(datadir, "boot_id", lambda: "before")

    def remember() -> None:
        nonlocal known
        known = copy.deepcopy(clients)

    tree.on_fork = remember
    async with running(DATA, disk=tree) as engine:
        await make_topic(engine, "a", 2)
        await make_topic(engine, "b", 1)
        tree.fork_at = tree.steps + random.randint(1, 600)
        await asyncio.gather(*(work(engine, client, random) for client in clients))
        if tree.forked is None:
            remember()
            tree.forked = tree.fork()
    tree.forked.crash(random)
    monkeypatch.setattr(datadir, "boot_id", lambda: "after")
    return tree.forked, known


async def take_over(engine: EmbeddedEngine, client: Client) -> None:
    await engine.transactions.init_producer_id(client.name, 60_000)


async def go_on(engine: EmbeddedEngine, client: Client) -> None:
    """As a client does that lost its connection: from where it was."""
    if not client.history:
        return
    txn = client.history[-1]
    if txn.answered:
        return
    if txn.asked is None:
        for place in txn.sent[txn.acked :]:
            await deliver(engine, client, txn, place)
        await send_offset(engine, client, txn)
        txn.asked = True
    await end(engine, client, txn)


async def check(engine: EmbeddedEngine, clients: list[Client]) -> None:
    seen: set[bytes] = set()
    for at in PLACES:
        partition = engine.partition(*at)  # opening it may abort what was left in it
        waiting = partition.when_durable(partition.log_end)
        if waiting is not None:
            await waiting
        found = [record.value or b"" for record in await records(engine, at, isolation=Isolation.READ_COMMITTED)]
        assert len(found) == len(set(found))
        seen.update(found)
        bounds = await engine.bounds(at)
        assert bounds.stable_end == bounds.end, "something is still open"
    for client in clients:
        offset = -1
        for txn in client.history:
            visible = seen & txn.values
            assert visible in (set(), txn.values)
            if txn.asked is not True:
                assert not visible
            elif txn.answered:
                assert visible == txn.values
            if visible:
                offset = txn.offset
        stored = (await engine.offsets(client.name)).get(PLACES[0])
        assert (-1 if stored is None else stored.offset) == offset


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_after_a_power_failure_the_next_producers_find_nothing_half_done(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """37, for every moment."""
    tree, clients = await crashed(seed, monkeypatch)
    async with running(DATA, disk=tree) as engine:
        for client in clients:
            await take_over(engine, client)
        await check(engine, clients)
    async with running(DATA, disk=tree) as engine:
        await check(engine, clients)


@pytest.mark.parametrize("seed", range(1000, 1000 + ROUNDS))
async def test_after_a_power_failure_the_same_producers_go_on_and_lose_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, clients = await crashed(seed, monkeypatch)
    async with running(DATA, disk=tree) as engine:
        for client in clients:
            await go_on(engine, client)
        for client in clients:
            await take_over(engine, client)
        await check(engine, clients)


async def test_what_was_committed_stays_so_where_the_topic_does_not_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel happened to write the data back before the power went, and not the marker."""
    tree = SimulatedTree()
    monkeypatch.setattr(datadir, "boot_id", lambda: "before")
    async with running(DATA, disk=tree) as engine:
        fast = await make_topic(engine, "fast", levada_durability="os")
        client = Client("x", tv2=True)
        txn = Txn(await engine.transactions.init_producer_id("x", 10_000))
        await deliver(engine, client, txn, (fast, b"v", 0))
        partition = engine.partition(*fast)
        partition.synced(partition.sync())
        txn.asked = True
        await end(engine, client, txn)
        lost = tree.fork()
    monkeypatch.setattr(datadir, "boot_id", lambda: "after")
    for seed in range(10):
        survived = lost.fork()
        survived.crash(Random(seed))
        async with running(DATA, disk=survived) as engine:
            found = await records(engine, fast, isolation=Isolation.READ_COMMITTED)
            assert [record.value for record in found] == [b"v"]
