"""The source and the sink on a real Spark standalone cluster, with Levada and with Apache Kafka: two addresses change, nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers import Broker
from support.driver import Client, Driver, Sent
from support.spark_cluster import SparkCluster
from support.spark_process import SparkProcess
from support.spark_reading import available, batch, copy, flat, in_order, read

LEVADA = "levada"
PARTITIONS = 4
#: An hour ago: retention goes by these times.
FIRST_MS = int(time.time() * 1000) - 3_600_000
ORDERS = "id BIGINT, user STRING, amount DOUBLE"


@pytest.fixture(scope="module")
def driver(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    with SparkProcess(tmp_path_factory.mktemp("driver"), cluster.master, cluster.conf) as running:
        yield running


@pytest.fixture
def client(either: Broker, drivers: Callable[[str], Driver]) -> Client:
    return Client(drivers("librdkafka"), either.bootstrap)


def records(count: int, first: int = 0) -> list[Sent]:
    return [
        Sent(
            None if number % 7 == 0 else f"value {number}".encode(),
            None if number % 5 == 0 else f"key {number % 11}".encode(),
            number % PARTITIONS,
            [("source", b"test"), ("nothing", None)] if number % 3 == 0 else (),
            FIRST_MS + number,
        )
        for number in range(first, first + count)
    ]


def revenue(spark: Any, bootstrap: str, topic: str) -> dict[str, float]:
    from pyspark.sql import functions as f

    options = {"subscribe": topic, "valueFormat": "json", "valueSchema": ORDERS, "includeHeaders": "false"}
    orders = read(spark.read, LEVADA, bootstrap, options).select("value.*")
    return {row.user: row.amount for row in orders.groupBy("user").agg(f.sum("amount").alias("amount")).collect()}


def test_executors_read_what_a_consumer_reads(
    cluster: SparkCluster, driver: SparkProcess, either: Broker, topic: str, client: Client
) -> None:
    client.create(topic, PARTITIONS)
    for codec in ("none", "lz4", "zstd"):
        client.produce(topic, records(200), codec=codec)
    assert driver.run(batch, LEVADA, either.bootstrap, {"subscribe": topic}) == in_order(client.consume(topic))
    assert len(cluster.executors()) == 2, "it ran where it was meant to"


def test_a_stream_goes_on_where_it_was(
    driver: SparkProcess, either: Broker, topic: str, client: Client, tmp_path: Path
) -> None:
    client.create(topic, PARTITIONS)
    client.produce(topic, records(300))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}
    found = driver.run(available, LEVADA, either.bootstrap, options, str(tmp_path / "checkpoint"))
    assert len(found) > 1 and all(len(part) <= 150 for part in found)
    client.produce(topic, records(50, 300))
    found += driver.run(available, LEVADA, either.bootstrap, options, str(tmp_path / "checkpoint"))
    assert flat(found) == in_order(client.consume(topic))


def test_values_become_typed_columns_in_the_executors(
    driver: SparkProcess, either: Broker, topic: str, client: Client
) -> None:
    orders = [{"id": number, "user": f"user-{number % 9}", "amount": number / 4} for number in range(1000)]
    client.create(topic, PARTITIONS)
    client.produce(
        topic, [Sent(json.dumps(order).encode(), None, number % PARTITIONS) for number, order in enumerate(orders)]
    )
    expected: dict[str, float] = {}
    for order in orders:
        expected[str(order["user"])] = expected.get(str(order["user"]), 0) + float(order["amount"])
    assert driver.run(revenue, either.bootstrap, topic) == expected


def test_from_topic_to_topic_exactly_once(
    driver: SparkProcess, either: Broker, topic: str, client: Client, tmp_path: Path
) -> None:
    """Each input once in what is committed, after the first run as after the second."""
    target = f"{topic}-target"
    client.create(topic, PARTITIONS)
    client.create(target, PARTITIONS)
    for turn in range(2):
        client.produce(topic, records(300, 300 * turn))
        driver.run(copy, LEVADA, either.bootstrap, topic, target, str(tmp_path / "checkpoint"))
        copied, given = client.consume(target, committed=True), client.consume(topic)
        assert sorted(repr(at[3:]) for at in copied) == sorted(repr(at[3:]) for at in given)
