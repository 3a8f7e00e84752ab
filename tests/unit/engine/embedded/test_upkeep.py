"""The jobs of housekeeping on a real engine, run by hand, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from levada.config import DAY_MS, HOUR_MS, MINUTE_MS
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.embedded.recovery import decode_checkpoint
from levada.engine.embedded.registry import INTERNAL_SETTINGS
from levada.engine.port import At, Committed
from levada.records.batch import Batch
from support.engines import as_killed, forbid_syncs_here, make_topic, running
from support.reading import batch_of, records, values

START_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def fill(engine: EmbeddedEngine, at: At, count: int, timestamp_ms: int = START_MS) -> None:
    for number in range(count):
        await engine.append(at, batch_of(b"%d" % number, key=b"%d" % (number % 2), timestamp_ms=timestamp_ms))


# Retention


async def test_what_is_older_than_its_topic_keeps_is_deleted(data: Path, clock: Clock) -> None:
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine, retention_ms=str(HOUR_MS), segment_bytes="300")
        kept = await make_topic(engine, "kept", retention_ms="-1", segment_bytes="300")
        for each in (at, kept):
            await fill(engine, each, 10)
        clock.ms += 2 * HOUR_MS
        await fill(engine, at, 1, clock.ms)
        await engine._upkeep.retain()
        bounds = await engine.bounds(at)
        assert 0 < bounds.start <= 10 and bounds.end == 11
        assert (await engine.bounds(kept)).start == 0
        assert list((data / "topics" / "t-0").glob("*.deleted"))
        clock.ms += 2 * MINUTE_MS
        await engine._upkeep.purge()
        assert not list((data / "topics" / "t-0").glob("*.deleted"))


async def test_retention_and_compaction_do_not_wait_for_the_disk_on_the_loop(
    data: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(data, now_ms=clock) as engine:
        old = await make_topic(engine, retention_ms=str(HOUR_MS))
        table = await make_topic(
            engine, "table", cleanup_policy="compact", segment_bytes="300", min_cleanable_dirty_ratio="0"
        )
        for at in (old, table):
            await fill(engine, at, 20)
        clock.ms += 2 * HOUR_MS
        size = engine.partition(*table).log.size_bytes
        with monkeypatch.context() as patched:
            forbid_syncs_here(patched)
            appending = asyncio.create_task(fill(engine, table, 20))
            await engine._upkeep.retain()
            await appending
            await engine._upkeep.compact()
        assert await engine.bounds(old) == (20, 20, 20)
        assert engine.partition(*table).log.size_bytes < size
        killed = as_killed(data)
    async with running(killed, now_ms=clock) as engine:
        assert await engine.bounds(old) == (20, 20, 20)
        assert (await values(engine, table))[-1] == b"19"


async def test_nothing_that_somebody_still_needs_is_deleted(data: Path, clock: Clock) -> None:
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine, retention_ms=str(HOUR_MS), segment_bytes="100")
        await fill(engine, at, 10)
        needed: list[int | None] = [4, None, 7]
        engine.retention_floors += [lambda at, floor=floor: floor for floor in needed]  # type: ignore[misc]
        clock.ms += 2 * HOUR_MS
        await engine._upkeep.retain()
        assert 0 < (await engine.bounds(at)).start <= 4
        engine.retention_floors.clear()
        await engine._upkeep.retain()
        assert (await engine.bounds(at)).start == 10


async def test_a_reader_that_waits_is_told_when_its_place_goes(data: Path, clock: Clock) -> None:
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine, retention_ms=str(HOUR_MS))
        await fill(engine, at, 3)
        told = asyncio.Event()

        class Waiter:
            def advanced(self, partition: object, bytes_added: int) -> None:
                told.set()

        engine.partition(*at).watch(Waiter())
        clock.ms += 2 * HOUR_MS
        await engine._upkeep.retain()
        assert told.is_set()


async def test_a_partition_that_is_not_open_is_opened_only_when_its_files_are_old(data: Path, clock: Clock) -> None:
    async with running(data, now_ms=clock) as engine:
        old = await make_topic(engine, "old", retention_ms=str(HOUR_MS))
        large = await make_topic(engine, "large", retention_ms="-1", retention_bytes="200", segment_bytes="100")
        young = await make_topic(engine, "young", retention_ms=str(DAY_MS))
        for at in (old, large, young):
            await fill(engine, at, 10)
    for name, hours in (("old", 3), ("young", 3), ("large", 0)):
        for file in (data / "topics" / f"{name}-0").glob("*.log"):
            seconds = START_MS / 1000 - hours * 3600
            os.utime(file, (seconds, seconds))
    async with running(data, now_ms=clock) as engine:
        clock.ms += HOUR_MS
        await engine._upkeep.retain()
        opened = {partition.at.topic for partition in engine.open_partitions()}
        assert opened >= {"old", "large"} and "young" not in opened
        assert (await engine.bounds(large)).start > 0


# Compaction


async def test_a_compacted_topic_is_compacted_when_it_is_worth_it(data: Path, clock: Clock) -> None:
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine, cleanup_policy="compact", segment_bytes="300")
        await fill(engine, at, 20)
        before = await records(engine, at)
        await engine._upkeep.compact()
        after = await records(engine, at)
        assert len(after) < len(before)
        assert {record.key: record.value for record in after} == {record.key: record.value for record in before}
        assert (await engine.append(at, batch_of(b"more"))).base_offset == 20


async def test_a_compacted_topic_that_is_not_open_is_looked_at_by_its_files(data: Path, clock: Clock) -> None:
    async with running(data, now_ms=clock) as engine:
        large = await make_topic(engine, "large", cleanup_policy="compact", segment_bytes="300")
        small = await make_topic(engine, "small", cleanup_policy="compact")
        for at in (large, small):
            await fill(engine, at, 20)
    async with running(data, now_ms=clock) as engine:
        await engine._upkeep.compact()
        opened = {partition.at for partition in engine.open_partitions()}
        assert large in opened and small not in opened
        assert len(await records(engine, large)) < 20


async def test_deleting_a_topic_ends_its_compaction(data: Path, clock: Clock) -> None:
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine, cleanup_policy="compact", segment_bytes="300")
        await fill(engine, at, 60)
        compacting = asyncio.create_task(engine._upkeep.compact())
        await asyncio.sleep(0)
        await engine.delete("t")
        await compacting
        assert not list((data / "topics").glob("t-*"))
        await make_topic(engine)
        assert await engine.bounds(at) == (0, 0, 0)


async def test_the_registry_is_compacted_and_read_back(
    data: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(INTERNAL_SETTINGS, "segment.bytes", "2000")
    async with running(data, now_ms=clock) as engine:
        for _ in range(10):
            for name in ("a", "b", "c"):
                await make_topic(engine, name)
                await engine.delete(name)
        kept = [await make_topic(engine, name, 2) for name in ("x", "y")]
        registry = engine.partition("__levada.topics", 0)
        size = registry.log.size_bytes
        await engine._upkeep.compact()
        assert registry.log.size_bytes < size
        killed = as_killed(data)
    async with running(killed, now_ms=clock) as engine:
        assert [info.name for info in engine.view.all() if not info.internal] == [at.topic for at in kept]


# Checkpoints


async def test_recovery_points_are_saved_when_they_have_moved(data: Path, clock: Clock) -> None:
    file = data / "recovery-point-offset-checkpoint"
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine)
        await fill(engine, at, 3)
        await engine._partitions.checkpoint()
        assert decode_checkpoint(file.read_bytes(), "f")[at] == 3
        written = file.stat().st_mtime_ns
        await engine._partitions.checkpoint()
        assert file.stat().st_mtime_ns == written
        await engine.delete("t")
        await engine._partitions.checkpoint()
        assert at not in decode_checkpoint(file.read_bytes(), "f")


async def test_a_closed_segment_brings_the_next_checkpoint_forward(
    data: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levada.engine.embedded.housekeeping.HURRY_S", 0.001)
    file = data / "recovery-point-offset-checkpoint"
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine, segment_bytes="300")
        await fill(engine, at, 10)
        async with asyncio.timeout(30):
            while not file.exists() or at not in decode_checkpoint(file.read_bytes(), "f"):  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def test_a_topic_made_again_after_a_checkpoint_is_not_taken_for_the_old_one_by_a_crash(
    data: Path, clock: Clock
) -> None:
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine)
        await fill(engine, at, 10)
        await engine._partitions.checkpoint()
        await engine.delete("t")
        await make_topic(engine)
        await fill(engine, at, 2)
        killed = as_killed(data)
    async with running(killed, now_ms=clock) as engine:
        assert await values(engine, at) == [b"0", b"1"]
        await fill(engine, at, 1)


# Forgetting


async def test_idle_producers_are_forgotten(data: Path, clock: Clock) -> None:
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine)
        await engine.append(at, batch_of(b"v", producer=(7, 0, 0)))
        clock.ms += 2 * DAY_MS
        await engine._upkeep.expire_producers()
        assert engine.partition(*at).log.producers.get(7) is None
        assert (await engine.append(at, batch_of(b"v", producer=(7, 0, 5)))).base_offset == 1


async def test_offsets_expire_unless_members_may_still_read(data: Path, clock: Clock) -> None:
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine)
        engine.reads_topic = lambda group, topic: group == "active"
        for group in ("idle", "active", "__levada.own"):
            await engine.commit_offsets(group, {at: Committed(1)})
        clock.ms += 8 * DAY_MS
        await engine._housekeeping.expire_offsets()
        assert {group: bool(await engine.offsets(group)) for group in ("idle", "active", "__levada.own")} == {
            "idle": False,
            "active": True,
            "__levada.own": True,
        }


async def test_a_transaction_that_took_too_long_is_aborted(data: Path, clock: Clock) -> None:
    async with running(data, now_ms=clock) as engine:
        at = await make_topic(engine)
        producer_id, epoch = await engine.transactions.init_producer_id("tx", 1000)
        await engine.transactions.add_partitions("tx", producer_id, epoch, {at})
        batch = Batch(memoryview(batch_of(b"open")))
        batch.stamp_producer(producer_id, epoch, 0, transactional=True)
        await engine.append(at, batch.view)
        clock.ms += 2000
        await engine._housekeeping.end_transactions()
        reader = await engine.read(at, 1, 1000, wait_ms=5000)
        assert reader.bounds.stable_end == reader.bounds.end == 2
        assert await values(engine, at) == [b"open"]
