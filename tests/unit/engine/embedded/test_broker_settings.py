"""Broker-wide settings that change while the engine runs: kept through every end, in effect at once."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs

from levada.engine.embedded import datadir
from levada.engine.port import At
from levada.engine.settings import Level
from levada.errors import InvalidConfig, InvalidTransactionTimeout, RecordTooLarge
from support.engines import as_killed, make_topic, running
from support.reading import batch_of, values
from support.simulated_tree import SimulatedTree


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def test_a_change_is_there_after_a_kill_and_after_a_clean_stop(data: Path) -> None:
    async with running(data) as engine:
        await engine.alter_broker(Level.ALL_BROKERS, {"log.retention.ms": "1000", "num.partitions": "3"})
        await engine.alter_broker(Level.BROKER, {"num.partitions": "5"})
        killed = as_killed(data)
        await engine.alter_broker(Level.BROKER, {"num.partitions": None})
    async with running(killed) as engine:
        assert engine.settings.number("num.partitions") == 5
        assert engine.settings.at(Level.ALL_BROKERS) == {"log.retention.ms": "1000", "num.partitions": "3"}
        await make_topic(engine)
        assert engine.config_of("t").retention_ms == 1000
    async with running(data) as engine:
        assert engine.settings.number("num.partitions") == 3
        assert engine.settings.at(Level.BROKER) == {}


async def test_topics_without_a_setting_of_their_own_follow_at_once(data: Path) -> None:
    async with running(data) as engine:
        follows = await make_topic(engine, "follows")
        own = await make_topic(engine, "own", max_message_bytes="100000")
        for at in (follows, own):
            await engine.append(at, batch_of(b"before"))
        await engine.alter_broker(Level.BROKER, {"message.max.bytes": "200"})
        with pytest.raises(RecordTooLarge):
            await engine.append(follows, batch_of(b"x" * 1000))
        await engine.append(own, batch_of(b"x" * 1000))
        await engine.alter_broker(Level.BROKER, {"message.max.bytes": None})
        await engine.append(follows, batch_of(b"x" * 1000))
        assert await values(engine, follows) == [b"before", b"x" * 1000]


async def test_the_registry_itself_follows_nobody(data: Path) -> None:
    async with running(data) as engine:
        await engine.alter_broker(Level.ALL_BROKERS, {"levada.durability": "os", "log.cleanup.policy": "delete"})
        config = engine.config_of("__levada.topics")
        assert (config.durability.mode, config.compact) == ("fsync", True)
        await make_topic(engine)
        assert engine.config_of("t").durability.mode == "os"


async def test_a_wrong_change_is_refused_whole(data: Path) -> None:
    async with running(data) as engine:
        with pytest.raises(InvalidConfig, match=r"num\.partitions"):
            await engine.alter_broker(Level.BROKER, {"group.max.size": "3", "num.partitions": "none"})
        assert engine.settings.at(Level.BROKER) == {}
    async with running(data) as engine:
        assert engine.settings.at(Level.BROKER) == {}


async def test_limits_of_transactions_and_producers_follow(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine)
        await engine.append(at, batch_of(b"v", producer=(7, 0, 0)))
        await engine.alter_broker(
            Level.BROKER, {"transaction.max.timeout.ms": "1000", "producer.id.expiration.ms": "5000"}
        )
        with pytest.raises(InvalidTransactionTimeout):
            engine.transactions.limits.check_timeout(1001)
        assert engine.partition(*at).log.producers.expiration_ms == 5000
        other = await make_topic(engine, "later")
        assert engine.partition(*other).log.producers.expiration_ms == 5000


async def test_what_another_version_wrote_is_passed_over_and_said(data: Path) -> None:
    async with running(data) as engine:
        journal = engine._registry_journal
        records = [
            (b"config/brokers/1", b'{"settings":{"num.partitions":"4","from.the.future":"1","group.max.size":"none"}}'),
            (b"config/brokers/", b"not json"),
            (b"config/something/else", b"{}"),
        ]
        await journal.durable(journal.append(records))
    with capture_logs() as logs:
        async with running(data) as engine:
            assert engine.settings.at(Level.BROKER) == {"num.partitions": "4"}
            assert engine.settings.at(Level.ALL_BROKERS) == {}
            assert [info.name for info in engine.view.all()] == ["__levada.topics"]
    said = [entry["reason"] for entry in logs if "broker setting" in entry["event"]]
    assert any("from.the.future" in reason for reason in said)
    assert any("group.max.size" in reason for reason in said)


async def test_another_node_has_settings_of_its_own(data: Path) -> None:
    async with running(data) as engine:
        await engine.alter_broker(Level.BROKER, {"num.partitions": "5"})
        await engine.alter_broker(Level.ALL_BROKERS, {"num.partitions": "3"})
    async with running(data, node_id=2) as engine:
        assert engine.settings.number("num.partitions") == 3
    async with running(data) as engine:
        assert engine.settings.number("num.partitions") == 5


async def test_changes_at_once_follow_one_another(data: Path) -> None:
    async with running(data) as engine:
        names = ("num.partitions", "group.max.size", "max.connections", "log.retention.ms", "log.segment.bytes")
        await asyncio.gather(*(engine.alter_broker(Level.BROKER, {name: "100"}) for name in names))
        killed = as_killed(data)
    async with running(killed) as engine:
        assert engine.settings.at(Level.BROKER) == dict.fromkeys(names, "100")


async def test_a_shorter_pause_between_rounds_holds_at_once(data: Path) -> None:
    """With the pause it was started with, the first look for something to delete would come in five minutes."""
    async with running(data) as engine:
        at = await make_topic(engine, segment_bytes="200", retention_ms="1")
        for _ in range(10):
            await engine.append(at, batch_of(b"x" * 100))
        assert (await engine.bounds(At("t", 0))).start == 0
        await engine.alter_broker(Level.BROKER, {"log.retention.check.interval.ms": "5"})
        async with asyncio.timeout(60):
            while (await engine.bounds(at)).start == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def test_a_directory_of_the_first_format_keeps_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(Path(__file__).parents[3] / "data" / "format-1", data)
    async with running(data) as engine:
        assert engine.settings.at(Level.BROKER) == {}
        await engine.alter_broker(Level.BROKER, {"log.retention.ms": "1000"})
        topics = [info.name for info in engine.view.all()]
        killed = as_killed(data)
    async with running(killed) as engine:
        assert engine.settings.at(Level.BROKER) == {"log.retention.ms": "1000"}
        assert [info.name for info in engine.view.all()] == topics


@pytest.mark.parametrize("seed", range(5))
async def test_a_change_that_was_answered_outlives_a_power_cut(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data, tree = Path("/data"), SimulatedTree()
    monkeypatch.setattr(datadir, "boot_id", lambda: "before")
    async with running(data, disk=tree, topic={"levada.durability": "os"}) as engine:
        await engine.alter_broker(Level.ALL_BROKERS, {"num.partitions": "3"})
        cut = tree.fork()
    cut.crash(Random(seed))
    monkeypatch.setattr(datadir, "boot_id", lambda: "after")
    async with running(data, disk=cut) as engine:
        assert engine.settings.number("num.partitions") == 3
