"""The runner and a job that writes, as commands, on a real Spark standalone cluster: beside one another, each with half of its cores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.levada import COMMAND, LevadaBroker
from support.runner import START_S, Runners
from support.spark_cluster import SparkCluster
from support.wait import wait_until

pytestmark = pytest.mark.timeout(900)
COPY = """
    from levada.spark import pipeline, topic

    @pipeline(source=topic("{name}-in", format="json", schema="id INT"), sink=topic("{name}-out"), trigger="200 ms")
    def {name}(rows):
        return rows
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Room for two applications, each with an executor on both workers."""
    with SparkCluster(tmp_path_factory.mktemp("cluster") / "spark", cores=2) as running:
        yield running


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As whoever shares a cluster sets Spark up: an application keeps the cores it was given, all there are, until it ends."""
    for name in [name for name in os.environ if name.startswith(("PYSPARK_", "SPARK_"))]:
        monkeypatch.delenv(name)  # a session of this process names Pythons that are its own
    for name in ("conf", "scratch"):
        (tmp_path / name).mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.cores.max 2\nspark.executor.memory 512m\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "scratch"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))


def job(levada: LevadaBroker, cluster: SparkCluster, *words: str) -> Any:
    command = [str(COMMAND), "job", *words, "--json", "--master", cluster.master, "--bootstrap", levada.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.usefixtures("configured")
def test_a_runner_keeps_a_pipeline_running_and_a_job_writes_beside_it(
    cluster: SparkCluster, levada: LevadaBroker, tmp_path: Path
) -> None:
    name = f"copy_{uuid4().hex[:8]}"
    source, target = f"{name}-in", f"{name}-out"
    with Runners(levada, tmp_path / "runner", master=cluster.master) as runners:
        runners.create(source, target)
        runners.feed(source, range(50))
        runners.feed(source, range(50, 100), partition=1)
        runners.write(f"{name}.py", COPY.format(name=name))
        runners.start()
        runners.await_state(name, "running", timeout_s=START_S)
        runners.await_ids(target, range(100), timeout_s=START_S)
        held = set(cluster.executors())
        assert len(held) == 2, "one on each worker"

        done = job(levada, cluster, "repartition", target, "--partitions", "3")
        assert (done["records"], done["target"]) == (100, f"{target}.v3")
        assert done["fingerprint"] is not None, "compared, record by record"
        assert sorted(runners.ids(f"{target}.v3", partitions=3)) == list(range(100))

        cluster.kill_executor()
        runners.feed(source, range(100, 200))
        runners.await_ids(target, range(200))
        wait_until(lambda: len(cluster.executors()) == 2, START_S, "another executor in its place")
        assert set(cluster.executors()) != held
        assert runners.state(name)["state"] == "running"
        assert runners.end(signal.SIGTERM) == 0
    wait_until(lambda: not cluster.executors(), START_S, "executors of an application that has ended")
