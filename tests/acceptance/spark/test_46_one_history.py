"""Scenario 46: a topic with `levada.archive` is one history, wherever its older part lies."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from levada.spark.archive.running import Archiving, tidy
from levada.spark.archive.table import ArchiveTable, Whose
from levada.spark.archive.wanted import Archive
from levada.spark.options.cluster import Cluster
from support.archives import (
    EAGER,
    IMPATIENT,
    OLD_MS,
    archive_all,
    cluster_of,
    expected,
    figures,
    fill,
    lag,
    make_archived,
    starts,
)
from support.levada import LevadaBroker
from support.wait import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(400)

PARTITIONS = 4
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


def waiting_bytes(broker: LevadaBroker, topic: str) -> float:
    """What retention would delete if it were archived."""
    with urllib.request.urlopen(f"http://{broker.http}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    wanted = f'levada_retention_waiting_bytes{{topic="{topic}"'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted))


def read(spark: SparkSession, broker: LevadaBroker, topic: str, **options: str) -> DataFrame:
    given = {"bootstrap": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest", **options}
    return spark.read.format("levada").options(**given).load()


def test_a_million_records_are_each_there_once_while_the_archiver_comes_and_goes(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Make
) -> None:
    archive = make(PARTITIONS)
    topic = archive.topic
    fill(cluster, topic, 0, 400_000, PARTITIONS)
    # No archiver yet: retention has looked, and deletes nothing.
    wait_until(lambda: waiting_bytes(broker, topic) > 0, 90, "retention has not looked")
    assert starts(cluster, topic) == [0] * PARTITIONS
    assert figures(read(spark, broker, topic, columns="value")) == expected(400_000)

    archiving = Archiving(spark, cluster, archive, EAGER).start()
    try:
        fill(cluster, topic, 400_000, 400_000, PARTITIONS)
        wait_until(lambda: lag(cluster, archive) == 0, 90, lambda: f"not archived: {archiving.failure}")
    finally:
        archiving.stop()
    wait_until(lambda: min(starts(cluster, topic)) > 150_000, 90, "retention does not go on")
    assert figures(read(spark, broker, topic, columns="value")) == expected(800_000)

    # The archiver is down for a while.
    wait_until(lambda: waiting_bytes(broker, topic) == 0, 90, "retention does not go on")
    fill(cluster, topic, 800_000, 200_000, PARTITIONS)
    wait_until(lambda: waiting_bytes(broker, topic) > 0, 90, "retention has not looked")
    assert max(starts(cluster, topic)) <= 200_000
    assert figures(read(spark, broker, topic, columns="value")) == expected(1_000_000)
    archive_all(spark, cluster, archive)
    wait_until(lambda: min(starts(cluster, topic)) > 200_000, 90, "retention does not go on")

    assert figures(read(spark, broker, topic, columns="value")) == expected(1_000_000)
    counted = (
        pl.scan_delta(archive.place).select(pl.len(), pl.struct("partition", "offset").n_unique().alias("u")).collect()
    )
    assert counted.row(0) == (1_000_000, 1_000_000)
    with duckdb.connect() as connection:
        connection.register("history", DeltaTable(archive.place).to_pyarrow_dataset())
        [row] = connection.execute("select count(*), sum(cast(decode(value) as bigint)) from history").fetchall()
    assert row == (1_000_000, sum(range(1_000_000)))


def test_a_stream_from_earliest_reads_the_table_and_then_the_log_while_the_log_is_trimmed(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Make, tmp_path: Path
) -> None:
    archive = make(PARTITIONS)
    topic = archive.topic
    fill(cluster, topic, 0, 50_000, PARTITIONS)
    archive_all(spark, cluster, archive)
    wait_until(lambda: min(starts(cluster, topic)) > 0, 90, "retention does not go on")
    fill(cluster, topic, 50_000, 50_000, PARTITIONS)
    seen: list[tuple[int, int]] = []

    def keep(batch: DataFrame, number: int) -> None:
        if number == 1:  # what is planned for later batches goes from the log to the table under way
            archive_all(spark, cluster, archive)
            wait_until(lambda: min(starts(cluster, topic)) >= 25_000, 90, "retention does not go on")
        seen.extend(tuple(row) for row in batch.select("partition", "offset").collect())

    options = {
        "bootstrap": broker.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "30000",
        "columns": "partition,offset,value",
    }
    query = (
        spark.readStream.format("levada")
        .options(**options)
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert len(seen) == 100_000
    assert sorted(seen) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(25_000)]


def test_a_range_that_is_trimmed_between_planning_and_reading_comes_from_the_table(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Make
) -> None:
    archive = make(PARTITIONS)
    fill(cluster, archive.topic, 0, 40_000, PARTITIONS)
    planned = read(spark, broker, archive.topic, columns="partition,offset").rdd
    assert planned.getNumPartitions() == PARTITIONS  # the ranges are fixed now
    archive_all(spark, cluster, archive)
    wait_until(lambda: min(starts(cluster, archive.topic)) >= 10_000, 90, "retention does not go on")
    found = planned.map(tuple).collect()
    assert sorted(found) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(10_000)]


def test_formats_columns_and_times_reach_into_the_table(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Make
) -> None:
    archive = make(1, levada_archive_format="json", levada_archive_schema="n BIGINT")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(1000):
        value = b'{"n": %d}' % number if number != 500 else b"no json"
        producer.produce(archive.topic, value, b"k", 0, timestamp=OLD_MS + number, headers=[("h", b"%d" % number)])
    assert producer.flush(30) == 0
    before = [row.asDict(True) for row in read(spark, broker, archive.topic, includeHeaders="true").collect()]
    archive_all(spark, cluster, archive)
    wait_until(lambda: starts(cluster, archive.topic) == [1000], 90, "retention does not go on")
    after = [row.asDict(True) for row in read(spark, broker, archive.topic, includeHeaders="true").collect()]
    assert after == before and len(after) == 1000
    typed = read(
        spark,
        broker,
        archive.topic,
        valueFormat="json",
        valueSchema="n BIGINT",
        onError="column",
        columns="value,offset",
    )
    rows = typed.collect()
    assert [row.value.n if row.value else None for row in rows][499:502] == [499, None, 501]
    assert [row.offset for row in rows if row._error] == [500]
    timed = read(spark, broker, archive.topic, startingTimestamp=str(OLD_MS + 990), columns="offset")
    assert [row.offset for row in timed.collect()] == list(range(990, 1000))
    data = pl.scan_delta(archive.place).sort("offset").collect()["data"].struct.field("n")
    assert data.to_list()[499:502] == [499, None, 501]


def test_history_can_be_left_alone(spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Make) -> None:
    archive = make(1)
    fill(cluster, archive.topic, 0, 1000, 1)
    archive_all(spark, cluster, archive)
    wait_until(lambda: starts(cluster, archive.topic) == [1000], 90, "retention does not go on")
    assert read(spark, broker, archive.topic, history="off").count() == 0
    assert read(spark, broker, archive.topic, history=archive.place).count() == 1000
    assert read(spark, broker, archive.topic).count() == 1000


def test_small_files_are_put_together_while_somebody_reads(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Make
) -> None:
    archive = make(2)
    for number in range(6):
        fill(cluster, archive.topic, number * 1000, 1000, 2)
        archive_all(spark, cluster, archive)
    wait_until(lambda: min(starts(cluster, archive.topic)) == 3000, 90, "retention does not go on")
    reading = read(spark, broker, archive.topic, columns="partition,offset,value")
    rows: Any = reading.toLocalIterator()  # a partition after the other: the second is not read yet
    first = next(rows)
    with cluster.client() as client:
        topic_id = str(client.topics([archive.topic])[archive.topic].topic_id)
    table = ArchiveTable.open(archive.place, Whose(archive.topic, topic_id), archive.typed)
    done, removed = tidy(spark, table, archive, EAGER)
    assert (done.files_before, done.files_after, removed) == (12, 2, 0)
    places = [(row.partition, row.offset) for row in (first, *rows)]
    assert places == [(partition, offset) for partition in range(2) for offset in range(3000)]
    assert figures(read(spark, broker, archive.topic, columns="value")) == expected(6000)
    fill(cluster, archive.topic, 6000, 1000, 2)
    archive_all(spark, cluster, archive)
    assert figures(read(spark, broker, archive.topic, columns="value")) == expected(7000)
