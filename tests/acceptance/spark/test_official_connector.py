"""Spark's own Kafka connector, with its official jars, reads from Levada and writes to it: batch, stream, by offset and by time.

The session is in a process of its own: jars are for a JVM what they were when it started.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.brokers import Broker
from support.driver import Client, Seen, Sent
from support.jars import spark_connector
from support.spark_process import SparkProcess
from support.spark_reading import available, batch, configured, copy, flat, in_order, read, rows
from support.wait import wait_until

KAFKA = "kafka"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: An hour ago: retention goes by these times.
FIRST_MS = int(time.time() * 1000) - 3_600_000
PARTITIONS = 4


@pytest.fixture(scope="module")
def connector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    with SparkProcess(tmp_path_factory.mktemp("spark"), conf={"spark.jars": spark_connector()}) as driver:
        yield driver


# What runs in the driver, beside what support.spark_reading has.


def start(spark: Any, bootstrap: str, options: Mapping[str, str], name: str) -> None:
    read(spark.readStream, KAFKA, bootstrap, options).writeStream.format("memory").queryName(name).start()


def arrived(spark: Any, name: str) -> list[Seen]:
    return rows(spark.table(name))


def stop(spark: Any) -> None:
    for query in spark.streams.active:
        query.stop()


def write(spark: Any, bootstrap: str, records: list[tuple[Any, ...]]) -> None:
    """Rows of (topic, partition, key, value, headers)."""
    schema = "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>"
    configured(spark.createDataFrame(records, schema).write, KAFKA, bootstrap, {}).save()


# The tests.


def records(count: int, first: int = 0) -> list[Sent]:
    """Round the partitions, a second apart, with null keys, null values and headers among them."""
    return [
        Sent(
            None if number % 7 == 0 else f"value {number}".encode(),
            None if number % 5 == 0 else f"key {number % 11}".encode(),
            number % PARTITIONS,
            [("source", b"test"), ("nothing", None), ("source", b"again")] if number % 3 == 0 else (),
            FIRST_MS + number * 1000,
        )
        for number in range(first, first + count)
    ]


def test_a_batch_is_what_a_consumer_reads(connector: SparkProcess, broker: Broker, topic: str, admin: Client) -> None:
    admin.create(topic, PARTITIONS)
    for turn, codec in enumerate(CODECS):
        admin.produce(topic, records(60, turn * 60), codec=codec)
    expected = in_order(admin.consume(topic))
    assert len(expected) == 60 * len(CODECS)
    assert connector.run(batch, KAFKA, broker.bootstrap, {"subscribe": topic}) == expected
    assert (
        connector.run(batch, KAFKA, broker.bootstrap, {"subscribePattern": f"{topic}.*", "minPartitions": "9"})
        == expected
    )
    some = json.dumps({topic: [1, 3]})
    assert connector.run(batch, KAFKA, broker.bootstrap, {"assign": some}) == [
        at for at in expected if at.partition in (1, 3)
    ]


def test_a_range_of_offsets(connector: SparkProcess, broker: Broker, topic: str, admin: Client) -> None:
    admin.create(topic, PARTITIONS)
    admin.produce(topic, records(200))
    first, last = {0: 3, 1: 50, 2: -2, 3: 10}, {0: 4, 1: 50, 2: 20, 3: -1}
    options = {
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: first}),
        "endingOffsets": json.dumps({topic: last}),
    }
    bounds = {0: (3, 4), 1: (50, 50), 2: (0, 20), 3: (10, 50)}
    expected = [at for at in in_order(admin.consume(topic)) if at.offset in range(*bounds[at.partition])]
    assert connector.run(batch, KAFKA, broker.bootstrap, options) == expected


def test_a_range_of_time(connector: SparkProcess, broker: Broker, topic: str, admin: Client) -> None:
    admin.create(topic, PARTITIONS)
    admin.produce(topic, records(200))
    everything = in_order(admin.consume(topic))

    def between(first_ms: int, end_ms: int) -> list[Seen]:
        return [at for at in everything if first_ms <= at.timestamp_ms < end_ms]

    first, end = FIRST_MS + 20_500, FIRST_MS + 90_000
    options = {"subscribe": topic, "startingTimestamp": str(first), "endingTimestamp": str(end)}
    assert connector.run(batch, KAFKA, broker.bootstrap, options) == between(first, end)
    from_here = {topic: {part: first + 1000 * part for part in range(PARTITIONS)}}
    options = {"subscribe": topic, "startingOffsetsByTimestamp": json.dumps(from_here)}
    late = [at for at in everything if at.timestamp_ms >= from_here[topic][at.partition]]
    assert connector.run(batch, KAFKA, broker.bootstrap, options) == late
    options = {"subscribe": topic, "startingTimestamp": str(FIRST_MS + 10**9)}
    nothing = connector.run(batch, KAFKA, broker.bootstrap, {**options, "startingOffsetsByTimestampStrategy": "latest"})
    assert nothing == []


def test_only_what_was_committed(connector: SparkProcess, broker: Broker, topic: str, admin: Client) -> None:
    """Aborted records are left out, and an open transaction ends what can be read."""
    admin.create(topic, PARTITIONS)
    producer = admin.transaction(topic, topic)
    for turn, end in enumerate(("commit", "abort", "commit", "abort")):
        producer.begin()
        producer.send(topic, records(40, turn * 40))
        getattr(producer, end)()
    producer.begin()
    producer.send(topic, [Sent(b"open", b"k", 0)])
    admin.produce(topic, [Sent(b"behind the open one", b"k", 0), Sent(b"beside it", b"k", 1)])
    options = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    committed = in_order(admin.consume(topic, committed=True))
    assert len(committed) == 81
    assert connector.run(batch, KAFKA, broker.bootstrap, options) == committed
    everything = in_order(admin.consume(topic))
    assert connector.run(batch, KAFKA, broker.bootstrap, {"subscribe": topic}) == everything
    producer.abort()
    producer.close()
    assert connector.run(batch, KAFKA, broker.bootstrap, options) == in_order(admin.consume(topic, committed=True))


def test_a_stream_goes_on_where_it_was(
    connector: SparkProcess, broker: Broker, topic: str, admin: Client, tmp_path: Path
) -> None:
    admin.create(topic, PARTITIONS)
    admin.produce(topic, records(300))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    checkpoint = str(tmp_path / "checkpoint")
    found = connector.run(available, KAFKA, broker.bootstrap, options, checkpoint)
    assert [len(part) for part in found] == [100, 100, 100]
    assert flat(found) == in_order(admin.consume(topic))
    admin.produce(topic, records(50, 300))
    assert flat(found + connector.run(available, KAFKA, broker.bootstrap, options, checkpoint)) == in_order(
        admin.consume(topic)
    )
    assert flat(connector.run(available, KAFKA, broker.bootstrap, options, checkpoint)) == []


def test_a_stream_from_a_time_on(
    connector: SparkProcess, broker: Broker, topic: str, admin: Client, tmp_path: Path
) -> None:
    admin.create(topic, PARTITIONS)
    admin.produce(topic, records(100))
    first = FIRST_MS + 60_000
    options = {"subscribe": topic, "startingTimestamp": str(first)}
    found = connector.run(available, KAFKA, broker.bootstrap, options, str(tmp_path / "checkpoint"))
    assert flat(found) == [at for at in in_order(admin.consume(topic)) if at.timestamp_ms >= first]


def test_a_running_stream_sees_new_records_and_new_partitions(
    connector: SparkProcess, broker: Broker, topic: str, admin: Client
) -> None:
    admin.create(topic, PARTITIONS)
    admin.produce(topic, records(20))
    name = topic.replace("-", "_")
    connector.run(start, broker.bootstrap, {"subscribe": topic, "startingOffsets": "earliest"}, name)
    try:
        for turn in range(2):
            wait_until(lambda: connector.run(arrived, name) == in_order(admin.consume(topic)), 60, "what was produced")
            admin.expand(topic, PARTITIONS + turn + 1)
            admin.produce(topic, [Sent(b"new", b"k", PARTITIONS + turn), *records(20)])
        wait_until(lambda: connector.run(arrived, name) == in_order(admin.consume(topic)), 60, "the new partitions")
    finally:
        connector.run(stop)


def test_what_a_batch_writes_is_what_a_consumer_reads(
    connector: SparkProcess, broker: Broker, topic: str, admin: Client
) -> None:
    targets = [f"{topic}-{number}" for number in range(2)]
    for target in targets:
        admin.create(target, PARTITIONS)
    sent = records(400)
    written = [
        (targets[number % 2], record.partition, record.key, record.value, [*record.headers] or None)
        for number, record in enumerate(sent)
    ]
    connector.run(write, broker.bootstrap, written)
    for number, target in enumerate(targets):
        found = [(at.partition, at.key, at.value, at.headers) for at in admin.consume(target)]
        wanted = [(record.partition, record.key, record.value, tuple(record.headers)) for record in sent[number::2]]
        assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_a_stream_from_topic_to_topic(
    connector: SparkProcess, broker: Broker, topic: str, admin: Client, tmp_path: Path
) -> None:
    """Keyed records land where Java's own partitioner puts them."""
    target = f"{topic}-target"
    admin.create(topic, PARTITIONS)
    admin.create(target, PARTITIONS)
    for turn in range(2):
        admin.produce(topic, records(150, 150 * turn))
        connector.run(copy, KAFKA, broker.bootstrap, topic, target, str(tmp_path / "checkpoint"))
        copied, given = admin.consume(target), admin.consume(topic)
        assert sorted(map(what, copied)) == sorted(map(what, given))
    places = {at.key: at.partition for at in copied if at.key is not None}
    assert all(places[at.key] == at.partition for at in copied if at.key is not None)
    assert len(set(places.values())) > 1


def what(record: Seen) -> str:
    return repr((record.key, record.value, record.headers))
