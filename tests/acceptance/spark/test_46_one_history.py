"""Scenario 46: a topic with `levada.archive` is one history, wherever its older part lies."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import duckdb
import polars as pl
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from levada.spark.archive.compaction import Sizes
from levada.spark.archive.discovery import archives
from levada.spark.archive.planning import Limits
from levada.spark.archive.running import Archiving, Care, tidy
from levada.spark.archive.status import stands
from levada.spark.archive.table import ArchiveTable, Whose, WrongTable
from levada.spark.archive.wanted import Archive
from levada.spark.options.cluster import Cluster
from levada.spark.options.reading import Given
from support.levada import LevadaBroker
from support.wait import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Long ago: whatever was written then is too old at once, and retention takes it as soon as it may.
OLD_MS = 1_600_000_000_000
PARTITIONS = 4
EAGER = Care(limits=Limits(rows_min=1, delay_s_max=0, task_rows=100_000), look_every_s=0.05)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LevadaBroker]:
    """Looks for what is too old all the time."""
    settings = {
        "levada.durability": "os",
        "log.retention.check.interval.ms": "100",
        "file.delete.delay.ms": "0",
        "segment.bytes": str(1 << 20),
        "retention.ms": "100",
    }
    with LevadaBroker(tmp_path_factory.mktemp("archived"), settings) as running:
        yield running


@pytest.fixture
def cluster(broker: LevadaBroker) -> Cluster:
    return Cluster.of(Given({"bootstrap": broker.bootstrap}))


@pytest.fixture
def make(cluster: Cluster, tmp_path: Path) -> Callable[..., Archive]:
    """A topic that is archived."""

    def made(partitions: int = PARTITIONS, **settings: str) -> Archive:
        topic = f"t-{uuid4().hex[:8]}"
        place = str(tmp_path / "lake" / topic)
        configs = {"levada.archive": place, **{name.replace("_", "."): value for name, value in settings.items()}}
        with closing(cluster.client()) as client:
            client.create_topic(topic, partitions, configs=configs)
            [found] = archives(client, [topic])
        assert (found.topic, found.place) == (topic, place)
        return found

    return made


def produce(broker: LevadaBroker, topic: str, first: int, count: int, partitions: int = PARTITIONS) -> None:
    """The numbers from `first` on, round the partitions, all of them old."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    )
    for number in range(first, first + count):
        while True:
            try:
                producer.produce(topic, b"%d" % number, partition=number % partitions, timestamp=OLD_MS + number)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def starts(cluster: Cluster, topic: str) -> list[int]:
    from levada.wire.answers import EARLIEST

    with closing(cluster.client()) as client:
        ats = [(topic, one.partition) for one in client.topics([topic])[topic].partitions]
        found = client.list_offsets(dict.fromkeys(ats, EARLIEST))
    return [one.offset for one in found.values()]


def waiting_bytes(broker: LevadaBroker, topic: str) -> float:
    """What retention would delete if it were archived."""
    with urllib.request.urlopen(f"http://{broker.http}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    wanted = f'levada_retention_waiting_bytes{{topic="{topic}"'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted))


def read(spark: SparkSession, broker: LevadaBroker, topic: str, **options: str) -> DataFrame:
    given = {"bootstrap": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest", **options}
    return spark.read.format("levada").options(**given).load()


def figures(frame: DataFrame) -> tuple[int, int, int]:
    """Rows, different places, and the sum of the numbers."""
    from pyspark.sql import functions as F

    found = frame.agg(
        F.count("*"), F.count_distinct("partition", "offset"), F.sum(F.col("value").cast("string").cast("long"))
    ).collect()[0]
    return tuple(found)  # type: ignore[return-value]


def expected(count: int) -> tuple[int, int, int]:
    return count, count, count * (count - 1) // 2


def lag(cluster: Cluster, archive: Archive) -> int:
    with closing(cluster.client()) as client:
        return sum(one.lag for one in stands(client, [archive]))


def ends(archive: Archive, spark: SparkSession, cluster: Cluster) -> None:
    """Archive all there is."""
    Archiving(spark, cluster, archive, EAGER).run_once()


def test_a_million_records_are_each_there_once_while_the_archiver_comes_and_goes(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Callable[..., Archive]
) -> None:
    archive = make()
    topic = archive.topic
    produce(broker, topic, 0, 400_000)
    # No archiver yet: retention has looked, and deletes nothing.
    wait_until(lambda: waiting_bytes(broker, topic) > 0, 90, "retention has not looked")
    assert starts(cluster, topic) == [0] * PARTITIONS
    assert figures(read(spark, broker, topic)) == expected(400_000)

    archiving = Archiving(spark, cluster, archive, EAGER).start()
    try:
        produce(broker, topic, 400_000, 400_000)
        wait_until(lambda: lag(cluster, archive) == 0, 90, lambda: f"not archived: {archiving.failure}")
    finally:
        archiving.stop()
    wait_until(lambda: min(starts(cluster, topic)) > 150_000, 90, "retention does not go on")
    assert figures(read(spark, broker, topic)) == expected(800_000)

    # The archiver is down for a while.
    before = waiting_bytes(broker, topic)
    produce(broker, topic, 800_000, 200_000)
    wait_until(lambda: waiting_bytes(broker, topic) > before, 90, "retention has not looked")
    assert max(starts(cluster, topic)) <= 200_000
    assert figures(read(spark, broker, topic)) == expected(1_000_000)
    ends(archive, spark, cluster)
    wait_until(lambda: min(starts(cluster, topic)) > 200_000, 90, "retention does not go on")

    assert figures(read(spark, broker, topic)) == expected(1_000_000)
    counted = (
        pl.scan_delta(archive.place).select(pl.len(), pl.struct("partition", "offset").n_unique().alias("u")).collect()
    )
    assert counted.row(0) == (1_000_000, 1_000_000)
    with duckdb.connect() as connection:
        connection.register("history", DeltaTable(archive.place).to_pyarrow_dataset())
        [row] = connection.execute("select count(*), sum(cast(decode(value) as bigint)) from history").fetchall()
    assert row == (1_000_000, sum(range(1_000_000)))


def test_a_stream_from_earliest_reads_the_table_and_then_the_log_while_the_log_is_trimmed(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Callable[..., Archive], tmp_path: Path
) -> None:
    archive = make()
    topic = archive.topic
    produce(broker, topic, 0, 50_000)
    ends(archive, spark, cluster)
    wait_until(lambda: min(starts(cluster, topic)) > 0, 90, "retention does not go on")
    produce(broker, topic, 50_000, 50_000)
    seen: list[tuple[int, int]] = []

    def keep(batch: DataFrame, number: int) -> None:
        if number == 1:  # what is planned for later batches goes from the log to the table under way
            ends(archive, spark, cluster)
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
    assert query.awaitTermination(120)
    assert len(seen) == 100_000
    assert sorted(seen) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(25_000)]


def test_a_range_that_is_trimmed_between_planning_and_reading_comes_from_the_table(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Callable[..., Archive]
) -> None:
    archive = make()
    produce(broker, archive.topic, 0, 40_000)
    planned = read(spark, broker, archive.topic, columns="partition,offset").rdd
    assert planned.getNumPartitions() == PARTITIONS  # the ranges are fixed now
    ends(archive, spark, cluster)
    wait_until(lambda: min(starts(cluster, archive.topic)) >= 10_000, 90, "retention does not go on")
    found = planned.map(tuple).collect()
    assert sorted(found) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(10_000)]


def test_formats_columns_and_times_reach_into_the_table(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Callable[..., Archive]
) -> None:
    archive = make(1, levada_archive_format="json", levada_archive_schema="n BIGINT")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(1000):
        value = b'{"n": %d}' % number if number != 500 else b"no json"
        producer.produce(archive.topic, value, b"k", 0, timestamp=OLD_MS + number, headers=[("h", b"%d" % number)])
    assert producer.flush(30) == 0
    before = [row.asDict(True) for row in read(spark, broker, archive.topic, includeHeaders="true").collect()]
    ends(archive, spark, cluster)
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


def test_history_can_be_left_alone(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Callable[..., Archive]
) -> None:
    archive = make(1)
    produce(broker, archive.topic, 0, 1000, partitions=1)
    ends(archive, spark, cluster)
    wait_until(lambda: starts(cluster, archive.topic) == [1000], 90, "retention does not go on")
    assert read(spark, broker, archive.topic, history="off").count() == 0
    assert read(spark, broker, archive.topic, history=archive.place).count() == 1000
    assert read(spark, broker, archive.topic).count() == 1000


def test_new_partitions_are_archived_too(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Callable[..., Archive]
) -> None:
    archive = make(2)
    produce(broker, archive.topic, 0, 1000, partitions=2)
    archiving = Archiving(spark, cluster, archive, EAGER).start()
    try:
        wait_until(lambda: lag(cluster, archive) == 0, 90, lambda: f"not archived: {archiving.failure}")
        with closing(cluster.client()) as client:
            client.create_partitions(archive.topic, 3)
        produce(broker, archive.topic, 1000, 3000, partitions=3)
        wait_until(lambda: lag(cluster, archive) == 0, 90, lambda: f"not archived: {archiving.failure}")
    finally:
        archiving.stop()
    assert archiving.failure is None
    assert figures(read(spark, broker, archive.topic)) == expected(4000)
    assert pl.scan_delta(archive.place).select(pl.len()).collect().item() == 4000


def test_a_topic_made_again_does_not_get_the_history_of_the_one_before(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Callable[..., Archive]
) -> None:
    archive = make(1)
    produce(broker, archive.topic, 0, 100, partitions=1)
    ends(archive, spark, cluster)
    with closing(cluster.client()) as client:
        client.delete_topic(archive.topic)
        client.create_topic(archive.topic, 1, configs={"levada.archive": archive.place})
    produce(broker, archive.topic, 0, 10, partitions=1)
    with pytest.raises(WrongTable, match="was deleted and made again"):
        ends(archive, spark, cluster)
    assert pl.scan_delta(archive.place).select(pl.len()).collect().item() == 100
    assert starts(cluster, archive.topic) == [0]


def test_records_that_somebody_deleted_before_they_were_archived_are_named(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Callable[..., Archive]
) -> None:
    archive = make(1)
    produce(broker, archive.topic, 0, 100, partitions=1)
    ends(archive, spark, cluster)
    produce(broker, archive.topic, 100, 100, partitions=1)
    _delete_records(cluster, archive.topic, 150)
    archiving = Archiving(spark, cluster, archive, EAGER)
    archiving.run_once()
    assert archiving.progress().lost == (
        f"offsets 100 to 149 of {archive.topic}-0: they were deleted before they were read",
    )
    with closing(cluster.client()) as client:
        [stand] = stands(client, [archive])
    assert (stand.lost, stand.lag, stand.archived_end) == ([(100, 150)], 0, 200)
    assert pl.scan_delta(archive.place).select(pl.len()).collect().item() == 150


def _delete_records(cluster: Cluster, topic: str, before: int) -> None:
    from levada.wire.apis import ApiKey

    rows = [{"name": topic, "partitions": [{"partition_index": 0, "offset": before}]}]
    with closing(cluster.client()) as client:
        answer = client.request(ApiKey.DELETE_RECORDS, {"topics": rows, "timeout_ms": 10_000})
    assert answer.topics[0].partitions[0].error_code == 0


def test_aborted_transactions_are_not_archived_and_hold_nothing_up(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Callable[..., Archive]
) -> None:
    archive = make(1)
    for number in range(3):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"x-{archive.topic}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(archive.topic, b"%d" % number, partition=0, timestamp=OLD_MS)
        assert producer.flush(30) == 0
        (producer.abort_transaction if number == 2 else producer.commit_transaction)(30)
    ends(archive, spark, cluster)
    assert pl.scan_delta(archive.place).sort("offset").collect()["value"].to_list() == [b"0", b"1"]
    wait_until(lambda: starts(cluster, archive.topic) == [6], 90, "retention does not go on")
    assert [row.value for row in read(spark, broker, archive.topic).collect()] == [b"0", b"1"]
    ends(archive, spark, cluster)  # what lies behind the last record is no loss
    with closing(cluster.client()) as client:
        [stand] = stands(client, [archive])
    assert (stand.lost, stand.archived_end) == ([], 6)


def test_small_files_are_put_together_while_somebody_reads(
    spark: SparkSession, broker: LevadaBroker, cluster: Cluster, make: Callable[..., Archive]
) -> None:
    archive = make(2)
    for number in range(6):
        produce(broker, archive.topic, number * 1000, 1000, partitions=2)
        ends(archive, spark, cluster)
    wait_until(lambda: min(starts(cluster, archive.topic)) == 3000, 90, "retention does not go on")
    reading = read(spark, broker, archive.topic, columns="partition,offset,value")
    rows: Any = reading.toLocalIterator()  # a partition after the other: the second is not read yet
    first = next(rows)
    with closing(cluster.client()) as client:
        topic_id = str(client.topics([archive.topic])[archive.topic].topic_id)
    table = ArchiveTable.open(archive.place, Whose(archive.topic, topic_id), archive.typed)
    done, removed = tidy(spark, table, archive, EAGER._replace(sizes=Sizes(files_min=2)))
    assert (done.files_before, done.files_after, removed) == (12, 2, 0)
    places = [(row.partition, row.offset) for row in (first, *rows)]
    assert places == [(partition, offset) for partition in range(2) for offset in range(3000)]
    assert figures(read(spark, broker, archive.topic)) == expected(6000)
    produce(broker, archive.topic, 6000, 1000, partitions=2)
    ends(archive, spark, cluster)
    assert figures(read(spark, broker, archive.topic)) == expected(7000)
