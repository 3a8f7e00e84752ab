"""41: topic → Spark → topic, the driver killed −9 at random moments: each input exactly once. 42: two drivers, one sink."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from levada.wire.answers import LATEST, READ_COMMITTED, READ_UNCOMMITTED
from levada.wire.blocking import BlockingClient
from support.brokers import Broker
from support.driver import Client, Driver
from support.exactly_once import (
    BATCH_RECORDS,
    PARTITIONS,
    ROUND_RECORDS,
    ROUNDS,
    SEED,
    SETTLE_S,
    begin,
    copied,
    ending,
    ends,
    feed,
    finish,
    signalled,
    tree,
)
from support.spark_process import SparkProcess
from support.wait import wait_until

pytestmark = pytest.mark.timeout(600 + 150 * ROUNDS)


@pytest.fixture
def client(either: Broker, drivers: Callable[[str], Driver]) -> Client:
    return Client(drivers("librdkafka"), either.bootstrap)


def test_41_the_driver_killed_at_any_moment(either: Broker, client: Client, topic: str, tmp_path: Path) -> None:
    target, chance = f"{topic}-target", random.Random(SEED)
    client.create(topic, PARTITIONS)
    client.create(target, PARTITIONS)
    work = (either.bootstrap, topic, target, str(tmp_path / "checkpoint"), {})
    sent: list[bytes] = []
    for turn in range(ROUNDS):
        sent += feed(client, topic, len(sent), ROUND_RECORDS)
        before = ends(either.bootstrap, target, READ_UNCOMMITTED)
        with SparkProcess(tmp_path / f"driver-{turn}") as driver:
            driver.run(begin, *work, timeout_s=SETTLE_S)
            wait_until(lambda: ends(either.bootstrap, target, READ_UNCOMMITTED) > before, SETTLE_S, driver.text)  # noqa: B023
            time.sleep(chance.uniform(0, 1.5))  # anywhere in a batch
            signalled(tree(driver), signal.SIGKILL)
        assert not Counter(copied(client, target)) - Counter(sent), f"seed {SEED}, round {turn}"
    with SparkProcess(tmp_path / "last") as driver:
        driver.run(finish, *work, timeout_s=SETTLE_S)
    assert copied(client, target) == Counter(sent), f"seed {SEED}"


def test_42_the_older_of_two_drivers_is_fenced_and_nothing_of_its_open_batch_is_seen(
    spark, either: Broker, client: Client, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}-target"
    client.create(topic, PARTITIONS)
    client.create(target, PARTITIONS)
    sent = feed(client, topic, 0, 40 * BATCH_RECORDS)
    older, newer = tmp_path / "older", tmp_path / "newer"

    with SparkProcess(tmp_path / "driver") as driver, BlockingClient(either.bootstrap) as asking:
        places = dict.fromkeys(((target, index) for index in range(PARTITIONS)), LATEST)
        work = (either.bootstrap, topic, target, str(older), {"sinkId": target})
        driver.run(begin, *work, timeout_s=SETTLE_S)

        def is_open() -> bool:
            return asking.list_offsets(places) != asking.list_offsets(places, isolation=READ_COMMITTED)

        def stopped_within_a_batch() -> bool:
            everybody, until = tree(driver), time.monotonic() + 1
            while not is_open():
                if time.monotonic() > until:
                    return False
            signalled(everybody, signal.SIGSTOP)
            if is_open():
                return True
            signalled(everybody, signal.SIGCONT)
            return False

        wait_until(stopped_within_a_batch, SETTLE_S, "a moment within a transaction")
        shutil.copytree(older, newer)
        finish(spark, either.bootstrap, topic, target, str(newer), {"sinkId": target})
        assert copied(client, target) == Counter(sent)
        outcome = driver.submit(ending)
        signalled(tree(driver), signal.SIGCONT)
        said = outcome.result(SETTLE_S)
    assert "SinkFenced" in said
    assert "has taken over from this run" in said
    assert copied(client, target) == Counter(sent)
