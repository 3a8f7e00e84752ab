"""What the embedded engine does beyond the port: directories, crashes, damage, full and failing disks."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from levada.engine.embedded import partition_metadata
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import At, Committed, Isolation, TopicSpec, Write
from levada.errors import (
    DamagedLog,
    DataInUse,
    PolicyViolation,
    ShuttingDown,
    StorageFailed,
    StorageFull,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from levada.log.disk import Disk
from levada.records.batch import Batch, batches
from levada.records.read import read_all
from support.engines import FailingDisk, ScarceDisk, as_killed, forbid_syncs_here, make_topic, running
from support.reading import batch_of, records, values

COMMITTED = Isolation.READ_COMMITTED


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def log_file(data: Path, at: At) -> Path:
    return max((data / "topics" / str(at)).glob("*.log"))


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)


# Directories


async def test_a_topic_costs_no_directory_until_it_is_used(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine, partitions=3)
        assert not list((data / "topics").glob("t-*"))
        await engine.append(at, batch_of(b"v"))
        assert [path.name for path in (data / "topics").glob("t-*")] == ["t-0"]
        info = engine.view.get("t")
        assert info is not None
        assert partition_metadata.read(Disk(), data / "topics" / "t-0") == info.id


async def test_a_deleted_topic_leaves_no_file(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine, partitions=2)
        await engine.append(at, batch_of(b"v"))
        await engine.append(At("t", 1), batch_of(b"v"))
        before = engine.view.get("t")
        await engine.delete("t")
        assert not list((data / "topics").glob("t-*"))
        assert not list((data / "topics").glob("*-delete"))
        await make_topic(engine)
        await engine.append(at, batch_of(b"new"))
        after = engine.view.get("t")
        assert before is not None and after is not None and before.id != after.id
        assert partition_metadata.read(Disk(), data / "topics" / "t-0") == after.id


async def test_a_directory_is_opened_once(data: Path) -> None:
    async with running(data):
        with pytest.raises(DataInUse, match="process"):
            async with running(data):
                pass
    async with running(data):
        pass


async def test_a_partition_is_found_by_the_topics_id(data: Path) -> None:
    async with running(data) as engine:
        await make_topic(engine)
        info = engine.view.get("t")
        assert info is not None
        assert engine.partition_by_id(info.id, 0) is engine.partition("t", 0)
        await engine.delete("t")
        with pytest.raises(UnknownTopicId):
            engine.partition_by_id(info.id, 0)


async def test_the_registry_is_a_topic_and_stays(data: Path) -> None:
    async with running(data) as engine:
        await make_topic(engine, "orders", retention_ms="5")
        names = [record.key for record in await records(engine, At("__levada.topics", 0))]
        assert names == [b"orders"]
        own = engine.view.get("__levada.topics")
        for refused in (
            engine.delete("__levada.topics"),
            engine.expand("__levada.topics", 2),
            engine.alter("__levada.topics", {"retention.ms": "1"}),
        ):
            with pytest.raises(PolicyViolation):
                await refused
        with pytest.raises(TopicExists):
            await make_topic(engine, "__levada.topics")
        with pytest.raises(PolicyViolation):
            await make_topic(engine, "__consumer_offsets", partitions=50)
    async with running(data) as engine:
        assert engine.view.get("__levada.topics") == own


async def test_internal_topics_are_made_when_they_are_first_written(data: Path) -> None:
    async with running(data) as engine:
        assert engine.view.get("__consumer_offsets") is None
        at = await make_topic(engine)
        await engine.commit_offsets("g", {at: Committed(1)})
        made = engine.view.get("__consumer_offsets")
        assert made is not None and made.internal and made.partitions == 1
        killed = as_killed(data)
    async with running(killed) as engine:
        assert engine.view.get("__consumer_offsets") == made
        assert (await engine.offsets("g"))[at].offset == 1


async def test_the_brokers_defaults_hold_where_a_topic_has_no_setting(data: Path) -> None:
    async with running(data, topic={"max.message.bytes": "500", "levada.durability": "os"}) as engine:
        await make_topic(engine, "plain")
        await make_topic(engine, "own", max_message_bytes="700")
        assert engine.config_of("plain").max_message_bytes == 500
        assert engine.config_of("own").max_message_bytes == 700
        assert engine.config_of("own").durability.mode == "os"
        with pytest.raises(UnknownTopic):
            engine.config_of("missing")


@pytest.mark.parametrize("default", ["os", "interval:1000"])
async def test_topics_and_transactions_are_synced_whatever_the_default(data: Path, default: str) -> None:
    async with running(data, topic={"levada.durability": default}) as engine:
        at = await make_topic(engine)
        await engine.commit_offsets("g", {at: Committed(1)})
        async with engine.own("shard") as owner:
            await engine.transact(owner, [Write(at, bytes(batch_of(b"v")))])
        assert engine.config_of("__levada.topics").durability.mode == "fsync"
        assert engine.config_of("__transaction_state").durability.mode == "fsync"
        assert engine.config_of("__consumer_offsets").durability.mode == default.split(":")[0]
        for value in ("os", None):
            with pytest.raises(PolicyViolation, match=r"levada\.durability"):
                await engine.alter("__transaction_state", {"levada.durability": value})


# Callers that go away, and closing


async def test_a_topic_is_made_also_when_the_caller_has_gone(data: Path) -> None:
    async with running(data) as engine:
        task = asyncio.create_task(engine.create(TopicSpec(name="t", partitions=1)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with running(data) as engine:
        assert engine.view.get("t") is not None


async def test_a_closed_engine_refuses(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine)
        partition = engine.partition("t", 0)
        reader = asyncio.create_task(engine.read(at, 0, 1000, wait_ms=30_000))
        await asyncio.sleep(0.01)
    with pytest.raises(ShuttingDown):
        await reader
    with pytest.raises(ShuttingDown):
        partition.append(Batch(memoryview(batch_of(b"v"))))
    with pytest.raises(ShuttingDown):
        engine.partition("t", 0)


async def test_appends_in_flight_are_acknowledged_before_the_engine_closes(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine)
        appends = [asyncio.create_task(engine.append(at, batch_of(b"%d" % number))) for number in range(20)]
        await asyncio.sleep(0)
    assert [appended.durable for appended in await asyncio.gather(*appends)] == [True] * 20


# After kill −9


async def test_everything_acknowledged_is_there_after_a_kill(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine, segment_bytes="1000")
        await make_topic(engine, "empty", partitions=6)
        for number in range(30):
            await engine.append(at, batch_of(b"%d" % number * 10, producer=(1, 0, number)))
        await engine.commit_offsets("g", {at: Committed(7)})
        expected = await records(engine, at)
        killed = as_killed(data)
    async with running(killed) as engine:
        empty = engine.view.get("empty")
        assert empty is not None and empty.partitions == 6
        assert await records(engine, at) == expected
        assert (await engine.offsets("g"))[at].offset == 7
        assert (await engine.append(at, batch_of(b"29" * 10, producer=(1, 0, 29)))).duplicate
        assert (await engine.append(at, batch_of(b"30", producer=(1, 0, 30)))).base_offset == 30


async def test_the_leader_epoch_grows_with_every_kill_and_is_stamped(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine)
        await engine.append(at, batch_of(b"0"))
        killed = as_killed(data)
    async with running(killed) as engine:
        assert engine.broker_epoch == engine.partition("t", 0).leader_epoch == 1
        await engine.append(at, batch_of(b"1"))
        slice_ = await engine.read(at, 0, 10_000)
        assert [batch.leader_epoch for batch in batches(slice_.batches)] == [0, 1]
    async with running(killed) as engine:
        assert engine.broker_epoch == 1


async def test_a_torn_last_batch_is_cut(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine)
        for number in range(3):
            await engine.append(at, batch_of(b"%d" % number))
        killed = as_killed(data)
    file = log_file(killed, at)
    file.write_bytes(file.read_bytes()[:-5])
    async with running(killed) as engine:
        assert await values(engine, at) == [b"0", b"1"]
        assert (await engine.append(at, batch_of(b"again"))).base_offset == 2


async def test_a_transaction_that_a_kill_cut_short_is_never_seen(data: Path) -> None:
    async with running(data) as engine:
        await make_topic(engine, partitions=2)
        first, second = At("t", 0), At("t", 1)
        producer_id, epoch = await engine.transactions.init_producer_id("tx", 60_000)
        await engine.transactions.add_partitions("tx", producer_id, epoch, {first, second})
        for at in (first, second):
            batch = Batch(memoryview(batch_of(b"open")))
            batch.stamp_producer(producer_id, epoch, 0, transactional=True)
            await engine.append(at, batch.view)
        assert (await engine.bounds(first)).stable_end == 0
        killed = as_killed(data)
        await engine.transactions.end("tx", producer_id, epoch, False)
    async with running(killed) as engine:
        assert await values(engine, first, isolation=COMMITTED) == []
        assert await values(engine, first) == [b"open"]
        await engine.transactions.init_producer_id("tx", 60_000)
        for at in (first, second):
            assert await values(engine, at, isolation=COMMITTED) == []
            bounds = await engine.bounds(at)
            assert bounds.stable_end == bounds.end
        async with engine.own("shard") as owner:
            await engine.transact(owner, [Write(at, bytes(batch_of(b"after"))) for at in (first, second)])
        assert await values(engine, second, isolation=COMMITTED) == [b"after"]


async def test_partitions_with_much_to_verify_are_opened_before_the_engine_serves(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(data) as engine:
        large, small = await make_topic(engine, "large"), await make_topic(engine, "small")
        await engine.append(large, batch_of(b"x" * 10_000))
        await engine.append(small, batch_of(b"x"))
        killed = as_killed(data)
    monkeypatch.setattr("levada.engine.embedded.partitions.EAGER_BYTES", 5_000)
    async with running(killed) as engine:
        opened = {partition.at for partition in engine.open_partitions()}
        assert large in opened and small not in opened
        assert await values(engine, small) == [b"x"]


async def test_after_a_kill_partitions_are_brought_in_order_off_the_loop(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(data) as engine:
        await make_topic(engine, partitions=12)
        ats = [At("t", index) for index in range(12)]
        for at in ats:
            await engine.append(at, batch_of(str(at).encode()))
        killed = as_killed(data)
    async with running(killed) as engine:
        assert not {partition.at for partition in engine.open_partitions()} & set(ats)
        forbid_syncs_here(monkeypatch)
        for at in ats:
            engine.partition(*at)
            assert await values(engine, at) == [str(at).encode()]


@pytest.mark.parametrize("delete", [False, True])
async def test_a_partition_that_is_used_while_it_is_brought_in_order_is_opened_once(
    data: Path, delete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levada.engine.embedded.partitions.RECOVERY_WAIT_S", 0.002)
    async with running(data) as engine:
        await make_topic(engine, partitions=40)
        ats = [At("t", index) for index in range(40)]
        await asyncio.gather(*(engine.append(at, batch_of(b"before")) for at in ats))
        killed = as_killed(data)
    async with running(killed) as engine:
        if delete:
            await engine.delete("t")
            await make_topic(engine, partitions=40)
        for at in ats:
            await engine.append(at, batch_of(b"after"))
        for at in ats:
            assert await values(engine, at) == ([b"after"] if delete else [b"before", b"after"])
    async with running(killed) as engine:
        for at in ats:
            assert await values(engine, at) == ([b"after"] if delete else [b"before", b"after"])


# Deletions cut short


async def killed_while_deleting(data: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A topic with records and offsets, whose deletion was cut short by a kill at this step."""
    async with running(data) as engine:
        at = await make_topic(engine)
        await make_topic(engine, "kept")
        await engine.append(at, batch_of(b"old"))
        await engine.append(At("kept", 0), batch_of(b"kept"))
        await engine.commit_offsets("g", {at: Committed(1), At("kept", 0): Committed(2)})
        copies: list[Path] = []
        step_itself = getattr(Disk, step)

        def killed_here(self: Disk, path: str, *rest: str) -> None:
            if "topics/t-0" in path or path.endswith("-delete"):
                copies.append(as_killed(data))
            step_itself(self, path, *rest)

        with monkeypatch.context() as patched:
            patched.setattr(Disk, step, killed_here)
            await engine.delete("t")
    assert copies
    return copies[0]


@pytest.mark.parametrize("step", ["rename", "remove_tree"])
async def test_a_deletion_that_a_kill_cut_short_is_finished(
    data: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = await killed_while_deleting(data, step, monkeypatch)
    async with running(killed) as engine:
        assert engine.view.get("t") is None
        assert not list((killed / "topics").glob("t-*"))
        assert not list((killed / "topics").glob("*-delete"))
        assert set(await engine.offsets("g")) == {At("kept", 0)}
        assert await values(engine, At("kept", 0)) == [b"kept"]
        at = await make_topic(engine)
        assert await engine.bounds(at) == (0, 0, 0)


async def test_a_directory_of_no_topic_is_left_alone_and_not_taken_over(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine)
        await engine.append(at, batch_of(b"v"))
        killed = as_killed(data)
    stray = killed / "topics" / "stray-0"
    shutil.copytree(killed / "topics" / "t-0", stray)
    (stray / "partition.metadata").unlink()
    async with running(killed) as engine:
        assert list(stray.glob("*.log"))
        with pytest.raises(StorageFailed, match="belongs to no topic; move it away"):
            await make_topic(engine, "stray")


async def test_a_directory_of_a_topic_that_nobody_deleted_is_put_aside_and_kept(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine)
        await engine.append(at, batch_of(b"v"))
        killed = as_killed(data)
    ghost = killed / "topics" / "ghost-0"
    shutil.copytree(killed / "topics" / "t-0", ghost)
    topic_id = uuid4()
    (ghost / partition_metadata.FILE).write_bytes(partition_metadata.encode(topic_id))
    with capture_logs() as logs:
        async with running(killed) as engine:
            assert await values(engine, at) == [b"v"]
            assert await values(engine, await make_topic(engine, "ghost")) == []
        async with running(killed) as engine:
            aside = killed / "topics" / f"ghost-0.{topic_id.hex}.unknown"
            assert list(aside.glob("*.log"))
    assert [log["directory"] for log in logs if log["event"].endswith("put aside")] == [str(ghost)]


async def test_a_directory_of_an_older_topic_of_the_same_name_is_put_aside(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine)
        await engine.append(at, batch_of(b"old"))
        shutil.copytree(data / "topics" / "t-0", data / "old")
        await engine.delete("t")
        await make_topic(engine)
        shutil.copytree(data / "old", data / "topics" / "t-0")
        assert await values(engine, at) == []
        await engine.append(at, batch_of(b"new"))
        assert await values(engine, at) == [b"new"]


async def test_a_lost_metadata_file_is_written_again(data: Path) -> None:
    async with running(data) as engine:
        at = await make_topic(engine)
        await engine.append(at, batch_of(b"v"))
    (data / "topics" / "t-0" / "partition.metadata").write_bytes(b"")
    async with running(data) as engine:
        assert await values(engine, at) == [b"v"]
        info = engine.view.get("t")
        assert info is not None
        assert partition_metadata.read(Disk(), data / "topics" / "t-0") == info.id


# Damage


async def damaged_directory(data: Path, *, kill: bool) -> tuple[Path, At, At]:
    """Ten batches in two topics; a byte of the fifth batch of the first is flipped."""
    async with running(data) as engine:
        damaged, sound = await make_topic(engine, "damaged"), await make_topic(engine, "sound")
        for number in range(10):
            await engine.append(damaged, batch_of(b"%d" % number * 50))
            await engine.append(sound, batch_of(b"%d" % number))
        size = log_file(data, damaged).stat().st_size // 10
        if kill:
            data = as_killed(data)
    flip(log_file(data, damaged), 4 * size + 80)
    return data, damaged, sound


async def assert_damage_is_kept_apart(engine: EmbeddedEngine, damaged: At, sound: At) -> None:
    assert [value[:1] for value in await read_up_to_damage(engine, damaged) if value] == [b"0", b"1", b"2", b"3"]
    with pytest.raises(DamagedLog) as refused:
        await engine.append(damaged, batch_of(b"v"))
    assert refused.value.file.endswith(".log") and refused.value.position > 0
    assert engine.partition(*damaged).damage is not None
    assert (await values(engine, sound))[:10] == [b"%d" % number for number in range(10)]
    await engine.append(sound, batch_of(b"v"))


async def read_up_to_damage(engine: EmbeddedEngine, at: At) -> list[bytes | None]:
    found: list[bytes | None] = []
    with pytest.raises(DamagedLog):
        while True:
            slice_ = await engine.read(at, len(found), 1)
            found += [record.value for record in read_all(slice_.batches)]
    return found


@pytest.mark.parametrize("kill", [True, False])
async def test_a_flipped_byte_is_reported_and_harms_no_other_partition(data: Path, kill: bool) -> None:
    data, damaged, sound = await damaged_directory(data, kill=kill)
    with capture_logs() as logs:
        async with running(data) as engine:
            await read_up_to_damage(engine, damaged)
            await assert_damage_is_kept_apart(engine, damaged, sound)
    reports = [line for line in logs if line["event"] == "log damaged"]
    assert [(Path(line["file"]).parent.name, line["position"] > 0) for line in reports] == [("damaged-0", True)]
    async with running(data) as engine:
        await assert_damage_is_kept_apart(engine, damaged, sound)


async def test_damage_is_found_after_a_clean_start_without_a_reader(data: Path) -> None:
    data, damaged, sound = await damaged_directory(data, kill=False)
    async with running(data) as engine:
        async with asyncio.timeout(60):
            assert engine._scrubbing is not None
            await asyncio.wait([engine._scrubbing])
        opened = {partition.at: partition for partition in engine.open_partitions()}
        assert opened[damaged].damage is not None
        assert sound not in opened


async def test_a_damaged_registry_keeps_the_topics_it_still_names_and_deletes_nothing(data: Path) -> None:
    async with running(data) as engine:
        for name in ("first", "second", "third"):
            await engine.append(await make_topic(engine, name), batch_of(b"v"))
        killed = as_killed(data)
    flip(log_file(killed, At("__levada.topics", 0)), 300)
    async with running(killed) as engine:
        assert await values(engine, At("first", 0)) == [b"v"]
        assert engine.view.get("third") is None
        with pytest.raises(DamagedLog):
            await make_topic(engine, "fourth")
        assert (killed / "topics" / "third-0").exists()


# Full disk


async def test_a_full_disk_refuses_writes_and_serves_reads_until_there_is_room(data: Path) -> None:
    disk = ScarceDisk()
    async with running(data, disk=disk) as engine:
        at = await make_topic(engine)
        for number in range(5):
            await engine.append(at, batch_of(b"%d" % number * 100))
        disk.room = 50
        for _ in range(3):
            with pytest.raises(StorageFull, match="no room"):
                await engine.append(at, batch_of(b"x" * 100))
        with pytest.raises(StorageFull):
            await make_topic(engine, "another")
        with pytest.raises(StorageFull):
            await engine.commit_offsets("g", {at: Committed(1)})
        assert engine.view.get("another") is None
        assert await engine.offsets("g") == {}
        assert len(await values(engine, at)) == 5
        disk.room = 1 << 30
        assert (await engine.append(at, batch_of(b"more"))).base_offset == 5
        await make_topic(engine, "another")
        await engine.commit_offsets("g", {at: Committed(2)})
        killed = as_killed(data)
    async with running(killed) as engine:
        assert len(await values(engine, at)) == 6
        assert engine.view.get("another") is not None
        assert (await engine.offsets("g"))[at].offset == 2


async def test_a_partition_that_cannot_be_made_for_want_of_room_can_be_later(data: Path) -> None:
    disk = ScarceDisk()
    async with running(data, disk=disk) as engine:
        at = await make_topic(engine)
        disk.room = 0
        with pytest.raises(StorageFull):
            await engine.append(at, batch_of(b"v"))
        disk.room = 1 << 30
        await engine.append(at, batch_of(b"v"))
        assert await values(engine, at) == [b"v"]


async def test_a_topic_can_be_deleted_to_make_room(data: Path) -> None:
    disk = ScarceDisk()
    async with running(data, disk=disk) as engine:
        at = await make_topic(engine)
        for _ in range(10):
            await engine.append(at, batch_of(b"x" * 100))
        await engine._partitions.checkpoint()
        disk.room = 200  # enough for the record of the deletion, not for a checkpoint
        await engine.delete("t")
        assert not list((data / "topics").glob("t-*"))
        disk.room = 1 << 30
        await make_topic(engine)
        await engine.append(at, batch_of(b"new"))
        killed = as_killed(data)
    async with running(killed) as engine:
        assert await values(engine, at) == [b"new"]


async def test_a_stop_without_room_loses_nothing(data: Path) -> None:
    disk = ScarceDisk()
    async with running(data, disk=disk) as engine:
        at = await make_topic(engine)
        for number in range(3):
            await engine.append(at, batch_of(b"%d" % number))
        disk.room = 0
    async with running(data) as engine:
        assert engine.broker_epoch == 1
        assert await values(engine, at) == [b"0", b"1", b"2"]


async def test_an_engine_that_cannot_start_lets_go_of_the_directory(data: Path) -> None:
    async with running(data) as engine:
        await make_topic(engine)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("levada.engine.embedded.topics.Topics.load", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await EmbeddedEngine.open(data, engine.config)
    async with running(data) as engine:
        assert engine.view.get("t") is not None


# Failing disk


async def test_a_failed_sync_ends_writing_to_that_partition_alone(data: Path) -> None:
    disk = FailingDisk()
    async with running(data, disk=disk) as engine:
        broken, sound = await make_topic(engine, "broken"), await make_topic(engine, "sound")
        await engine.append(broken, batch_of(b"before"))
        disk.broken = "broken-0"
        with pytest.raises(StorageFailed):
            await engine.append(broken, batch_of(b"lost"))
        disk.broken = None
        with pytest.raises(StorageFailed):
            await engine.append(broken, batch_of(b"refused"))
        assert await values(engine, broken) == [b"before"]
        await engine.append(sound, batch_of(b"v"))
    async with running(data) as engine:
        assert (await values(engine, broken))[0] == b"before"
        await engine.append(broken, batch_of(b"after"))
        assert (await values(engine, broken))[-1] == b"after"


async def test_the_end_of_a_partition_that_was_closed_well_is_known_without_opening_it(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        at = await make_topic(engine, "t", 3)
        for _ in range(3):
            await engine.append(at, batch_of(b"x"))
        assert engine.end_of(at) == 3
        killed = as_killed(tmp_path / "data")
    async with running(tmp_path / "data") as engine:
        opened = len(engine.open_partitions())
        assert engine.end_of(at) == 3
        assert len(engine.open_partitions()) == opened
        assert engine.end_of(At("t", 2)) == 0
        for unknown, error in ((At("t", 3), UnknownPartition), (At("u", 0), UnknownTopic)):
            with pytest.raises(error):
                engine.end_of(unknown)
        await engine.append(at, batch_of(b"x"))
        assert engine.end_of(at) == 4
    async with running(killed) as engine:
        assert engine.end_of(at) == 3
