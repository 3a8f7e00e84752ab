"""A tail that was recovered is synced before anybody sees it: what can be read after a crash is there after the next."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from levada.engine.embedded import datadir, partitions
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import Acks, At, Committed
from support.engines import make_topic, running
from support.reading import batch_of, records
from support.simulated_tree import SimulatedTree

DATA = Path("/data")
POLICIES = ("fsync", "interval:60000", "os")

#: The ways in which a partition that a crash left is brought in order.
WAYS = {
    "looked after and closed again": ("RECOVERED_AT_ONCE", 6),
    "opened at the start": ("EAGER_BYTES", -1),
    "opened when it is read": ("RECOVERED_AT_ONCE", 0),
}

Seen = dict[At, list[tuple[int, bytes | None]]]


@pytest.fixture(params=WAYS)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, *WAYS[request.param])


async def readable(engine: EmbeddedEngine) -> Seen:
    """Everything a reader sees, of every partition."""
    ats = [At(info.name, index) for info in engine.view.all() for index in range(info.partitions)]
    return {at: [(record.offset, record.value) for record in await records(engine, at)] for at in ats}


async def killed(monkeypatch: pytest.MonkeyPatch, random: Random) -> SimulatedTree:
    """What a broker leaves that is killed while much is written and little of it is synced."""
    monkeypatch.setattr(datadir, "boot_id", lambda: "before")
    tree = SimulatedTree()
    async with running(DATA, disk=tree) as engine:
        for policy in POLICIES:
            await make_topic(engine, policy.partition(":")[0], 2, levada_durability=policy, segment_bytes="400")
        for number in range(random.randint(1, 20)):
            at = At(random.choice(POLICIES).partition(":")[0], random.randrange(2))
            await engine.append(at, batch_of(b"%d" % number), acks=random.choice((Acks.NONE, Acks.ALL)))
        await engine.commit_offsets("group", {At("os", 0): Committed(1)})
        # Not waited for: written, and not synced when the end comes.
        for policy in POLICIES:
            await engine.append(At(policy.partition(":")[0], 0), batch_of(b"last"), acks=Acks.NONE)
        return tree.fork()


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("seed", range(6))
async def test_what_was_readable_after_a_kill_is_there_after_a_power_cut(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    tree = await killed(monkeypatch, random)
    async with running(DATA, disk=tree) as engine:
        first = await readable(engine)
        offsets = await engine.offsets("group")
        again = tree.fork()
    assert first[At("os", 0)][-1][1] == b"last"
    assert first[At("fsync", 0)][-1][1] == b"last"
    again.crash(random)
    monkeypatch.setattr(datadir, "boot_id", lambda: "after")
    async with running(DATA, disk=again) as engine:
        assert await readable(engine) == first
        assert await engine.offsets("group") == offsets


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("seed", range(6))
async def test_what_was_readable_after_one_power_cut_is_there_after_the_next(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    tree = await killed(monkeypatch, random)
    tree.crash(random)
    monkeypatch.setattr(datadir, "boot_id", lambda: "after")
    async with running(DATA, disk=tree) as engine:
        first = await readable(engine)
        again = tree.fork()
    again.crash(random)
    monkeypatch.setattr(datadir, "boot_id", lambda: "later")
    async with running(DATA, disk=again) as engine:
        assert await readable(engine) == first
