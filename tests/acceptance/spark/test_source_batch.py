"""Batches of `format("levada")` in a Spark session, on Levada and on Apache Kafka."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.brokers import Broker
from support.levada import LevadaBroker
from support.ports import free_port
from support.spark_topics import NOW_MS, Row, consumed, ends, fill, in_order, make_topic, numbered, put

PARTITIONS = 2


def read(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("levada").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    return reader.options(**{name.replace("__", "."): value for name, value in options.items()}).load()


def rows(frame: DataFrame) -> list[Row]:
    return in_order(frame.toArrow().to_pylist())


def by_partition(topic: str, offsets: list[int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(offsets)}})


def test_39_any_range_is_what_a_consumer_reads_of_it(spark: SparkSession, either: Broker) -> None:
    """Scenario 39: offsets, times and JSON by partition; headers, nulls, every codec, aborted transactions."""
    topic = make_topic(either.bootstrap, PARTITIONS)
    fill(either.bootstrap, topic, seed=11, partitions=PARTITIONS)
    for isolation in ("read_committed", "read_uncommitted"):
        expected = consumed(either.bootstrap, topic, isolation, PARTITIONS)
        found = read(spark, either, topic, includeHeaders="true", kafka__isolation__level=isolation)
        assert rows(found) == expected
    expected = consumed(either.bootstrap, topic, "read_committed", PARTITIONS)
    stops = ends(either.bootstrap, topic, PARTITIONS)
    rng = random.Random(2)
    for _ in range(2):
        low, high = zip(*(sorted(rng.sample(range(stop + 1), 2)) for stop in stops), strict=True)
        options = {"startingOffsets": by_partition(topic, list(low)), "endingOffsets": by_partition(topic, list(high))}
        found = read(spark, either, topic, includeHeaders="true", minPartitions="5", **options)
        assert rows(found) == [row for row in expected if low[row[1]] <= row[2] < high[row[1]]]


def test_39_times(spark: SparkSession, either: Broker) -> None:
    topic = make_topic(either.bootstrap, PARTITIONS)
    for partition in range(PARTITIONS):
        put(either.bootstrap, topic, numbered(20), partition=partition, step_ms=10)
    expected = consumed(either.bootstrap, topic, partitions=PARTITIONS)
    since, until = NOW_MS + 45, NOW_MS + 120
    found = read(spark, either, topic, includeHeaders="true", startingTimestamp=str(since), endingTimestamp=str(until))
    assert rows(found) == [row for row in expected if since <= row[6][1] < until]
    times = {"startingOffsetsByTimestamp": by_partition(topic, [since, until])}
    assert rows(read(spark, either, topic, includeHeaders="true", **times)) == [
        row for row in expected if row[6][1] >= (since, until)[row[1]]
    ]


def test_the_columns_are_those_of_sparks_kafka_source(spark: SparkSession, levada: LevadaBroker) -> None:
    topic = make_topic(levada.bootstrap)
    plain = read(spark, levada, topic)
    assert plain.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    headers = read(spark, levada, topic, includeHeaders="true").schema["headers"]
    assert headers.dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert plain.count() == 0


def test_narrow_and_typed(spark: SparkSession, levada: LevadaBroker) -> None:
    topic = make_topic(levada.bootstrap)
    put(levada.bootstrap, topic, [b'{"id": 7, "tags": ["a", "b"], "at": "2026-01-02T03:04:05Z"}', b"{}", None])
    schema = "id BIGINT, tags ARRAY<STRING>, at TIMESTAMP"
    found = read(
        spark, levada, topic, columns="offset,key,value", keyFormat="string", valueFormat="json", valueSchema=schema
    )
    assert found.schema.simpleString() == (
        "struct<offset:bigint,key:string,value:struct<id:bigint,tags:array<string>,at:timestamp>>"
    )
    found.createOrReplaceTempView("narrow")
    query = (
        "SELECT offset, key, value.id, value.tags[1] AS tag, CAST(value.at AS STRING) AS at FROM narrow ORDER BY offset"
    )
    assert [tuple(row) for row in spark.sql(query).collect()] == [
        (0, "0", 7, "b", "2026-01-02 03:04:05"),
        (1, "1", None, None, None),
        (2, "2", None, None, None),
    ]


def jobs_so_far(spark: SparkSession) -> int:
    count: int = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
    return count


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startngOffsets": "earliest"}, "startngoffsets: there is no such option; did you mean startingOffsets?"),
        ({"startingOffsets": '{"orders": '}, "startingOffsets: '{\"orders\":' is not allowed; JSON like"),
        ({"startingOffsets": "latest"}, "startingOffsets: 'latest' is not allowed; a batch begins at earliest"),
        ({"subscribe": "nothing-like-it"}, "subscribe: 'nothing-like-it' is not allowed; topics of the broker at"),
        ({"kafka.bootstrap.servers": "127.0.0.1:PORT"}, "127.0.0.1:PORT cannot be reached"),
        ({"valueFormat": "json"}, "valueSchema: it is missing; json needs a schema"),
    ],
    ids=["unknown", "json", "place", "topic", "broker", "schema"],
)
def test_48_what_is_wrong_is_told_before_any_job(
    spark: SparkSession, levada: LevadaBroker, options: dict[str, str], told: str
) -> None:
    """Scenario 48, of a batch."""
    topic = make_topic(levada.bootstrap)
    put(levada.bootstrap, topic, numbered(1))
    port = str(free_port())
    given = {"kafka.bootstrap.servers": levada.bootstrap, "subscribe": topic}
    given |= {name: value.replace("PORT", port) for name, value in options.items()}
    before = jobs_so_far(spark)
    with pytest.raises(Exception) as error:
        spark.read.format("levada").options(**given).load().collect()
    assert told.replace("PORT", port) in str(error.value)
    assert jobs_so_far(spark) == before


def test_48_a_schema_of_the_users_must_be_the_sources(spark: SparkSession, levada: LevadaBroker) -> None:
    topic = make_topic(levada.bootstrap)
    put(levada.bootstrap, topic, numbered(2))
    reader = spark.read.format("levada").option("bootstrap", levada.bootstrap).option("subscribe", topic)
    reader = reader.option("columns", "offset,value")
    assert reader.schema("offset BIGINT, value BINARY").load().count() == 2
    with pytest.raises(Exception, match=r"schema: .* is not allowed; what the options say is"):
        reader.schema("offset BIGINT, value STRING").load().collect()


def test_t6_a_table_loses_its_options_and_says_so_and_views_keep_them(
    spark: SparkSession, levada: LevadaBroker
) -> None:
    """T6: Spark drops the options of CREATE TABLE … USING a Python source."""
    topic = make_topic(levada.bootstrap)
    put(levada.bootstrap, topic, numbered(4))
    options = f"(bootstrap '{levada.bootstrap}', subscribe '{topic}')"
    with pytest.raises(
        Exception, match=r"bootstrap or kafka\.bootstrap\.servers: it is missing;.* CREATE TEMPORARY VIEW"
    ):
        spark.sql("DROP TABLE IF EXISTS t6")
        spark.sql(f"CREATE TABLE t6 USING levada OPTIONS {options}")
        spark.sql("SELECT * FROM t6").collect()
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW t6_view USING levada OPTIONS {options}")
    assert spark.sql("SELECT count(*) FROM t6_view").collect()[0][0] == 4
    given = f"WITH (bootstrap = '{levada.bootstrap}', subscribe = '{topic}')"
    assert spark.sql(f"SELECT count(*) FROM t6 {given}").collect()[0][0] == 4


def test_44_one_bad_value_among_a_million(spark: SparkSession, levada: LevadaBroker) -> None:
    """Scenario 44: `fail` names it, `column` keeps it, `deadLetter` puts it aside; a newline in a value changes nothing."""
    topic = make_topic(levada.bootstrap, PARTITIONS)
    million, at = 1_000_000, 123_456
    put_orders(levada.bootstrap, topic, million, bad=at)
    typed: dict[str, Any] = {"columns": "offset,value", "valueFormat": "json", "valueSchema": "id BIGINT, note STRING"}
    with pytest.raises(Exception, match=rf"(?s){topic}-0.*offset {at}\b|offset {at} of {topic}-0"):
        read(spark, levada, topic, **typed).write.format("noop").mode("overwrite").save()
    kept = read(spark, levada, topic, onError="column", **typed)
    counted = kept.selectExpr("count(*)", "count(_error)", "sum(value.id)", "sum(length(value.note))").collect()[0]
    ids = sum(range(million)) - at
    assert tuple(counted) == (million, 1, ids, 3 * (million - 1))
    good = read(spark, levada, topic, onError="deadLetter", **typed)
    counted = good.selectExpr("count(*)", "sum(value.id)").collect()[0]
    assert tuple(counted) == (million - 1, ids)
    (letter,) = read(spark, levada, f"dlq.{topic}", includeHeaders="true").collect()
    headers = {header.key: bytes(header.value).decode() for header in letter.headers}
    assert bytes(letter.value) == b'{"id": }'
    assert (headers["levada.dlq.topic"], headers["levada.dlq.offset"]) == (topic, str(at))


def put_orders(bootstrap: str, topic: str, count: int, *, bad: int) -> None:
    """Orders as JSON, in partition 0 but for the last; each has a newline in it, and one is no JSON."""
    from levada.records.build import build
    from levada.wire.blocking import BlockingClient

    step = 10_000
    with BlockingClient(bootstrap) as client:
        for start in range(0, count, step):
            values = [(None, b'{"id": %d,\n"note": "a\\nb"}' % number) for number in range(start, start + step)]
            if start <= bad < start + step:
                values[bad - start] = (None, b'{"id": }')
            partition = 1 if start + step >= count else 0
            client.produce((topic, partition), build(values, timestamp_ms=NOW_MS))
