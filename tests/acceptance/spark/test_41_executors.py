"""41, its part about executors: killed −9 while topic → Spark → topic runs on a standalone cluster, on Levada and on Apache Kafka."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.brokers import Broker
from support.driver import Client, Driver, Sent
from support.spark_cluster import SparkCluster
from support.spark_process import SparkProcess
from support.spark_reading import configured, read
from support.wait import wait_until

LEVADA = "levada"
PARTITIONS = 4
ROUNDS = int(os.environ.get("LEVADA_KILL_ROUNDS", "2"))
#: Records a round, and how many of them a micro-batch takes: so that there is always a batch under way to be killed in.
ROUND_RECORDS, BATCH_RECORDS = 1_500, 300
#: Far longer than it takes: a cluster starts another executor, and it another Python.
SETTLE_S = 600.0


def start(spark: Any, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_RECORDS)}
    frame = read(spark.readStream, LEVADA, bootstrap, options).repartition(2).select("key", "value")
    configured(frame.writeStream, LEVADA, bootstrap, {"topic": target}).option("checkpointLocation", checkpoint).start()


def failure(spark: Any) -> str | None:
    """Why the query ended, if it did."""
    running = spark.streams.active
    return None if running else "the query has ended"


@pytest.mark.timeout(900 + 60 * ROUNDS)
def test_41_executors_killed_at_any_moment_write_each_input_once(
    cluster: SparkCluster, either: Broker, drivers: Callable[[str], Driver], topic: str, tmp_path: Path
) -> None:
    client, target = Client(drivers("librdkafka"), either.bootstrap), f"{topic}-target"
    chance = random.Random()
    client.create(topic, PARTITIONS)
    client.create(target, PARTITIONS)
    sent: list[bytes] = []

    def copied() -> list[bytes | None]:
        return [at.value for at in client.consume(target, committed=True)]

    def written() -> int:
        return sum(end for _, end in client.bounds(target).values())

    with SparkProcess(tmp_path / "driver", cluster.master, cluster.conf) as driver:
        driver.run(start, either.bootstrap, topic, target, str(tmp_path / "checkpoint"))
        for turn in range(ROUNDS):
            new = [b"%d" % (turn * ROUND_RECORDS + number) for number in range(ROUND_RECORDS)]
            client.produce(topic, [Sent(value, value, number % PARTITIONS) for number, value in enumerate(new)])
            sent += new
            before = written()
            wait_until(lambda: written() > before, SETTLE_S, "a batch of this round")  # noqa: B023
            time.sleep(chance.uniform(0, 1))  # anywhere in a batch
            cluster.kill_executor()
        wait_until(
            lambda: len(copied()) >= len(sent),
            SETTLE_S,
            lambda: f"everything in the target: {len(copied())} of {len(sent)}; {driver.run(failure)}",
        )
    assert Counter(copied()) == Counter(sent)
