"""Dedup over a real engine: what is remembered, by whom, for how long, and what becomes of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import structlog

from levada.broker.dedup import Counts, Dedup, saving
from levada.broker.dedup import keeper as keeper_module
from levada.broker.dedup import upkeep as upkeep_module
from levada.engine.embedded import datadir
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import Acks, At, TopicSpec
from levada.engine.settings import Level
from levada.errors import InvalidRecord, Overloaded, StorageFull, UnknownTopic
from levada.log.disk import Disk, File
from levada.records.batch import HEADER_SIZE, Batch, checksum
from support.dedup import START_MS, Clock, batch_with, dedup_over, positions, publish
from support.engines import ScarceDisk, as_killed, running
from support.reading import records, values
from support.simulated_tree import SimulatedTree

AT = At("t", 0)
WINDOW = 60_000


class World:
    """An engine, a dedup over it and their clock."""

    def __init__(self, engine: EmbeddedEngine, dedup: Dedup, clock: Clock) -> None:
        self.engine, self.dedup, self.clock = engine, dedup, clock

    async def create(self, name: str = "t", partitions: int = 1, **settings: str) -> None:
        own = {"levada.dedup": "payload", "levada.dedup.window.ms": str(WINDOW)}
        own |= {key.replace("_", "."): value for key, value in settings.items()}
        await self.engine.create(TopicSpec(name=name, partitions=partitions, settings=own))

    async def publish(self, *given: bytes | None, at: At = AT, **more: object) -> list[tuple[int, int, bool]]:
        return await publish(self.dedup, at, *given, **{"timestamp_ms": self.clock.ms, **more})


@asynccontextmanager
async def world(
    data: Path, *, disk: Disk | None = None, clock: Clock | None = None, topic: dict[str, str] | None = None
) -> AsyncIterator[World]:
    clock = clock or Clock()
    async with running(data, disk=disk, now_ms=clock, topic=topic) as engine:
        dedup = dedup_over(engine)
        dedup.start()
        engine.settings.watch(dedup.settings_changed)
        yield World(engine, dedup, clock)
        await dedup.close()


# What is a repeat


async def test_a_repeat_is_answered_with_the_first_position_and_nothing_is_stored(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        assert await w.publish(b"a", b"b", b"a", b"c") == [(0, 0, False), (0, 1, False), (0, 0, True), (0, 2, False)]
        assert await w.publish(b"c", b"a") == [(0, 2, True), (0, 0, True)]
        assert (await w.engine.bounds(AT)).end == 3
        assert await values(w.engine, AT) == [b"a", b"b", b"c"]
        assert w.dedup.counts() == [Counts("t", 3, 0, 3)]


async def test_records_without_a_payload_or_an_id_are_never_repeats(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.create("u", levada_dedup="id")
        for offset in range(2):
            assert await w.publish(None) == [(0, offset, False)]
            assert await w.publish(b"x", at=At("u", 0)) == [(0, offset, False)]
        assert (await w.publish(b"", b""))[1] == (0, 2, True), "an empty payload is a payload"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_with_holes_the_other_records_keep_offset_time_and_headers(tmp_path: Path, codec: str) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.publish(b"a")
        batch = batch_with(
            [b"x", b"a", b"y", b"x", b"z"], ids=["1", "2", None, "3", "4"], codec=codec, timestamp_ms=START_MS
        )
        stored = await w.dedup.publish(AT, batch, Acks.ALL, dense=False)
        assert {index: first.offset for index, first in stored.repeats.items()} == {1: 0, 3: 1}
        found = (await records(w.engine, AT))[1:]
        assert [(each.offset, each.value, each.timestamp_ms) for each in found] == [
            (1, b"x", START_MS), (3, b"y", START_MS), (5, b"z", START_MS),
        ]  # fmt: skip
        assert [list(each.headers)[-1:] for each in found] == [[("message_id", b"1")], [], [("message_id", b"4")]]


async def test_a_producers_repeat_is_answered_with_the_first_copies_of_what_it_did_not_store(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.publish(b"a")

        async def send() -> list[tuple[int, int, bool]]:
            batch = batch_with([b"a", b"new", b"new"], producer=(7, 0, 0))
            return positions(await w.dedup.publish(AT, batch, Acks.ALL, dense=False), AT)

        assert await send() == [(0, 0, True), (0, 2, False), (0, 2, True)]
        assert await send() == [(0, 0, True), (0, 2, True), (0, 2, True)]
        assert await values(w.engine, AT) == [b"a", b"new"]
        assert w.dedup.counts() == [Counts("t", 2, 0, 2)]
        assert await w.publish(b"a", b"new") == [(0, 0, True), (0, 2, True)]


async def test_the_window_begins_with_the_first_copy_and_repeats_do_not_prolong_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.publish(b"a")
        w.clock.ms += WINDOW - 1
        assert await w.publish(b"a") == [(0, 0, True)]
        w.clock.ms += 1
        assert await w.publish(b"a") == [(0, 1, False)]
        assert await w.publish(b"a") == [(0, 1, True)]


async def test_bytes_that_are_no_records_are_refused_and_not_remembered(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        broken = bytearray(batch_with([b"a", b"b"]).view)
        broken[HEADER_SIZE] += 2  # the first record's length
        checksum(broken)
        with pytest.raises(InvalidRecord):
            await w.dedup.publish(AT, Batch(memoryview(broken)), Acks.ALL, dense=False)
        assert await w.publish(b"a") == [(0, 0, False)]


# Failure and durability


async def test_what_could_not_be_stored_is_not_remembered(tmp_path: Path) -> None:
    disk = ScarceDisk()
    async with world(tmp_path, disk=disk) as w:
        await w.create()
        await w.publish(b"a")
        disk.room = 10
        with pytest.raises(StorageFull):
            await w.publish(b"a", b"b", dense=False)
        assert w.dedup.counts() == [Counts("t", 0, 0, 1)]
        disk.room = 1 << 40
        assert await w.publish(b"b") == [(0, 1, False)]


class _Slow(Disk):
    """Syncs of one file wait until they are let go."""

    def __init__(self) -> None:
        self.held: str | None = None
        self.go = threading.Event()

    def create(self, path: str) -> File:
        return _SlowFile(self, super().create(path))


class _SlowFile(File):
    __slots__ = ("_disk",)

    def __init__(self, disk: _Slow, file: File) -> None:
        self._disk = disk
        self.path, self.size = file.path, file.size
        self._handle, self._nowait = file._handle, file._nowait

    def sync(self) -> None:
        if self._disk.held is not None and self._disk.held in self.path:
            assert self._disk.go.wait(30)
        super().sync()


async def test_a_repeat_is_not_answered_before_its_first_copy_is_durable(tmp_path: Path) -> None:
    disk = _Slow()
    async with world(tmp_path, disk=disk) as w:
        await w.create(partitions=2)
        await w.publish(b"warm")
        disk.held = "/t-0/"
        first = asyncio.ensure_future(w.publish(b"a"))
        await asyncio.sleep(0)
        other = asyncio.ensure_future(w.publish(b"a", b"b", at=At("t", 1)))
        assert await asyncio.wait_for(w.publish(b"c", at=At("t", 1)), 30) == [(1, 1, False)]
        assert not other.done(), "its own partition is durable, the first copy's is not"
        disk.go.set()
        assert await first == [(0, 1, False)]
        assert await other == [(0, 1, True), (1, 0, False)]


# Restarts


async def test_after_a_stop_only_what_came_later_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    rebuild = keeper_module.rebuild

    async def counted(*args: object, **named: object) -> int:
        read.append(await rebuild(*args, **named))  # type: ignore[arg-type]
        return read[-1]

    monkeypatch.setattr(keeper_module, "rebuild", counted)
    clock = Clock()
    async with world(tmp_path / "data", clock=clock) as w:
        await w.create()
        for number in range(20):
            await w.publish(b"%d" % number)
    read.clear()
    async with world(tmp_path / "data", clock=clock) as w:
        assert await w.publish(b"7") == [(0, 7, True)]
        await w.publish(b"new")
        killed = as_killed(tmp_path / "data")
    assert read == [0]
    read.clear()
    async with world(killed, clock=clock) as w:
        assert await w.publish(b"7", b"new") == [(0, 7, True), (0, 20, True)]
    assert read == [1]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
async def test_a_damaged_snapshot_is_rebuilt(tmp_path: Path, damage: str) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.publish(*(b"%d" % number for number in range(50)))
    (snapshot,) = (tmp_path / "dedup").glob("*.payload")
    held = bytearray(snapshot.read_bytes())
    if damage == "flip":
        held[-100] ^= 1
        snapshot.write_bytes(held)
    elif damage == "cut":
        snapshot.write_bytes(held[:-40])
    elif damage == "empty":
        snapshot.write_bytes(b"")
    else:
        for each in (tmp_path / "dedup").iterdir():
            each.unlink()
    async with world(tmp_path) as w:
        assert await w.publish(b"0", b"49", b"50") == [(0, 0, True), (0, 49, True), (0, 50, False)]
        assert w.dedup.counts() == [Counts("t", 2, 0, 51)]


async def test_a_copy_counts_from_when_it_came_whatever_its_timestamp(tmp_path: Path) -> None:
    clock = Clock()
    async with world(tmp_path / "data", clock=clock) as w:
        await w.create()
        await w.publish(b"old", timestamp_ms=5)
        clock.ms += WINDOW // 2
        await w.dedup._keeper.upkeep.sweep()  # type: ignore[union-attr]
        await w.publish(b"ahead", timestamp_ms=clock.ms + 30_000)
        killed = as_killed(tmp_path / "data")
    clock.ms += WINDOW // 2 - 1
    async with world(killed, clock=clock) as w:
        assert await w.publish(b"old", b"ahead") == [(0, 0, True), (0, 1, True)]
        clock.ms += 1
        assert (await w.publish(b"old"))[0][2] is False


async def test_a_window_made_longer_brings_back_what_a_snapshot_had_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    async with world(tmp_path, clock=clock) as w:
        await w.create(levada_dedup_window_ms="100")
        await w.publish(b"a")
        clock.ms += 100
        await w.publish(b"b")
        await w.dedup._keeper.upkeep.sweep()  # type: ignore[union-attr]
    async with world(tmp_path, clock=clock) as w:
        await w.publish(b"c")
        assert w.dedup.counts() == [Counts("t", 0, 0, 2)], "a is past the window"
        await w.engine.alter("t", {"levada.dedup.window.ms": str(WINDOW)})
        assert await w.publish(b"a", b"b", b"c") == [(0, 0, True), (0, 1, True), (0, 2, True)]
        await w.engine.alter("t", {"levada.dedup.window.ms": "100"})
        assert await w.publish(b"a") == [(0, 3, False)], "and a shorter one takes it away"


async def test_what_has_grown_much_is_put_down_while_the_broker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_module, "SNAPSHOT_FROM", 100)
    async with world(tmp_path / "data") as w:
        await w.create()
        await w.publish(*(b"%d" % number for number in range(99)))
        upkeep = w.dedup._keeper.upkeep  # type: ignore[union-attr]
        await upkeep.sweep()
        assert not list((tmp_path / "data" / "dedup").glob("*.payload")), "not yet"
        await w.publish(b"99")
        sweeping = asyncio.ensure_future(upkeep.sweep())
        await asyncio.sleep(0)
        await w.publish(b"meanwhile")
        await sweeping
        assert list((tmp_path / "data" / "dedup").glob("*.payload"))
        killed = as_killed(tmp_path / "data")
    async with world(killed) as w:
        assert await w.publish(b"0", b"99", b"meanwhile", b"new") == [
            (0, 0, True), (0, 99, True), (0, 100, True), (0, 101, False),
        ]  # fmt: skip


async def test_a_snapshot_is_given_up_when_the_table_changes_its_shape_under_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.publish(b"a")
        keeper = w.dedup._keeper
        assert keeper is not None
        await keeper.upkeep.put_all_down()
        (file,) = (tmp_path / "dedup").glob("*.payload")
        before = file.read_bytes()
        saving = asyncio.ensure_future(keeper.upkeep.put_all_down())
        memory = w.dedup.topics["t"].memory
        while not saving.done():
            memory.table.shifts += 1
            await asyncio.sleep(0)
        await saving
        assert file.read_bytes() == before
        assert [each.name for each in (tmp_path / "dedup").glob("*.new")] == []


async def test_a_full_disk_keeps_nobody_from_starting_or_stopping(tmp_path: Path) -> None:
    disk = ScarceDisk()
    async with world(tmp_path, disk=disk) as w:
        await w.create()
        await w.publish(b"a")
        disk.room = 0
    async with world(tmp_path) as w:
        assert await w.publish(b"a") == [(0, 0, True)]


@pytest.mark.parametrize("dense", [False, True])
async def test_the_brokers_time_stays_on_what_is_left(tmp_path: Path, dense: bool) -> None:
    async with world(tmp_path) as w:
        await w.create(message_timestamp_type="LogAppendTime")
        await w.publish(b"a")
        w.clock.ms += 50
        await w.publish(b"a", b"b", dense=dense, timestamp_ms=5)
        found = (await records(w.engine, AT))[-1]
        assert (found.value, found.timestamp_ms) == (b"b", START_MS + 50)


# Forgetting


async def test_a_sweep_forgets_what_is_past_the_window(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.publish(b"a", b"b")
        w.clock.ms += WINDOW - 1
        await w.publish(b"c")
        w.clock.ms += 1
        await w.dedup._keeper.upkeep.sweep()  # type: ignore[union-attr]
        assert w.dedup.counts() == [Counts("t", 0, 2, 1)]


async def test_when_more_came_than_are_remembered_the_oldest_are_forgotten_and_somebody_is_told(tmp_path: Path) -> None:
    def names(number: int) -> list[bytes]:
        return [b"%d-%d" % (number, each) for each in range(100)]

    async with world(tmp_path / "data") as w:
        await w.create(levada_dedup_entries_max="1000")
        for number in range(50):
            w.clock.ms += 1
            await w.publish(*names(number))
        (counts,) = w.dedup.counts()
        assert counts.entries <= 1000 and counts.evicted >= 4000 and counts.swept == 0
        assert all(repeat for _, _, repeat in await w.publish(*names(44), *names(49)))
        assert not any(repeat for _, _, repeat in await w.publish(*names(0)))
        assert w.dedup._keeper is not None
        with structlog.testing.capture_logs() as lines:
            for _ in range(2):
                await w.dedup._keeper.upkeep.sweep()
        [line] = [each for each in lines if "entries.max" in each["event"]]
        assert (line["topics"], line["entries_max"], line["window_ms"]) == (["t"], 1000, WINDOW)
        await w.engine.alter("t", {"levada.dedup.entries.max": "100000"})
        for number in range(100, 130):
            w.clock.ms += 1
            await w.publish(*names(number))
        assert w.dedup.counts()[0].entries > 3000
        await w.engine.alter("t", {"levada.dedup.entries.max": "1000"})
        killed = as_killed(tmp_path / "data")
    async with world(killed, clock=w.clock) as w:
        assert all(repeat for _, _, repeat in await w.publish(*names(129)))
        assert w.dedup.counts()[0].entries <= 1000


async def test_a_topic_made_anew_remembers_nothing_of_the_old_one(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        for scope in ("topic", "broker"):
            await w.create(levada_dedup_scope=scope)
            assert await w.publish(b"a") == [(0, 0, False)]
            await w.engine.delete("t")
        with pytest.raises(UnknownTopic):
            await w.dedup.open("t")
    left = {each.suffix for each in (tmp_path / "dedup").iterdir()}
    assert left <= {".payload"}, "nothing of the deleted topics but what topics share"


async def test_settings_take_effect_as_they_change(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.publish(b"a", ids=["1"])
        await w.engine.alter("t", {"levada.dedup": "id"})
        assert await w.publish(b"a", ids=["2"]) == [(0, 1, False)]
        assert await w.publish(b"b", ids=["1"]) == [(0, 0, True)], "told by its id, also of what came before"
        await w.engine.alter("t", {"levada.dedup": None})
        assert not w.dedup.active("t")
        assert await w.publish(b"c", ids=["1"]) == [(0, 2, False)]
        await w.engine.alter("t", {"levada.dedup": "payload", "levada.dedup.window.ms": "10"})
        w.clock.ms += 10
        assert await w.publish(b"c") == [(0, 3, False)]
        await w.engine.alter("t", {"levada.dedup.window.ms": str(WINDOW)})
        again = await w.publish(b"b", b"c", b"a")
        assert again == [(0, 4, False), (0, 3, True), (0, 0, True)], "what the log still holds counts again"


async def test_partitions_that_come_later_are_screened_with_the_others(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.publish(b"a")
        await w.engine.expand("t", 3)
        assert await w.publish(b"a", b"b", at=At("t", 2)) == [(0, 0, True), (2, 0, False)]
        assert await w.publish(b"b") == [(2, 0, True)]


async def test_topics_of_one_scope_know_of_each_other_from_the_start(tmp_path: Path) -> None:
    async with world(tmp_path / "data") as w:
        await w.create(levada_dedup_scope="broker")
        await w.create("u", levada_dedup_scope="broker")
        await w.publish(b"a")
        killed = as_killed(tmp_path / "data")
    async with world(killed) as w:
        assert await w.publish(b"a", at=At("u", 0)) == [(0, 0, True)]
        assert w.dedup.counts()[-1].topic == "*"


async def test_concurrent_copies_meet(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create(partitions=3)
        answers = await asyncio.gather(*(w.publish(b"a", at=At("t", number % 3)) for number in range(100)))
        assert sorted(repeat for ((_, _, repeat),) in answers) == [False] + [True] * 99
        assert len({(partition, offset) for ((partition, offset, _),) in answers}) == 1


async def test_nobody_waits_for_ever_when_the_topic_goes_while_its_memory_is_loaded(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        publishing = asyncio.ensure_future(w.publish(b"a"))
        await asyncio.sleep(0)
        await w.engine.delete("t")
        with pytest.raises(UnknownTopic):
            await asyncio.wait_for(publishing, 60)


async def test_what_the_broker_keeps_for_itself_is_never_screened(tmp_path: Path) -> None:
    async with world(tmp_path, topic={"levada.dedup": "payload"}) as w:
        await w.engine.create(TopicSpec(name="t", partitions=1))
        assert w.dedup.active("t")
        assert not w.dedup.active("__levada.topics")
        assert (await publish(w.dedup, AT, b"a"))[0][:2] == (0, 0)
        assert positions(await w.dedup.publish(AT, batch_with([b"a"]), Acks.ALL, dense=True), AT) == [(0, 0, True)]


# Settings that are parsed anew


@pytest.mark.parametrize("forget", ["setting", "evicted"])
async def test_settings_that_are_parsed_anew_and_equal_change_nothing(tmp_path: Path, forget: str) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.publish(b"a")
        before = w.engine.config_of("t")
        if forget == "setting":
            await w.engine.alter_broker(Level.BROKER, {"group.max.session.timeout.ms": "600000"})
        else:
            w.engine._configs.defaults_changed()
        assert w.engine.config_of("t") is not before
        await w.dedup.open("t")
        async with asyncio.timeout(30):
            assert await w.publish(b"a", b"b") == [(0, 0, True), (0, 1, False)]
        assert w.dedup.ready(w.engine.partition("t", 0))


async def test_settings_that_never_come_to_rest_are_refused_and_hold_nobody_up(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create()
        await w.publish(b"a")
        partition = w.engine.partition("t", 0)
        partition.config = replace(partition.config, dedup_window_ms=1)  # what the registry does not say
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(other())
        with pytest.raises(Overloaded, match="topic t"):
            await w.publish(b"a")
        beside.cancel()
        assert turns > 2


async def test_a_topic_that_is_at_hand_is_not_opened_again_for_every_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as w:
        await w.create(levada_dedup_scope="broker")
        await w.publish(b"a")
        opened = []
        monkeypatch.setattr(w.dedup, "open", opened.append)
        await w.dedup.at_hand(AT)
        assert await w.publish(b"b") == [(0, 1, False)]
        assert not opened


async def test_a_topic_that_comes_to_share_a_memory_is_read_before_others_are_screened(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.create(levada_dedup_scope="broker")
        await w.create("u", levada_dedup="off")
        await w.publish(b"a")
        await w.engine.append(At("u", 0), batch_with([b"b"]).view)
        await w.engine.alter("u", {"levada.dedup": "payload", "levada.dedup.scope": "broker"})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        w.dedup.settings_changed()
        assert await w.publish(b"b") == [(0, 0, True)]
        assert (await w.engine.bounds(AT)).end == 1


# Power


class _Worst(Random):
    """Of what was not synced, nothing is there any more."""

    def random(self) -> float:
        return 0.999

    def choice(self, seq: Any) -> Any:
        return seq[0]


async def test_what_a_power_cut_took_does_not_count_as_seen_once_the_log_has_grown_past_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree, data, clock = SimulatedTree(), Path("/data"), Clock()
    async with world(data, disk=tree, clock=clock) as w:
        await w.create(levada_durability="os")
        await w.publish(b"0")
        waiting = w.engine.partition("t", 0).when_synced(1)
        assert waiting is not None
        await waiting
        await w.publish(b"lost", b"too")
        assert w.dedup._keeper is not None
        [key] = w.dedup._keeper.memories
        await w.dedup._keeper.upkeep._save(key)
        tree.fsync_dir(str(data))  # the snapshots' directory is older than this
        cut = tree.fork()
    cut.crash(_Worst(1))
    monkeypatch.setattr(datadir, "boot_id", lambda: "another")
    async with world(data, disk=cut, clock=clock) as w:
        await w.publish(b"1", b"2", b"3", b"4", b"5")
        killed = cut.fork()
    async with world(data, disk=killed, clock=clock) as w:
        await w.publish(b"lost")
        assert (await values(w.engine, AT)).count(b"lost") == 1


async def test_times_that_were_noted_before_a_power_cut_do_not_speak_of_what_came_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the disk would not take newer notes since."""
    tree, data, clock = SimulatedTree(), Path("/data"), Clock()
    async with world(data, disk=tree, clock=clock) as w:
        await w.create(levada_durability="os")
        await w.publish(b"lost", b"too", b"perhaps")
        assert w.dedup._keeper is not None
        await w.dedup._keeper.upkeep.sweep()
        tree.fsync_dir(str(data))
        cut = tree.fork()
    cut.crash(_Worst(1))
    monkeypatch.setattr(datadir, "boot_id", lambda: "another")

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    clock.ms += WINDOW * 2 // 3
    with monkeypatch.context() as patched:
        patched.setattr(saving, "save_marks", full)
        async with world(data, disk=cut, clock=clock) as w:
            ((_, offset, _),) = await w.publish(b"late")
            killed = cut.fork()
    clock.ms += WINDOW // 2
    async with world(data, disk=killed, clock=clock) as w:
        assert await w.publish(b"late") == [(0, offset, True)]
