"""An archiver over a real broker and real tables, with no JVM: what it promises whatever happens, and when it is killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from levada.engine.names import ARCHIVE_GROUP
from levada.spark.archive.archiver import Archiver
from levada.spark.archive.keeping import Keeping
from levada.spark.archive.pipelines import ArchivePipelines
from levada.spark.archive.planning import Limits, TailCut
from levada.spark.archive.running import Archiving, tidy
from levada.spark.archive.status import stands
from levada.spark.archive.table import ArchiveTable, Whose, WrongTable
from levada.spark.archive.wanted import Archive
from levada.spark.batch import BatchReader
from levada.spark.losses import DELETED, REPLACED, DataLost, Lost, lost_in
from levada.spark.options.cluster import Cluster
from levada.spark.options.source import SourceOptions
from levada.spark.stream import StreamReader
from levada.wire.apis import ApiKey
from support.archives import (
    EAGER,
    IMPATIENT,
    OLD_MS,
    NoSpark,
    archive_all,
    cluster_of,
    fill,
    lag,
    make_archived,
    starts,
)
from support.levada import COMMAND, LevadaBroker
from support.wait import wait_until

Make = Callable[..., Archive]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LevadaBroker]:
    with LevadaBroker(tmp_path_factory.mktemp("archived"), IMPATIENT) as running:
        yield running


@pytest.fixture
def cluster(broker: LevadaBroker) -> Cluster:
    return cluster_of(broker.bootstrap)


@pytest.fixture
def make(cluster: Cluster, tmp_path: Path) -> Make:
    """A topic that is archived: partitions, and settings with `_` for `.`."""
    return partial(make_archived, cluster, tmp_path / "lake")


def archived(archive: Archive) -> list[tuple[int, int, int]]:
    """Partition, offset and number of every row."""
    rows = pl.scan_delta(archive.place).select("partition", "offset", "value").sort("partition", "offset").collect()
    return [(partition, offset, int(value)) for partition, offset, value in rows.rows()]


def expected(count: int, partitions: int) -> list[tuple[int, int, int]]:
    return sorted((number % partitions, number // partitions, number) for number in range(count))


def committed(cluster: Cluster, archive: Archive) -> dict[int, tuple[int, str]]:
    with cluster.client() as client:
        found = client.offset_fetch(ARCHIVE_GROUP)
    return {at.partition: (one.offset, one.metadata) for at, one in found.items() if at.topic == archive.topic}


def test_what_is_archived_is_committed_and_retention_goes_on(cluster: Cluster, make: Make) -> None:
    archive = make(2)
    fill(cluster, archive.topic, 0, 1000, 2)
    archive_all(NoSpark(), cluster, archive)
    assert archived(archive) == expected(1000, 2)
    assert committed(cluster, archive) == {0: (500, archive.place), 1: (500, archive.place)}
    wait_until(lambda: starts(cluster, archive.topic) == [500, 500], 30, "retention does not go on")


def test_a_copy_that_somebody_keeps_elsewhere_says_nothing_to_the_topics_retention(
    cluster: Cluster, make: Make, tmp_path: Path
) -> None:
    archive = make(1, retention_ms="-1")
    fill(cluster, archive.topic, 0, 100, 1)
    archive_all(NoSpark(), cluster, archive)
    elsewhere = archive._replace(place=str(tmp_path / "copy"))
    archive_all(NoSpark(), cluster, elsewhere)
    assert archived(elsewhere) == archived(archive) == expected(100, 1)
    assert committed(cluster, archive) == {0: (100, archive.place)}
    with cluster.client() as client:
        client.alter_configs(archive.topic, {"levada.archive": None})
    archive_all(NoSpark(), cluster, elsewhere)
    assert committed(cluster, archive) == {0: (100, elsewhere.place)}, "there is no other"


def test_an_offset_that_somebody_moved_is_set_right_again(
    cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make(1, retention_ms="-1")
    fill(cluster, archive.topic, 0, 100, 1)
    with cluster.client() as client:
        archiver = Archiver(NoSpark(), cluster, client, archive, EAGER.limits)  # type: ignore[arg-type]
        assert archiver.step()
        client.offset_commit(ARCHIVE_GROUP, {(archive.topic, 0): 7})
        assert not archiver.step(), "there is nothing new"
        monkeypatch.setattr(archiver, "_tell_again_at", 0.0)
        assert not archiver.step()
    assert committed(cluster, archive) == {0: (100, archive.place)}


class Killed(BaseException):
    """What no handler takes for an error."""


def kill(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:
    """From now on the first call of this ends everything: before it has done anything, or when it is done."""
    real = getattr(owner, name)

    def dying(*args: Any, **named: Any) -> Any:
        if after:
            real(*args, **named)
        raise Killed

    monkeypatch.setattr(owner, name, dying)


def moments(archiver: Archiver) -> list[tuple[str, Any, str, bool]]:
    """Where it can be killed, between any two steps that change something outside."""
    client = archiver._client
    return [
        ("before anything is written", archiver, "_run", False),
        ("files written, not committed", archiver, "_run", True),
        ("before the commit to the table", ArchiveTable, "append", False),
        ("committed to the table, not to the group", ArchiveTable, "append", True),
        ("before the commit to the group", client, "offset_commit", False),
        ("all done", client, "offset_commit", True),
    ]


@pytest.mark.parametrize("moment", range(6))
def test_killed_at_any_moment_each_offset_is_archived_once(
    cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    archive = make(2)
    fill(cluster, archive.topic, 0, 500, 2)
    archive_all(NoSpark(), cluster, archive)
    fill(cluster, archive.topic, 500, 500, 2)
    with cluster.client() as client, monkeypatch.context() as patched:
        archiver = Archiver(NoSpark(), cluster, client, archive, EAGER.limits)  # type: ignore[arg-type]
        # So that the offsets of the first part are told, and the kill meets the second.
        archiver._told = {0: 250, 1: 250}
        archiver.table = ArchiveTable.open(archive.place, _whose(client, archive), archive.typed)
        _, owner, name, after = moments(archiver)[moment]
        kill(patched, owner, name, after=after)
        with pytest.raises(Killed):
            archiver.step(archiver.ends())
    archive_all(NoSpark(), cluster, archive)
    assert archived(archive) == expected(1000, 2)
    assert [offset for offset, _ in committed(cluster, archive).values()] == [500, 500]


def _whose(client: Any, archive: Archive) -> Whose:
    return Whose(archive.topic, str(client.topics([archive.topic])[archive.topic].topic_id))


def test_killed_again_and_again_while_records_come_and_files_are_put_together(cluster: Cluster, make: Make) -> None:
    """Random moments, from a seed; two archivers at a time now and then."""
    chance = random.Random(46)
    archive = make(3)
    count = 0
    for _ in range(25):
        more = chance.randrange(1, 400)
        fill(cluster, archive.topic, count, more, 3)
        count += more
        with cluster.client() as client, pytest.MonkeyPatch.context() as patched:
            limits = Limits(rows_min=1, delay_s_max=0, task_rows=chance.randrange(20, 200), tasks_max=3)
            archiver = Archiver(NoSpark(), cluster, client, archive, limits)  # type: ignore[arg-type]
            if chance.random() < 0.8:
                _, owner, name, after = chance.choice(moments(archiver))
                kill(patched, owner, name, after=after)
            try:
                while archiver.step(archiver.ends()):
                    pass
            except Killed:
                continue
        table = archiver.table
        if table is not None and chance.random() < 0.5:
            tidy(NoSpark(), table, archive, EAGER)  # type: ignore[arg-type]
    archive_all(NoSpark(), cluster, archive)
    assert archived(archive) == expected(count, 3)
    assert lag(cluster, archive) == 0


def test_of_two_archivers_of_one_topic_one_is_heard(
    cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make(2)
    fill(cluster, archive.topic, 0, 1000, 2)
    with cluster.client() as client:
        slow = Archiver(NoSpark(), cluster, client, archive, EAGER.limits)  # type: ignore[arg-type]
        run = slow._run

        def overtaken(ranges: Any) -> Any:
            done = run(ranges)
            archive_all(NoSpark(), cluster, archive)
            return done

        monkeypatch.setattr(slow, "_run", overtaken)
        assert slow.step(slow.ends())
    assert archived(archive) == expected(1000, 2)
    assert slow.progress.rows == 0


def test_once_ends_though_records_keep_coming(cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = make(2)
    fill(cluster, archive.topic, 0, 1000, 2)
    archiving = Archiving(NoSpark(), cluster, archive, EAGER)  # type: ignore[arg-type]
    run, more = archiving._archiver._run, iter(range(1000, 10_000, 100))

    def meanwhile(ranges: Any) -> Any:
        fill(cluster, archive.topic, next(more), 100, 2)
        return run(ranges)

    monkeypatch.setattr(archiving._archiver, "_run", meanwhile)
    archiving.run_once()
    assert archived(archive) == expected(1000, 2)


def test_new_partitions_are_archived_too(cluster: Cluster, make: Make) -> None:
    archive = make(2)
    fill(cluster, archive.topic, 0, 1000, 2)
    archiving = Archiving(NoSpark(), cluster, archive, EAGER).start()  # type: ignore[arg-type]
    try:
        wait_until(lambda: lag(cluster, archive) == 0, 60, lambda: f"not archived: {archiving.failure}")
        with cluster.client() as client:
            client.create_partitions(archive.topic, 3)
        fill(cluster, archive.topic, 1000, 3000, 3)
        wait_until(lambda: lag(cluster, archive) == 0, 60, lambda: f"not archived: {archiving.failure}")
    finally:
        archiving.stop()
    assert archiving.failure is None
    assert sorted(number for _, _, number in archived(archive)) == list(range(4000))
    assert archiving.progress().rows_total == 4000


def test_a_topic_made_again_does_not_get_the_history_of_the_one_before(cluster: Cluster, make: Make) -> None:
    archive = make(1)
    fill(cluster, archive.topic, 0, 100, 1)
    archive_all(NoSpark(), cluster, archive)
    with cluster.client() as client:
        client.delete_topic(archive.topic)
        client.create_topic(archive.topic, 1, configs={"levada.archive": archive.place})
    fill(cluster, archive.topic, 0, 10, 1)
    with pytest.raises(WrongTable, match="was deleted and made again"):
        archive_all(NoSpark(), cluster, archive)
    assert len(archived(archive)) == 100
    assert starts(cluster, archive.topic) == [0]


def test_a_topic_made_again_while_it_is_read_does_not_get_into_the_history_of_the_one_before(
    cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make(1)
    fill(cluster, archive.topic, 0, 100, 1)
    with cluster.client() as client:
        archiver = Archiver(NoSpark(), cluster, client, archive, EAGER.limits)  # type: ignore[arg-type]
        run = archiver._run

        def replaced(ranges: Any) -> Any:
            with cluster.client() as other:
                other.delete_topic(archive.topic)
                other.create_topic(archive.topic, 1, configs={"levada.archive": archive.place})
            fill(cluster, archive.topic, 500, 100, 1)
            return run(ranges)

        monkeypatch.setattr(archiver, "_run", replaced)
        archiver.step(archiver.ends())
    assert archived(archive) == []
    assert committed(cluster, archive) == {}


def test_what_somebody_else_archived_before_it_was_deleted_is_not_lost(
    cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make(1)
    fill(cluster, archive.topic, 0, 100, 1)
    with cluster.client() as client:
        slow = Archiver(NoSpark(), cluster, client, archive, EAGER.limits)  # type: ignore[arg-type]
        run = slow._run

        def late(ranges: Any) -> Any:
            archive_all(NoSpark(), cluster, archive)
            wait_until(lambda: starts(cluster, archive.topic) == [100], 30, "retention does not go on")
            return run(ranges)

        monkeypatch.setattr(slow, "_run", late)
        slow.step(slow.ends())
        [stand] = stands(client, [archive])
    assert (stand.lost, slow.progress.lost) == ([], [])
    assert archived(archive) == expected(100, 1)


def test_records_that_somebody_deleted_before_they_were_archived_are_named(cluster: Cluster, make: Make) -> None:
    archive = make(1)
    fill(cluster, archive.topic, 0, 100, 1)
    archive_all(NoSpark(), cluster, archive)
    fill(cluster, archive.topic, 100, 100, 1)
    rows = [{"name": archive.topic, "partitions": [{"partition_index": 0, "offset": 150}]}]
    with cluster.client() as client:
        answer = client.request(ApiKey.DELETE_RECORDS, {"topics": rows, "timeout_ms": 10_000})
        assert answer.topics[0].partitions[0].error_code == 0
        done = archive_all(NoSpark(), cluster, archive)
        [stand] = stands(client, [archive])
    place = f"{archive.topic}-0"
    assert done.progress().lost == (f"offsets 100 to 149 of {place}: they were deleted before they were read",)
    assert (stand.lost, stand.lag, stand.archived_end) == ([(100, 150)], 0, 200)
    assert len(archived(archive)) == 150


def test_a_hole_in_the_archive_is_lost_to_whoever_reads(
    broker: LevadaBroker, cluster: Cluster, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    archive = make(1)
    fill(cluster, archive.topic, 0, 100, 1)
    archive_all(NoSpark(), cluster, archive)
    fill(cluster, archive.topic, 100, 100, 1)
    with cluster.client() as client:
        client.delete_records({(archive.topic, 0): 150})
    archive_all(NoSpark(), cluster, archive)
    wait_until(lambda: starts(cluster, archive.topic) == [200], 30, "retention does not go on")
    told = f"offsets 100 to 149 of {archive.topic}-0: they were deleted"
    with pytest.raises(DataLost, match=told):
        read(broker, archive, {})
    assert read(broker, archive, {"failOnDataLoss": "false"}) == [*range(100), *range(150, 200)]
    assert told in caplog.text
    options = {"bootstrap": broker.bootstrap, "subscribe": archive.topic, "startingOffsets": "earliest"}
    stream = StreamReader(SourceOptions.of({**options, "failOnDataLoss": "false"}).for_stream())
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    rows = [batch.num_rows for part in stream.partitions(stream.initialOffset(), end) for batch in stream.read(part)]
    assert (sum(rows), lost_in(end)) == (150, [])
    after = stream.latestOffset(end, ReadAllAvailable())
    assert lost_in(after) == [Lost(archive.topic, 0, 100, 150, DELETED)], "the next batch tells it"
    stream.stop()
    behind = json.dumps({archive.topic: {"0": 150}})
    assert read(broker, archive, {"startingOffsets": behind}) == list(range(150, 200))


def test_a_stream_reads_nothing_of_the_archive_of_the_topic_before(
    broker: LevadaBroker, cluster: Cluster, make: Make
) -> None:
    archive = make(1)
    fill(cluster, archive.topic, 0, 100, 1)
    archive_all(NoSpark(), cluster, archive)
    wait_until(lambda: starts(cluster, archive.topic) == [100], 30, "retention does not go on")
    options = {"bootstrap": broker.bootstrap, "subscribe": archive.topic, "startingOffsets": "earliest"}
    stream = StreamReader(SourceOptions.of({**options, "failOnDataLoss": "false"}).for_stream())
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    with cluster.client() as client:
        client.delete_topic(archive.topic)
        client.create_topic(archive.topic, 1, configs={"retention.ms": "-1"})
        fill(cluster, archive.topic, 500, 100, 1)
        client.delete_records({(archive.topic, 0): 50})
    after = stream.latestOffset(end, ReadAllAvailable())
    assert [(one.start, one.end, one.why) for one in lost_in(after)] == [(100, None, REPLACED), (0, 50, DELETED)]
    batches = [batch for part in stream.partitions(end, after) for batch in stream.read(part)]
    assert [int(value) for batch in batches for value in batch.column("value").to_pylist()] == list(range(550, 600))
    stream.stop()


def read(broker: LevadaBroker, archive: Archive, options: dict[str, str]) -> list[int]:
    """The numbers that a batch has."""
    given = {"bootstrap": broker.bootstrap, "subscribe": archive.topic, "columns": "value", **options}
    reader = BatchReader(SourceOptions.of(given).for_batch())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


def test_a_log_that_lost_what_is_archived_and_was_written_on_is_told(tmp_path: Path) -> None:
    """A crash may take back what was not synced yet: then the table holds records that were never there, and must not go on."""
    with LevadaBroker(tmp_path / "broker", {"levada.durability": "os"}) as broker:
        cluster = cluster_of(broker.bootstrap)
        archive = make_archived(cluster, tmp_path / "lake", 1)
        fill(cluster, archive.topic, 0, 50, 1)
        broker.kill()
        broker.start()
        fill(cluster, archive.topic, 50, 50, 1)
        archive_all(NoSpark(), cluster, archive)
        broker.kill()
        broker.start()
        archive_all(NoSpark(), cluster, archive)  # nothing was lost
        broker.kill()
        [log] = broker.partition_dir(archive.topic, 0).glob("*.log")
        os.truncate(log, log.stat().st_size - 10)
        broker.start()
        fill(cluster, archive.topic, 1000, 200, 1)
        for _ in range(2):
            with pytest.raises(TailCut, match=r"up to offset 100, and its log was cut at 50 since"):
                archive_all(NoSpark(), cluster, archive)
        assert archived(archive) == expected(100, 1)
        assert committed(cluster, archive) == {0: (50, archive.place)}, "retention waits for what is there now"


def test_what_was_read_while_the_leader_changed_is_read_again(
    cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make(1)
    fill(cluster, archive.topic, 0, 100, 1)
    with cluster.client() as client:
        archiver = Archiver(NoSpark(), cluster, client, archive, EAGER.limits)  # type: ignore[arg-type]
        seen = iter([{0: 3}, {0: 4}, {0: 4}, {0: 4}])
        monkeypatch.setattr("levada.spark.archive.archiver.epochs_of", lambda info: next(seen))
        assert archiver.step() and archived(archive) == []
        assert archiver.step() and archived(archive) == expected(100, 1)
        assert archiver.table is not None and archiver.table.epochs() == {0: 4}


def test_aborted_transactions_are_not_archived_and_hold_nothing_up(
    broker: LevadaBroker, cluster: Cluster, make: Make
) -> None:
    archive = make(1)
    for number in range(3):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"x-{archive.topic}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(archive.topic, b"%d" % number, partition=0, timestamp=OLD_MS)
        assert producer.flush(30) == 0
        (producer.abort_transaction if number == 2 else producer.commit_transaction)(30)
    archive_all(NoSpark(), cluster, archive)
    assert [number for _, _, number in archived(archive)] == [0, 1]
    wait_until(lambda: starts(cluster, archive.topic) == [6], 30, "retention does not go on")
    archive_all(NoSpark(), cluster, archive)  # what lies behind the last record is no loss
    with cluster.client() as client:
        [stand] = stands(client, [archive])
    assert (stand.lost, stand.archived_end) == ([], 6)


def test_a_table_that_cannot_be_shared_is_told(
    cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = make(1)
    fill(cluster, archive.topic, 0, 10, 1)
    with cluster.client() as client:
        archiver = Archiver(NoSpark(), cluster, client, archive, EAGER.limits)  # type: ignore[arg-type]
        run = archiver._run

        def elsewhere(ranges: Any) -> Any:
            done = run(ranges)
            for one in done:
                for file in one.files:
                    Path(archive.place, file.path).rename(tmp_path / "another disk")
            return done

        monkeypatch.setattr(archiver, "_run", elsewhere)
        with pytest.raises(Exception, match="that the driver and all executors share"):
            archiver.step(archiver.ends())
    assert committed(cluster, archive) == {}


def test_archives_are_kept_as_the_topics_settings_say(cluster: Cluster, make: Make, tmp_path: Path) -> None:
    first = make(1)
    failed: list[tuple[str, str]] = []
    pipelines = ArchivePipelines(cluster, EAGER)
    only = lambda: [one for one in pipelines() if one.archive.topic in wanted]  # noqa: E731
    wanted = {first.topic}
    keeping = Keeping(NoSpark(), only, lambda *said: failed.append(said))  # type: ignore[arg-type]
    try:
        fill(cluster, first.topic, 0, 100, 1)
        keeping.tick()
        wait_until(lambda: lag(cluster, first) == 0, 30, "not archived")
        second = make(1)
        wanted.add(second.topic)
        fill(cluster, second.topic, 0, 100, 1)
        keeping._asked_at = 0.0
        keeping.tick()
        wait_until(lambda: lag(cluster, second) == 0, 30, "not archived")
        assert set(keeping.progress()) == {f"archive.{one.topic}" for one in (first, second)}
        with cluster.client() as client:
            client.alter_configs(first.topic, {"levada.archive": None})
        keeping._asked_at = 0.0
        keeping.tick()
        assert set(keeping.progress()) == {f"archive.{second.topic}"}
    finally:
        keeping.stop()
        pipelines.close()
    assert failed == []


def test_an_archive_that_fails_is_tried_again_and_says_why(cluster: Cluster, make: Make, tmp_path: Path) -> None:
    archive = make(1)
    Path(archive.place).parent.mkdir(parents=True, exist_ok=True)
    Path(archive.place).write_text("in the way")
    failed: list[tuple[str, str]] = []
    pipelines = ArchivePipelines(cluster, EAGER)
    only = lambda: [one for one in pipelines() if one.archive.topic == archive.topic]  # noqa: E731
    keeping = Keeping(NoSpark(), only, lambda *said: failed.append(said))  # type: ignore[arg-type]
    fill(cluster, archive.topic, 0, 100, 1)

    def ticked() -> None:
        keeping.tick()

    try:
        wait_until(lambda: ticked() or failed, 30, "it did not fail")
        assert failed[0][0] == f"archive.{archive.topic}" and archive.place in failed[0][1]
        Path(archive.place).unlink()
        wait_until(lambda: ticked() or lag(cluster, archive) == 0, 60, "it was not tried again")
    finally:
        keeping.stop()
        pipelines.close()


def test_a_topic_without_a_place_is_told_how_to_get_one(broker: LevadaBroker, cluster: Cluster) -> None:
    with cluster.client() as client:
        client.create_topic("plain", 1)
    refused = levada("archive", "status", "plain", "--bootstrap", broker.bootstrap)
    assert refused.returncode == 2
    assert "topic plain has no levada.archive: `levada topic alter plain --config levada.archive=" in refused.stderr
    refused = levada("archive", "status", "--to", "/lake", "--bootstrap", broker.bootstrap)
    assert (refused.returncode, "--to is the place of one topic" in refused.stderr) == (2, True)


def test_the_table_of_another_topic_is_an_error_that_says_so(
    broker: LevadaBroker, cluster: Cluster, make: Make
) -> None:
    archive = make(1)
    fill(cluster, archive.topic, 0, 10, 1)
    archive_all(NoSpark(), cluster, archive)
    other = make(1)
    refused = levada("archive", "status", other.topic, "--to", archive.place, "--bootstrap", broker.bootstrap)
    assert refused.returncode == 1
    assert f"holds the history of topic {archive.topic}" in refused.stderr


def levada(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, timeout=100, check=False)
