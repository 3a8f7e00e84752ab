"""41 and 42 again, without Spark: the sink's own part of a driver, killed −9 at random moments many times over, and its broker too.

LEVADA_KILL_ROUNDS says how often, ten times over; LEVADA_KILL_SEED at which moments.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from levada.spark.options.cluster import Cluster
from levada.spark.sink import commit, stage
from levada.spark.sink.claims import Asking, SinkFenced
from levada.spark.sink.commit import Commit
from levada.spark.sink.stage import Source, hold
from levada.spark.sink.staged import StageKey
from support.batches import make_batch
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

pytestmark = pytest.mark.timeout(180 + 60 * ROUNDS)


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


def staged_batch(cluster: Cluster, topic: str, value: bytes) -> Source:
    """Two pieces for one task, so that there is a moment between them."""
    pieces = [(topic, partition, make_batch(3, value=value).view, 3) for partition in range(2)]
    with cluster.client() as client:
        return hold(client, StageKey(topic, 0, 0, 0, value.decode(), 0), pieces)


def test_42_the_older_of_two_drivers_is_fenced_in_the_middle_of_its_batch(
    either: Broker, drivers: Callable[[str], Driver], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, cluster = Client(drivers("librdkafka"), either.bootstrap), Cluster({"bootstrap": either.bootstrap})
    client.create(topic, 2)
    older, newer = (staged_batch(cluster, topic, value) for value in (b"older", b"newer"))
    within, go_on = threading.Event(), threading.Event()

    def copied(*arguments: Any) -> Iterator[Any]:
        pieces = stage.staged(*arguments)
        if threading.current_thread() is not threading.main_thread():
            yield next(pieces)
            within.set()
            assert go_on.wait(SETTLE_S)
        yield from pieces

    monkeypatch.setattr(commit, "staged", copied)

    def make_visible(source: Source, run: str) -> bool:
        return Commit(cluster, Asking(topic, 0, 0, "query", run), [source], counted=True).run()

    with ThreadPoolExecutor(1) as threads:
        outcome = threads.submit(make_visible, older, "older")
        assert within.wait(SETTLE_S)
        assert make_visible(newer, "newer")
        go_on.set()
        with pytest.raises(SinkFenced, match="run newer has taken over from this run, older"):
            outcome.result(SETTLE_S)
    with pytest.raises(SinkFenced, match="run newer has taken over from this run, older"):
        make_visible(older, "older")
    assert {record.value for record in client.consume(topic, committed=True)} == {b"newer-0", b"newer-1", b"newer-2"}
    assert len(client.consume(topic, committed=True)) == 6
