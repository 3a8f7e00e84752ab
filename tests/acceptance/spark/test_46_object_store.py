"""Scenario 46 in an object store: a topic's whole history, and a pipeline's lake, in buckets of a real S3 server."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars
import pytest

from levada.spark.archive.table import ArchiveTable, Overtaken, Whose
from levada.spark.archive.trial import NotExclusive, check_exclusive
from levada.spark.archive.wanted import Typed
from support.archives import archive_all, cluster_of, expected, figures, fill
from support.levada import COMMAND, LevadaBroker
from support.s3 import S3, environment, forgetful
from support.spark_pipelines import run_once, send
from support.spark_process import SparkFailed, SparkProcess
from support.spark_topics import make_topic

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with S3(tmp_path_factory.mktemp("s3")) as running:
        running.make_bucket("lake")
        yield running


@pytest.fixture
def credentials(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def driver(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    """It and its executors take credentials from their environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        process = SparkProcess(tmp_path_factory.mktemp("driver"))
    with process:
        yield process


# What runs in the driver.


def archive(spark: Any, bootstrap: str, topic: str) -> int:
    """How many records it archived."""
    from levada.spark.archive.discovery import archives

    cluster = cluster_of(bootstrap)
    with cluster.client() as client:
        [found] = archives(client, [topic])
    return archive_all(spark, cluster, found).progress().rows_total


def compacted(spark: Any, bootstrap: str, topic: str) -> tuple[int, int, int]:
    """How many files were put together, as how many, and how many were removed since nothing names them."""
    from levada.spark.archive.discovery import archives
    from levada.spark.archive.running import tidy
    from support.archives import EAGER

    with cluster_of(bootstrap).client() as client:
        [found] = archives(client, [topic])
        whose = Whose(topic, str(client.topics([topic])[topic].topic_id))
    done, removed = tidy(
        spark, ArchiveTable.open(found.place, whose, found.typed), found, EAGER._replace(vacuum_hours=0)
    )
    return done.files_before, done.files_after, removed


def read(spark: Any, bootstrap: str, topic: str) -> tuple[int, int, int]:
    options = {"bootstrap": bootstrap, "subscribe": topic, "columns": "value"}
    return figures(spark.read.format("levada").options(**options).load())


def run_pipeline(spark: Any, bootstrap: str, home: str, source: str, place: str) -> None:
    from levada.spark import Places, lake, pipeline, topic

    @pipeline(source=topic(source, format="json", schema="n INT, user STRING"), sink=lake(place, partition_by=["user"]))
    def orders(rows: Any) -> Any:
        return rows

    run_once(spark, orders, Places(bootstrap=bootstrap, home=Path(home), master="local[2]"))


# The tests.


def test_a_history_in_a_bucket(s3: S3, driver: SparkProcess, levada: LevadaBroker) -> None:
    bootstrap, topic = levada.bootstrap, f"s3-{uuid4().hex[:8]}"
    place, cluster = f"s3://lake/histories/{topic}", cluster_of(levada.bootstrap)
    with cluster.client() as client:
        client.create_topic(topic, 2, configs={"levada.archive": place, "retention.ms": "-1"})
    for turn in range(2):
        fill(cluster, topic, 1000 * turn, 1000, 2)
        assert driver.run(archive, bootstrap, topic) == 1000
    assert driver.run(archive, bootstrap, topic) == 0
    fill(cluster, topic, 2000, 500, 2)
    with cluster.client() as client:
        client.delete_records({(topic, partition): 900 for partition in range(2)})
    assert driver.run(read, bootstrap, topic) == expected(2500)
    told = status(s3, bootstrap, topic)
    assert [(one["archived_end"], one["log_start"], one["lag"], one["files"]) for one in told] == [
        (1000, 900, 250, 2)
    ] * 2
    assert driver.run(compacted, bootstrap, topic) == (4, 2, 4)
    assert [(one["archived_end"], one["files"]) for one in status(s3, bootstrap, topic)] == [(1000, 1)] * 2
    assert driver.run(read, bootstrap, topic) == expected(2500)
    assert len([key for key in s3.keys("lake") if topic in key and key.endswith(".parquet")]) == 2
    rows = polars.read_delta(place, storage_options=dict(s3.environment))
    assert sorted(int(value) for value in rows["value"]) == list(range(2000))


def status(s3: S3, bootstrap: str, topic: str) -> Any:
    command = [str(COMMAND), "archive", "status", topic, "--json", "--bootstrap", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **s3.environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_lake_in_a_bucket(s3: S3, driver: SparkProcess, levada: LevadaBroker, tmp_path: Path) -> None:
    source, place = make_topic(levada.bootstrap, 2), f"s3://lake/lakes/{uuid4().hex[:8]}"
    for turn in range(2):
        send(levada.bootstrap, source, [{"n": n, "user": f"u {n % 3}"} for n in range(100 * turn, 100 * turn + 100)])
        driver.run(run_pipeline, levada.bootstrap, str(tmp_path / "home"), source, place)
    rows = polars.read_delta(place, storage_options=dict(s3.environment))
    assert sorted(rows["n"]) == list(range(200))
    assert set(rows["user"]) == {"u 0", "u 1", "u 2"}


@pytest.mark.usefixtures("credentials")
def test_of_two_archivers_one_is_heard() -> None:
    whose, place = Whose("orders", str(uuid4())), f"s3://lake/both/{uuid4().hex[:8]}"
    ArchiveTable.open(place, whose, Typed())
    for turn in range(5):
        tables = [ArchiveTable.open(place, whose, Typed()) for _ in range(2)]
        together = threading.Barrier(2)

        def appended(table: ArchiveTable, turn: int = turn, together: threading.Barrier = together) -> bool:
            together.wait()
            try:
                table.append([], {0: (10 * turn if turn else None, 10 * turn + 10)})
            except Overtaken:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(appended, tables)) == [False, True]
    assert ArchiveTable.open(place, whose, Typed()).next_offset(0) == 50


@pytest.mark.usefixtures("credentials")
def test_a_store_in_which_commits_replace_one_another_is_refused(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.make_bucket("unsafe")
    check_exclusive("s3://unsafe/orders")
    assert s3.keys("unsafe") == [], "what was tried is gone"
    with forgetful(s3) as endpoint:
        for name, value in environment(endpoint).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(NotExclusive, match="s3://unsafe/orders: this store lets one commit replace another"):
            ArchiveTable.open("s3://unsafe/orders", Whose("orders", str(uuid4())), Typed())
        assert s3.keys("unsafe") == [], "no table was made"


def test_a_lake_in_such_a_store_is_refused(
    s3: S3, levada: LevadaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make_bucket("unsafe-lake")
    source = make_topic(levada.bootstrap, 1)
    send(levada.bootstrap, source, [{"n": 1, "user": "u"}])
    with forgetful(s3) as endpoint:
        for name, value in environment(endpoint).items():
            monkeypatch.setenv(name, value)
        with SparkProcess(tmp_path / "driver") as driver, pytest.raises(SparkFailed, match="lets one commit replace"):
            driver.run(run_pipeline, levada.bootstrap, str(tmp_path / "home"), source, "s3://unsafe-lake/orders")
    assert s3.keys("unsafe-lake") == []
