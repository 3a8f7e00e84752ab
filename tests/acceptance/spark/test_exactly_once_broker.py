"""41: topic → Spark → topic, the broker killed −9 at random moments: each input exactly once. T4: a query stopped within a write."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from levada.wire.answers import READ_UNCOMMITTED
from support.brokers import Broker
from support.driver import Client, Driver
from support.exactly_once import PARTITIONS, ROUND_RECORDS, ROUNDS, SEED, SETTLE_S, copied, ends, feed, finish, start
from support.kafka import KafkaBroker
from support.levada import LevadaBroker
from support.wait import wait_until

pytestmark = pytest.mark.timeout(600 + 150 * ROUNDS)


@pytest.fixture
def client(either: Broker, drivers: Callable[[str], Driver]) -> Client:
    return Client(drivers("librdkafka"), either.bootstrap)


@pytest.fixture(params=["levada", "kafka"])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker that may be killed and started again."""
    running = LevadaBroker(tmp_path / "broker") if request.param == "levada" else KafkaBroker(tmp_path / "broker")
    with running:
        yield running


def test_41_the_broker_killed_at_any_moment(spark, mortal: Broker, drivers, topic: str, tmp_path: Path) -> None:
    """Where the sink waits for the broker the query goes on; where it cannot, it fails, and its restart goes on."""
    target, chance = f"{topic}-target", random.Random(SEED)
    client = Client(drivers("librdkafka"), mortal.bootstrap)
    client.create(topic, PARTITIONS)
    client.create(target, PARTITIONS)
    work = (mortal.bootstrap, topic, target, str(tmp_path / "checkpoint"), {})
    sent: list[bytes] = []
    query = start(spark, *work)
    for _ in range(ROUNDS):
        sent += feed(client, topic, len(sent), ROUND_RECORDS)
        before = ends(mortal.bootstrap, target, READ_UNCOMMITTED)
        wait_until(
            lambda: ends(mortal.bootstrap, target, READ_UNCOMMITTED) > before or not query.isActive,  # noqa: B023
            SETTLE_S,
            "a batch of this round",
        )
        time.sleep(chance.uniform(0, 1.5))  # anywhere in a batch
        mortal.kill()
        mortal.start()
        if not query.isActive:
            query = start(spark, *work)
    query.stop()
    finish(spark, *work)
    assert copied(client, target) == Counter(sent), f"seed {SEED}"


def test_t4_a_query_stopped_within_a_write_leaves_nothing_and_repeats_nothing(
    spark, either: Broker, client: Client, topic: str, tmp_path: Path
) -> None:
    target, chance = f"{topic}-target", random.Random(SEED)
    client.create(topic, PARTITIONS)
    client.create(target, PARTITIONS)
    work = (either.bootstrap, topic, target, str(tmp_path / "checkpoint"), {})
    sent: list[bytes] = []
    for _ in range(max(ROUNDS, 4)):
        sent += feed(client, topic, len(sent), ROUND_RECORDS // 2)
        before = ends(either.bootstrap, target, READ_UNCOMMITTED)
        query = start(spark, *work)
        wait_until(lambda: ends(either.bootstrap, target, READ_UNCOMMITTED) > before, SETTLE_S, "a batch")  # noqa: B023
        time.sleep(chance.uniform(0, 0.4))  # anywhere in a batch
        query.stop()
        assert not copied(client, target) - Counter(sent), f"seed {SEED}"
    finish(spark, *work)
    assert copied(client, target) == Counter(sent), f"seed {SEED}"
