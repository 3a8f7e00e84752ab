"""Scenario 46, the hard way: the archiver's process is killed −9 at random moments while records come and retention deletes.

LEVADA_KILL_ROUNDS says how often on Spark; without a JVM it dies twice as often.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from levada.spark.archive.wanted import Archive
from levada.spark.options.cluster import Cluster
from support.archives import IMPATIENT, NoSpark, archive_all, cluster_of, fill, lag, make_archived, starts
from support.archiving import keep_archived
from support.levada import LevadaBroker
from support.spark_process import TESTS, SparkProcess
from support.wait import wait_until

ROUNDS = int(os.environ.get("LEVADA_KILL_ROUNDS", "2"))
PARTITIONS = 3

#: Runs while the `with` lasts, and is killed then; gives what says how it ended, while that is wrong.
Running = Callable[[Path, str, str], AbstractContextManager[Callable[[], str]]]


@contextmanager
def on_spark(home: Path, bootstrap: str, topic: str) -> Iterator[Callable[[], str]]:
    with SparkProcess(home) as driver:
        running = driver.submit(keep_archived, bootstrap, topic)
        yield lambda: str(running.exception()) if running.done() else ""


@contextmanager
def plain(home: Path, bootstrap: str, topic: str) -> Iterator[Callable[[], str]]:
    command = [sys.executable, "-m", "support.archiving", bootstrap, topic]
    running = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(TESTS)})
    try:
        yield lambda: "" if running.poll() is None else f"it ended with {running.returncode}"
    finally:
        running.kill()
        running.wait()


def version(place: str) -> int:
    return DeltaTable(place).version() if Path(place, "_delta_log", f"{0:020d}.json").exists() else -1


class Producing:
    """Writes number after number, while the `with` lasts."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.count = 0
        self._cluster = cluster
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def _produce(self) -> None:
        while not self._ended.is_set():
            fill(self._cluster, self._topic, self.count, 3_000, PARTITIONS)
            self.count += 3_000
            self._ended.wait(0.05)

    def __enter__(self) -> Producing:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        self._thread.join()


def check(cluster: Cluster, archive: Archive, count: int) -> None:
    """All of it is there, each offset once, and nothing is held up."""
    archive_all(NoSpark(), cluster, archive)
    assert lag(cluster, archive) == 0
    wait_until(lambda: min(starts(cluster, archive.topic)) == count // PARTITIONS, 90, "retention does not go on")
    rows = pl.scan_delta(archive.place).select("partition", "offset", "value").sort("partition", "offset").collect()
    assert rows.height == count
    found = [(partition, offset, int(value)) for partition, offset, value in rows.rows()]
    assert found == sorted((number % PARTITIONS, number // PARTITIONS, number) for number in range(count))


@pytest.mark.timeout(240 + 120 * ROUNDS)
@pytest.mark.parametrize(("running", "rounds"), [(plain, 2 * ROUNDS), (on_spark, ROUNDS)], ids=["plain", "spark"])
def test_each_offset_is_archived_once_however_often_the_archiver_is_killed(
    tmp_path: Path, running: Running, rounds: int
) -> None:
    chance = random.Random(int(os.environ.get("LEVADA_KILL_SEED", "46")))
    with LevadaBroker(tmp_path / "broker", IMPATIENT) as broker:
        cluster = cluster_of(broker.bootstrap)
        archive = make_archived(cluster, tmp_path / "lake", PARTITIONS)
        with Producing(cluster, archive.topic) as producing:
            for number in range(rounds):
                before = version(archive.place)
                with running(tmp_path / f"archiver-{number}", broker.bootstrap, archive.topic) as wrong:
                    wait_until(
                        lambda wrong=wrong, before=before: wrong() or version(archive.place) > before,  # type: ignore[misc]
                        180,
                        "nothing was committed",
                    )
                    assert not wrong()
                    time.sleep(chance.uniform(0, 0.7))  # somewhere between two commits, or in one
        check(cluster, archive, producing.count)
