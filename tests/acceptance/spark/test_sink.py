"""`df.write.format("levada")` and `df.writeStream`: what a Kafka consumer then reads, on Levada and on Apache Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import levada as native
from levada.routing import partition_for
from levada.spark.options.cluster import Cluster
from levada.spark.sink.own_topics import SINKS, STAGE
from levada.spark.sink.sinks import Sinks
from support.brokers import Broker
from support.driver import Client, Driver, Sent
from support.levada import LevadaBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELIVERIES = ("exactly_once", "at_least_once")
SCHEMA = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, partition INT"


@pytest.fixture
def client(either: Broker, drivers: Callable[[str], Driver]) -> Client:
    return Client(drivers("librdkafka"), either.bootstrap)


def write(frame: DataFrame, bootstrap: str, **options: Any) -> None:
    writer = frame.write.format("levada").mode("append").option("bootstrap", bootstrap)
    writer.options(**{name: str(value) for name, value in options.items()}).save()


def values(spark: SparkSession, first: int, last: int, partitions: int = 2) -> DataFrame:
    return spark.range(first, last, 1, partitions).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"
    )


def read_values(client: Client, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in client.consume(topic, committed=True))


def numbers(first: int, last: int) -> Counter[bytes | None]:
    return Counter(b"%d" % number for number in range(first, last))


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_rows_are_the_records_that_a_consumer_reads(spark, either, client, topic, delivery, codec):
    client.create(topic, 3)
    rows = [
        (b"k1", b"v1", None, 0),
        (None, None, [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], 1),
        (b"", b"", None, 2),
        ("ключ".encode(), b"\xff\x00" * 500, [{"key": "b", "value": b""}], 2),
    ]
    frame = spark.createDataFrame(rows, SCHEMA).selectExpr("*", "timestamp_millis(1000 * (partition + 1)) AS timestamp")
    write(frame, either.bootstrap, topic=topic, delivery=delivery, compression=codec, includeTimestamp=True)
    found = {
        (one.partition, one.key, one.value, one.headers, one.timestamp_ms)
        for one in client.consume(topic, committed=True)
    }
    assert found == {
        (partition, key, value, tuple((one["key"], one["value"]) for one in headers or ()), 1000 * (partition + 1))
        for key, value, headers, partition in rows
    }


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_many_rows_arrive_once_and_in_order_of_their_partition(spark, either, client, topic, delivery):
    client.create(topic, 4)
    frame = spark.range(0, 60_000, 1, 3).selectExpr(
        "CAST(id % 4 AS INT) AS partition", "CAST(id AS STRING) AS key", "repeat('x', 100) AS value"
    )
    write(frame, either.bootstrap, topic=topic, delivery=delivery)
    found = client.consume(topic, committed=True)
    assert Counter(record.key for record in found) == numbers(0, 60_000)
    assert all(int(record.key) % 4 == record.partition for record in found)
    for partition in range(4):
        keys = [int(record.key) for record in found if record.partition == partition]
        for task in range(3):
            ours = [key for key in keys if key // 20_000 == task]
            assert ours == sorted(ours)


def test_each_row_may_name_its_topic(spark, either, client, topic):
    other = f"{topic}-other"
    client.create(topic, 2)
    client.create(other, 3)
    frame = values(spark, 0, 100).selectExpr("*", f"IF(value < 50, '{topic}', '{other}') AS topic")
    write(frame, either.bootstrap)
    found = read_values(client, topic) + read_values(client, other)
    assert found == numbers(0, 100)
    assert all(int(value) < 50 for value in read_values(client, topic) if len(value) == 2)


@pytest.mark.parametrize("router", ["fnv1a64", "murmur2"])
def test_47_sink_and_native_publisher_put_a_key_in_the_same_partition(spark, levada, drivers, topic, router):
    client = Client(drivers("librdkafka"), levada.bootstrap)
    keys = [f"user-{number}" for number in range(200)]
    with native.connect(levada.grpc) as publishing:
        publishing.manager.create_topic(topic, partitions=7, settings={"levada.router": router})
        with publishing.producer() as producer:
            for key in keys:
                producer.publish(topic, b"native", key=key.encode())
    for delivery in DELIVERIES:
        frame = spark.createDataFrame([(key, delivery) for key in keys], "key STRING, value STRING")
        write(frame, levada.bootstrap, topic=topic, delivery=delivery)
    places: dict[bytes, set[int]] = {}
    written = Counter()
    for record in client.consume(topic, committed=True):
        places.setdefault(record.key, set()).add(record.partition)
        written[record.value] += 1
    assert written == {b"native": 200, b"exactly_once": 200, b"at_least_once": 200}
    assert all(len(found) == 1 for found in places.values())
    assert len(set().union(*places.values())) == 7


def test_47_on_apache_kafka_a_topics_router_is_kept_in_levadas_own_topic(spark, kafka, drivers, topic):
    client = Client(drivers("librdkafka"), kafka.bootstrap)
    client.create(topic, 12)
    write(spark.createDataFrame([("user-123", "murmur2")], "key STRING, value STRING"), kafka.bootstrap, topic=topic)
    client.create("__levada.topics", 1, {"cleanup.policy": "compact"})
    entry = b'{"settings": {"levada.router": "fnv1a64"}}'
    client.produce("__levada.topics", [Sent(entry, topic.encode(), 0), Sent(b"{}", b"another", 0)])
    write(spark.createDataFrame([("user-123", "fnv1a64")], "key STRING, value STRING"), kafka.bootstrap, topic=topic)
    assert {record.value: record.partition for record in client.consume(topic, committed=True)} == {
        b"murmur2": partition_for(b"user-123", "murmur2", 12),
        b"fnv1a64": partition_for(b"user-123", "fnv1a64", 12),
    }


def test_a_batch_with_an_id_is_written_once_however_often(spark, either, client, topic):
    client.create(topic, 2)
    for batch in (0, 0, 1, 1, 0, 2):
        write(values(spark, 10 * batch, 10 * batch + 10), either.bootstrap, topic=topic, sinkId=topic, batchId=batch)
    assert read_values(client, topic) == numbers(0, 30)
    with Cluster({"bootstrap": either.bootstrap}).client() as asking:
        seen = Sinks(asking).last_committed(topic)
        assert seen is not None and (seen.epoch, seen.batch) == (0, 2)
        assert Sinks(asking).last_committed("never written") is None


def test_a_new_epoch_counts_anew_and_ends_the_old_one(spark, either, client, topic):
    client.create(topic, 2)
    write(values(spark, 0, 10), either.bootstrap, topic=topic, sinkId=topic, batchId=5)
    write(values(spark, 10, 20), either.bootstrap, topic=topic, sinkId=topic, sinkEpoch=1, batchId=0)
    with pytest.raises(Exception, match=r"SinkFenced.* is in epoch 1; this write has sinkEpoch=0"):
        write(values(spark, 20, 30), either.bootstrap, topic=topic, sinkId=topic, batchId=6)
    assert read_values(client, topic) == numbers(0, 20)


def test_a_write_that_fails_in_one_task_leaves_nothing(spark, either, client, topic):
    client.create(topic, 2)
    frame = values(spark, 0, 1000).selectExpr("*", "CAST(IF(value = 999, 7, 0) AS INT) AS partition")
    with pytest.raises(Exception, match=rf"partition 7 of topic '{topic}', which has 2: 0 to 1 are allowed"):
        write(frame, either.bootstrap, topic=topic)
    assert client.consume(topic, committed=True) == []
    assert all(end == 0 for _, end in client.bounds(topic).values())


def test_a_record_too_large_is_refused_with_its_size_and_the_limit(spark, either, client, topic):
    client.create(topic, 2, {"max.message.bytes": "2000"})
    frame = spark.createDataFrame([("x" * 3000,)], "value STRING")
    with pytest.raises(Exception, match=r"RecordTooLarge.*makes a batch of 30\d\d bytes.*max.message.bytes is 2000"):
        write(frame, either.bootstrap, topic=topic)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "no-such-topic"}, "there is no topic 'no-such-topic' to write to"),
        ({"topic": "t", "delivry": "exactly_once"}, "delivry: there is no such option; did you mean delivery"),
        ({"topic": "t", "delivery": "twice"}, "delivery: 'twice' is not allowed; exactly_once or at_least_once is"),
        ({}, "no topic to write to: give the option topic, or a column 'topic'"),
        ({"bootstrap": "127.0.0.1:1", "topic": "t", "kafka.socket.connection.setup.timeout.ms": "300"}, "127.0.0.1:1 cannot be reached"),
    ],
)  # fmt: skip
def test_48_what_is_wrong_is_said_before_any_task_runs(spark, levada, options, message):
    ran = spark.sparkContext.accumulator(0)
    frame = values(spark, 0, 10).rdd.map(lambda row: ran.add(1) or row).toDF("key STRING, value STRING")
    with pytest.raises(Exception, match=message):
        write(frame, **{"bootstrap": levada.bootstrap, **options})
    assert ran.value == 0


def test_overwriting_is_refused(spark, levada, drivers, topic):
    Client(drivers("librdkafka"), levada.bootstrap).create(topic)
    with pytest.raises(Exception, match="mode: 'overwrite' is not allowed; records are never replaced: append is"):
        values(spark, 0, 1).write.format("levada").mode("overwrite").option("bootstrap", levada.bootstrap).option(
            "topic", topic
        ).save()


def test_the_stage_is_given_back(spark, drivers, topic, tmp_path):
    """Once a batch is visible, or has failed; beside those of other sinks, and of what is no sink's."""
    with LevadaBroker(tmp_path / "broker", {"levada.durability": "os"}) as broker:
        client = Client(drivers("librdkafka"), broker.bootstrap)
        client.create(topic, 2)
        frame = spark.range(0, 200_000, 1, 8).selectExpr("repeat('x', 100) AS value")
        write(values(spark, 0, 10), broker.bootstrap, topic=topic, sinkId="small", batchId=0)
        write(frame, broker.bootstrap, topic=topic)
        with pytest.raises(Exception, match="partition 2"):
            failing = frame.selectExpr("value", "CAST(IF(rand() < 0.00001, 2, 0) AS INT) AS partition")
            write(failing.unionAll(failing.selectExpr("value", "2")), broker.bootstrap, topic=topic)
        write(frame, broker.bootstrap, topic=topic, sinkId="large", batchId=0)
        write(frame, broker.bootstrap, topic=topic, sinkId="large", batchId=1)
        bounds = client.bounds(STAGE.name)
        assert sum(end for _, end in bounds.values()) > 60
        assert sum(end - begin for begin, end in bounds.values()) < 10
        with Cluster({"bootstrap": broker.bootstrap}).client() as asking:
            settings = {name: entry.value for name, entry in asking.describe_configs(STAGE.name).items()}
    assert settings | STAGE.settings == settings


def test_what_was_staged_and_is_gone_fails_the_batch(either, client, topic):
    from levada.spark.options.sink import SinkOptions
    from levada.spark.sink.claims import Asking
    from levada.spark.sink.commit import Commit
    from levada.spark.sink.stage import StageLost, hold
    from levada.spark.sink.staged import StageKey
    from support.batches import make_batch

    client.create(topic, 1)
    cluster = SinkOptions.of({"bootstrap": either.bootstrap, "topic": topic}, streaming=False).cluster
    with cluster.client() as staging:
        source = hold(staging, StageKey(topic, 0, 0, 0, "a", 0), [(topic, 0, make_batch(3).view, 3)])
        asking = Asking(topic, 0, 0)
        moved = source._replace(key=source.key._replace(attempt="b"))
        with pytest.raises(StageLost, match=f"what was staged as {topic}/0/0/0/b/0 .* is lost"):
            Commit(cluster, asking, [moved], counted=True).run()
        staging.delete_records({(STAGE.name, source.partition): source.pieces[0].offset + 1})
        with pytest.raises(StageLost, match="is lost"):
            Commit(cluster, asking, [source], counted=True).run()
    assert client.consume(topic, committed=True) == []
    assert SINKS.name in client.topics()


def test_a_stream_writes_each_batch_once_and_a_restart_goes_on(spark, either, client, topic, tmp_path):
    target = f"{topic}-target"
    client.create(topic, 2)
    client.create(target, 3)
    for turn in range(3):
        client.produce(topic, [Sent(b"%d" % number, b"%d" % number) for number in range(100 * turn, 100 * turn + 100)])
        copy(spark, either.bootstrap, topic, target, tmp_path / "checkpoint")
        assert read_values(client, target) == numbers(0, 100 * turn + 100)


def copy(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: Path, **options: Any) -> None:
    frame = (
        spark.readStream.format("levada")
        .options(bootstrap=bootstrap, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="60")
        .load()
        .select("key", "value")
    )
    writer = frame.writeStream.format("levada").options(bootstrap=bootstrap, topic=target, **options)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def test_a_lost_checkpoint_under_a_fixed_id_needs_a_new_epoch(spark, either, client, topic, tmp_path):
    target = f"{topic}-target"
    client.create(topic, 1)
    client.create(target, 1)
    client.produce(topic, [Sent(b"%d" % number) for number in range(50)])
    copy(spark, either.bootstrap, topic, target, tmp_path / "first", sinkId=target)
    with pytest.raises(Exception, match=r"sinkId: .* it counts the batches of query .*sinkEpoch=1 to begin anew"):
        copy(spark, either.bootstrap, topic, target, tmp_path / "second", sinkId=target)
    assert read_values(client, target) == numbers(0, 50)
    copy(spark, either.bootstrap, topic, target, tmp_path / "third", sinkId=target, sinkEpoch="1")
    assert read_values(client, target) == numbers(0, 50) + numbers(0, 50)


def test_writes_within_foreach_batch_are_repeated_without_effect(spark, either, client, topic, tmp_path):
    """A batch that fails after one of its two sinks was written: the restart writes the other alone."""
    targets = (f"{topic}-one", f"{topic}-two")
    client.create(topic, 1)
    for target in targets:
        client.create(target, 2)
    client.produce(topic, [Sent(b"%d" % number) for number in range(50)])
    failing = [True]

    def both(frame: DataFrame, number: int) -> None:
        for place, target in enumerate(targets):
            write(frame, either.bootstrap, topic=target, sinkId=f"{topic}.{place}", batchId=number)
            if failing and place == 0:
                raise RuntimeError("between the two")

    def run() -> None:
        frame = spark.readStream.format("levada").options(
            bootstrap=either.bootstrap, subscribe=topic, startingOffsets="earliest"
        )
        writer = frame.load().select("key", "value").writeStream.foreachBatch(both)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    with pytest.raises(Exception, match="between the two"):
        run()
    assert [read_values(client, target) for target in targets] == [numbers(0, 50), Counter()]
    failing.clear()
    run()
    assert [read_values(client, target) for target in targets] == [numbers(0, 50), numbers(0, 50)]


def test_levada_keeps_the_stage_in_memory_and_the_sinks_on_disk(spark, levada: LevadaBroker, drivers, topic):
    client = Client(drivers("librdkafka"), levada.bootstrap)
    client.create(topic)
    write(values(spark, 0, 1), levada.bootstrap, topic=topic, sinkId=topic, batchId=0)
    assert client.configs(STAGE.name)["levada.durability"] == "os"
    assert client.configs(SINKS.name)["levada.durability"] == "fsync"
