"""41 again, many more times: the sink's own part of a driver, without Spark around it, killed −9 at random moments, and its broker too.

LEVADA_KILL_ROUNDS says how often, ten times over; LEVADA_KILL_SEED at which moments.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from support.brokers import Broker
from support.driver import Client, Driver
from support.kafka import KafkaBroker
from support.levada import LevadaBroker
from support.sink_driver import BATCH, SinkDrivers
from support.wait import wait_until

ROUNDS = int(os.environ.get("LEVADA_KILL_ROUNDS", "2"))
SEED = int(os.environ.get("LEVADA_KILL_SEED", "0")) or random.randrange(1 << 30)
PARTITIONS = 4
SETTLE_S = 120.0


def check(client: Client, topic: str, batches: int) -> None:
    found = Counter(record.value for record in client.consume(topic, committed=True))
    assert found == Counter(b"%d" % value for value in range(BATCH * batches)), f"seed {SEED}"


def test_41_a_driver_killed_within_its_commits(
    either: Broker, drivers: Callable[[str], Driver], topic: str, tmp_path: Path
) -> None:
    client, chance = Client(drivers("librdkafka"), either.bootstrap), random.Random(SEED)
    client.create(topic, PARTITIONS)
    with SinkDrivers(either.bootstrap, topic, tmp_path / "done") as sink:
        sink.finish(3)
        for _ in range(10 * ROUNDS):
            with sink.running() as driver:
                time.sleep(chance.uniform(0, 0.3))  # anywhere in a batch
                assert driver.ended is None, driver.ended
        batches = sink.done + 3
        sink.finish(batches)
    check(client, topic, batches)


@pytest.mark.parametrize("kind", ["levada", "kafka"])
def test_41_a_broker_killed_within_commits(
    kind: str, drivers: Callable[[str], Driver], topic: str, tmp_path: Path
) -> None:
    """The driver waits for the broker and goes on; where it had to give up, the next one does."""
    broker = LevadaBroker(tmp_path / "broker") if kind == "levada" else KafkaBroker(tmp_path / "broker")
    chance = random.Random(SEED)
    with broker, SinkDrivers(broker.bootstrap, topic, tmp_path / "done") as sink:
        client = Client(drivers("librdkafka"), broker.bootstrap)
        client.create(topic, PARTITIONS)
        sink.finish(3)
        for _ in range(ROUNDS):
            with sink.running() as driver:
                before = sink.done
                time.sleep(chance.uniform(0, 0.3))  # anywhere in a batch
                broker.kill()
                broker.start()
                wait_until(lambda: sink.done > before + 1 or driver.ended, SETTLE_S, "two more batches")  # noqa: B023
        batches = sink.done + 3
        sink.finish(batches)
        check(client, topic, batches)
