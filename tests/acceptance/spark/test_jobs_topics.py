"""Replay, dedup, snapshot and audit of a topic on a broker: with null keys, tombstones, transactions aborted, and what dedup took out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars
import pytest

from levada.records.build import build
from levada.records.read import Record
from levada.spark.jobs import dedup, replay, snapshot
from levada.spark.jobs.audit import audit
from levada.spark.jobs.audit.figures import ABORTED, BETWEEN, EMPTIED, MARKERS, WITHIN
from levada.spark.jobs.audit.findings import findings, verdict
from levada.spark.jobs.extent import Moment
from levada.spark.jobs.frames import Connection
from levada.spark.jobs.running import Silent
from levada.wire.blocking import BlockingClient
from support.histories import FIRST_MS, Told, client_of, consume, contents, produce, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.levada import LevadaBroker

#: A run is some Spark jobs, which on a busy machine take their time.
pytestmark = pytest.mark.timeout(900)
PARTITIONS = 3


@pytest.fixture
def client(levada: LevadaBroker) -> Iterator[BlockingClient]:
    with client_of(levada.bootstrap) as running:
        yield running


@pytest.fixture
def connection(levada: LevadaBroker) -> Connection:
    return Connection.of(levada.bootstrap)


def make_history(client: BlockingClient, topic: str) -> None:
    client.create_topic(topic, PARTITIONS)
    produce(client, topic, told(100), partitions=PARTITIONS)
    produce(client, topic, told(20, 2, first=200), partitions=PARTITIONS, transactional_id=topic, abort=True)
    produce(client, topic, told(20, 3, first=230), partitions=PARTITIONS, transactional_id=topic)


def what(held: dict[int, list[Record]]) -> dict[int, list[tuple[object, ...]]]:
    return {p: [(one.key, one.value, one.headers, one.timestamp_ms) for one in records] for p, records in held.items()}


def test_a_replay_of_a_stretch_of_time_and_then_of_what_came_since(
    spark: SparkSession, client: BlockingClient, connection: Connection, topic: str
) -> None:
    make_history(client, topic)
    wanted = replay.Replay(
        source=topic,
        target=f"{topic}-copy",
        start=Moment(FIRST_MS + 5_000),
        keep_partitions=True,
        keep_timestamps=True,
        rate=100_000,
        batch_rows=60,
    )
    source = consume(client, topic)
    begins = {
        p: next(at for at, one in enumerate(held) if one.timestamp_ms >= FIRST_MS + 5_000) for p, held in source.items()
    }
    for _ in range(2):
        done = replay.replay(spark, client, connection, replay.prepare(client, wanted), Silent())
        expected = {p: held[begins[p] :] for p, held in consume(client, topic).items()}
        assert what(consume(client, f"{topic}-copy")) == what(expected)
        assert done.records == (sum(map(len, expected.values())) if done.made else 10)
        produce(client, topic, told(10, 5, first=300), partitions=PARTITIONS)


def test_a_replay_again_writes_it_all_once_more_and_routes_it_anew(
    spark: SparkSession, client: BlockingClient, connection: Connection, topic: str
) -> None:
    client.create_topic(topic, 1)
    produce(client, topic, told(40), partitions=1)
    client.create_topic(f"{topic}-wide", 4, configs={"levada.router": "fnv1a64"})
    wanted = replay.Replay(source=topic, target=f"{topic}-wide", keep_timestamps=True)
    again = replay.Replay(source=topic, target=f"{topic}-wide", keep_timestamps=True, again=True)
    replay.replay(spark, client, connection, replay.prepare(client, wanted), Silent())
    nothing = replay.replay(spark, client, connection, replay.prepare(client, wanted), Silent())
    assert (nothing.records, nothing.batches) == (0, 0)
    replay.replay(spark, client, connection, replay.prepare(client, again), Silent())
    assert contents(consume(client, f"{topic}-wide")) == sorted(2 * contents(consume(client, topic)), key=repr)


def test_dedup_keeps_the_first_of_each_in_its_place(
    spark: SparkSession, client: BlockingClient, connection: Connection, topic: str
) -> None:
    client.create_topic(topic, PARTITIONS, configs={"retention.ms": "864000000"})
    records = [one for one in told(120) if one.headers]
    copies = [one._replace(value=b"a copy", timestamp_ms=one.timestamp_ms + 10**6) for one in records[::4]]
    unknown = [Told(b"key-1", b"no id", (), FIRST_MS), Told(b"key-1", b"no id", (), FIRST_MS)]
    produce(client, topic, [*records, *copies, *unknown], partitions=PARTITIONS)
    wanted = dedup.Dedup(topic=topic, into=f"{topic}-clean", by="id", batch_rows=70)
    done = dedup.dedup(spark, client, connection, dedup.prepare(client, wanted), Silent())
    assert (done.read, done.repeats, done.written) == (len(records) + len(copies) + 2, len(copies), len(records) + 2)
    assert done.told == len(records) + len(copies)
    source = {p: [one for one in held if one.value != b"a copy"] for p, held in consume(client, topic).items()}
    assert what(consume(client, f"{topic}-clean")) == what(source)
    settings = client.describe_configs(f"{topic}-clean")
    assert {name: one.value for name, one in settings.items() if one.source == 1} == {
        "retention.ms": "864000000",
        "levada.router": "murmur2",
    }
    # A copy that comes later, with an earlier time, of a record that is there.
    produce(client, topic, [records[0]._replace(value=b"late", timestamp_ms=FIRST_MS - 10**9)], partitions=PARTITIONS)
    again = dedup.dedup(spark, client, connection, dedup.prepare(client, wanted), Silent())
    assert (again.read, again.written) == (1, 0)
    assert what(consume(client, f"{topic}-clean")) == what(source)


def test_a_snapshot_as_files_as_a_table_and_as_a_topic(
    spark: SparkSession, client: BlockingClient, connection: Connection, topic: str, tmp_path: Path
) -> None:
    make_history(client, topic)
    source = consume(client, topic)
    ends = {p: held[len(held) // 2].offset for p, held in source.items()}
    latest: dict[bytes, bytes | None] = {}
    for p, held in source.items():
        for one in held:
            if one.key and one.offset < ends[p]:
                latest[one.key] = one.value
    expected = {key: value for key, value in latest.items() if value is not None}
    assert len(expected) < len(latest), "some are deleted"

    def made(**where: str) -> snapshot.Snapshotted:
        ready = snapshot.prepare(client, snapshot.Snapshot(topic=topic, at=ends, **where))  # type: ignore[arg-type]
        return snapshot.snapshot(spark, client, connection, ready, Silent())

    made(to=str(tmp_path / "one.parquet"))
    found = polars.read_parquet(tmp_path / "one.parquet" / "*.parquet")
    assert {row["key"]: row["value"] for row in found.to_dicts() if row["key"]} == expected
    assert [path.name for path in tmp_path.iterdir()] == ["one.parquet"], "nothing unfinished is left"
    made(to=str(tmp_path / "two.delta"))
    assert polars.read_delta(str(tmp_path / "two.delta")).sort("key").equals(found.sort("key"))
    for _ in range(2):
        made(into=f"{topic}-latest")
        held = consume(client, f"{topic}-latest")
        assert sorted((one.key, one.value) for records in held.values() for one in records if one.key) == sorted(
            expected.items()
        )
    assert client.describe_configs(f"{topic}-latest")["cleanup.policy"].value == "compact"


def test_an_audit_tells_gaps_apart_and_finds_what_is_wrong(
    spark: SparkSession, client: BlockingClient, connection: Connection, topic: str
) -> None:
    client.create_topic(topic, PARTITIONS, configs={"levada.dedup": "id"})
    produce(client, topic, told(100), partitions=PARTITIONS)
    produce(client, topic, told(30, 2, first=200), partitions=PARTITIONS, transactional_id=topic, abort=True)
    produce(client, topic, told(30, 3, first=300), partitions=PARTITIONS, transactional_id=topic)
    produce(client, topic, [one for one in told(100) if one.headers][:10], partitions=PARTITIONS)  # all repeats
    client.delete_records({(topic, 0): 5})

    def audited(**wanted: object) -> tuple[audit.Figures, list[object], str]:
        ready = audit.prepare(client, audit.Audit(topic=topic, **wanted))  # type: ignore[arg-type]
        figures = audit.audit(spark, connection, ready, Silent())
        found = findings(figures)
        return figures, list(found), verdict(found)

    figures, found, said = audited()
    held = consume(client, topic)
    assert figures.records == sum(map(len, held.values()))
    assert figures.missing(ABORTED) == 30
    assert figures.missing(MARKERS) == 2 * PARTITIONS
    assert figures.missing(EMPTIED) + figures.missing(WITHIN) == 10
    assert figures.missing(BETWEEN) == 0
    assert [one.start for one in figures.partitions] == [5, 0, 0]
    assert (figures.keys.misplaced, figures.keys.split) == (0, 0)
    assert said == "ok", found
    for one in figures.partitions:
        assert one.end - one.start == one.records + sum(one.holes.values())
    # The same offsets have the same checksum; one more record, another.
    before = [one.checksum for one in figures.partitions]
    wrong = build([Record(0, FIRST_MS, b"key-7", b"astray", ())])
    at = next(one.lowest for one in figures.keys.largest if one.key != b"key-7" and one.lowest != _home(b"key-7"))
    client.produce((topic, at), wrong)
    figures, _, said = audited()
    assert [p for p, one in enumerate(figures.partitions) if one.checksum != before[p]] == [at]
    assert (said, figures.keys.misplaced_records, figures.keys.split) == ("wrong", 1, 1)


def _home(key: bytes) -> int:
    from levada.routing import partition_for

    return partition_for(key, "murmur2", PARTITIONS)
