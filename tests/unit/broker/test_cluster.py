"""Nodes and their plan over a real engine, with a clock that is set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from levada.broker.cluster import Cluster
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.names import NODES
from levada.engine.port import At, TopicSpec
from levada.errors import InvalidNode, InvalidReplicationFactor, StorageFailed, UnknownNode, UnknownTopic
from support.engines import FailingDisk, as_killed, make_topic, running
from support.reading import batch_of, records

ADDRESS = "localhost:9094"


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


@asynccontextmanager
async def cluster_on(engine: EmbeddedEngine, clock: Clock, own_id: str = "n1") -> AsyncIterator[Cluster]:
    cluster = Cluster(engine, engine.view, engine.cluster_id, own_id, now_ms=clock)
    await cluster.load()
    engine.place_by(cluster.plan)
    try:
        yield cluster
    finally:
        await cluster.close()


def ids(cluster: Cluster) -> list[str]:
    return [node.id for node in cluster.nodes()]


async def settled(cluster: Cluster) -> None:
    """Until what was put out is also written down."""
    while cluster._changes:
        await asyncio.wait(cluster._changes)


async def join_both(cluster: Cluster) -> None:
    for node_id in ("n3", "n2"):
        await cluster.join(node_id, ADDRESS)


async def test_alone_nothing_is_written(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine, cluster_on(engine, Clock()) as cluster:
        await make_topic(engine, "t", 2)
        assert ids(cluster) == ["n1"]
        assert cluster.leader().id == "n1"
        assert engine.view.get(NODES) is None
        assert [each.replicas for each in await cluster.placement("t")] == [("n1",), ("n1",)]


async def test_nodes_are_there_after_kill_9_and_have_one_timeout_to_show_up(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path / "data") as engine, cluster_on(engine, clock) as cluster:
        await cluster.join("n2", "far:1", kafka="far:2", timeout_ms=5000)
        await cluster.join("n3", ADDRESS)
        await cluster.join("n4", ADDRESS)
        await cluster.leave("n4")
        killed = as_killed(tmp_path / "data")
    clock.ms += 1_000_000
    async with running(killed) as engine, cluster_on(engine, clock) as cluster:
        assert ids(cluster) == ["n1", "n2", "n3"]
        node = cluster.nodes()[1]
        assert (node.address, node.kafka, node.timeout_ms) == ("far:1", "far:2", 5000)
        assert node.joined_ms == 1_000_000
        clock.ms += 5000
        assert ids(cluster) == ["n1", "n3"]


async def test_a_node_that_was_given_up_is_gone_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path / "data") as engine, cluster_on(engine, clock) as cluster:
        await cluster.join("n2", ADDRESS)
        clock.ms += 15_000
        with pytest.raises(UnknownNode):
            cluster.heartbeat("n2")
        await settled(cluster)
        killed = as_killed(tmp_path / "data")
    async with running(killed) as engine, cluster_on(engine, clock) as cluster:
        assert ids(cluster) == ["n1"]


async def test_a_node_that_comes_back_before_it_was_written_off_stays(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path / "data") as engine, cluster_on(engine, clock) as cluster:
        await cluster.join("n2", ADDRESS)
        clock.ms += 15_000
        assert ids(cluster) == ["n1"]
        await cluster.join("n2", ADDRESS)
        await settled(cluster)
        killed = as_killed(tmp_path / "data")
    async with running(killed) as engine, cluster_on(engine, clock) as cluster:
        assert ids(cluster) == ["n1", "n2"]


async def test_joining_again_in_the_same_place_writes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path / "data") as engine, cluster_on(engine, clock) as cluster:
        await cluster.join("n2", ADDRESS)
        clock.ms += 10_000
        await cluster.join("n2", ADDRESS)
        clock.ms += 10_000
        assert ids(cluster) == ["n1", "n2"]
        assert len(await records(engine, At(NODES, 0))) == 1
        await cluster.join("n2", "elsewhere:1")
        assert len(await records(engine, At(NODES, 0))) == 2


async def test_an_alarm_puts_a_node_out_though_nobody_asks(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        loop = asyncio.get_running_loop()
        cluster = Cluster(engine, engine.view, "c", "n1", now_ms=lambda: int(loop.time() * 1000))
        await cluster.join("n2", ADDRESS, timeout_ms=100)
        async with asyncio.timeout(60):
            await engine.read(At(NODES, 0), 1, 1000, wait_ms=20_000)
        assert [record.value is None for record in await records(engine, At(NODES, 0))] == [False, True]
        await cluster.close()


async def test_what_cannot_be_kept_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with running(tmp_path / "data", disk=disk) as engine, cluster_on(engine, Clock()) as cluster:
        await cluster.join("n2", ADDRESS)
        disk.broken = NODES
        with pytest.raises(StorageFailed):
            await cluster.join("n3", ADDRESS)
        with pytest.raises(StorageFailed):
            await cluster.leave("n2")
        assert ids(cluster) == ["n1", "n2"]
        disk.broken = None


async def test_a_caller_who_gives_up_does_not_leave_half_a_change(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine, cluster_on(engine, Clock()) as cluster:
        asked = asyncio.create_task(cluster.join("n2", ADDRESS))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await settled(cluster)
        assert ids(cluster) == ["n1", "n2"]
        assert len(await records(engine, At(NODES, 0))) == 1


async def test_the_plan_is_kept_with_the_topic(tmp_path: Path) -> None:
    plan = (("n1", "n2"), ("n2", "n3"), ("n3", "n1"), ("n1", "n2"))
    async with running(tmp_path / "data") as engine, cluster_on(engine, Clock()) as cluster:
        await join_both(cluster)
        info = await engine.create(TopicSpec(name="t", partitions=4, replication_factor=2))
        assert info.placement == plan
        five = await engine.create(TopicSpec(name="five", partitions=1, replication_factor=5))
        assert five.placement == (("n1", "n2", "n3"),)
        await engine.alter("t", {"retention.ms": "1000"})
        killed = as_killed(tmp_path / "data")
    async with running(killed) as engine:
        found = engine.view.get("t")
        assert found is not None and found.placement == plan


async def test_a_topic_that_grows_goes_on_with_the_nodes_there_are_then(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine, cluster_on(engine, Clock()) as cluster:
        await join_both(cluster)
        await engine.create(TopicSpec(name="t", partitions=2, replication_factor=2))
        await cluster.leave("n3")
        info = await engine.expand("t", 4)
        assert info.placement == (("n1", "n2"), ("n2", "n3"), ("n1", "n2"), ("n2", "n1"))


async def test_a_topic_from_before_the_plan_lies_here_and_grows_by_it(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        await make_topic(engine, "old", 2)
        async with cluster_on(engine, Clock()) as cluster:
            await join_both(cluster)
            assert [each.replicas for each in await cluster.placement("old")] == [("n1",), ("n1",)]
            info = await engine.expand("old", 4)
            assert info.placement == (("n1",), ("n1",), ("n3",), ("n1",))


async def test_no_copies_at_all_are_refused_and_nothing_is_made(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine, cluster_on(engine, Clock()):
        with pytest.raises(InvalidReplicationFactor):
            await engine.create(TopicSpec(name="t", partitions=1, replication_factor=0))
        assert engine.view.get("t") is None


async def test_placement_tells_the_last_offset(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine, cluster_on(engine, Clock()) as cluster:
        at = await make_topic(engine, "t", 3)
        for _ in range(3):
            await engine.append(at, batch_of(b"x"))
        await engine.append(At("t", 1), batch_of(b"x"))
        await engine.trim(At("t", 1), 1)
        assert [each.last_offset for each in await cluster.placement("t")] == [2, -1, -1]
        await make_topic(engine, "u")
        assert [str(each.at) for each in await cluster.placement() if each.at.topic in "tu"] == [
            "t-0", "t-1", "t-2", "u-0",
        ]  # fmt: skip
        with pytest.raises(UnknownTopic, match="there is no topic v"):
            await cluster.placement("v")


async def test_this_broker_is_where_it_listens(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine, cluster_on(engine, Clock(), "b-7") as cluster:
        cluster.own_at("localhost:1", "localhost:2")
        (node,) = cluster.nodes()
        assert (node.id, node.address, node.kafka, node.own) == ("b-7", "localhost:1", "localhost:2", True)
        with pytest.raises(InvalidNode):
            await cluster.leave("b-7")
        assert cluster.heartbeat("b-7").id == "b-7"


async def test_a_record_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        async with cluster_on(engine, Clock()) as cluster:
            await cluster.join("n2", ADDRESS)
            await engine.append(At(NODES, 0), batch_of(b"no json", key=b"n3"))
        async with cluster_on(engine, Clock()) as cluster:
            assert ids(cluster) == ["n1", "n2"]
