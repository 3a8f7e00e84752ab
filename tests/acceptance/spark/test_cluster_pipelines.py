"""Pipelines, archives and jobs on a real Spark standalone cluster, with Levada and with Apache Kafka: two addresses change, nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest
from confluent_kafka import Producer

from support.brokers import Broker
from support.levada import COMMAND, LevadaBroker
from support.spark_cluster import SparkCluster
from support.spark_pipelines import received, run_once, send, table
from support.spark_process import SparkProcess
from support.spark_topics import make_topic

PARTITIONS = 4
#: Uses a function of a module beside it in the executors, which do not have it.
FILE = """
from pyspark.sql import functions as F
from levada.spark import lake, pipeline, topic
from {helpers} import shout

@pipeline(source=topic("{source}", format="json", schema="n INT, user STRING"), sink=[topic("{target}"), lake("{target}")])
def {name}(orders):
    return orders.select("n", F.udf(shout)("user").alias("user"))
"""
HELPERS = """
def shout(word):
    return word.upper()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Room for two applications, each with an executor on both workers."""
    with SparkCluster(tmp_path_factory.mktemp("cluster") / "spark", cores=2) as running:
        yield running


@pytest.fixture(scope="module")
def driver(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    """It takes half of the cores: an application has those it was given until it ends, and the next one would wait for ever."""
    conf = {**cluster.conf, "spark.cores.max": "2"}
    with SparkProcess(tmp_path_factory.mktemp("driver"), cluster.master, conf) as running:
        yield running


def orders(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"n": number, "user": f"user-{number % 7}"} for number in range(first, first + count)]


def shouted(count: int) -> Counter[tuple[int, str]]:
    return Counter((one["n"], one["user"].upper()) for one in orders(count))


def told(rows: list[dict[str, Any]]) -> Counter[tuple[int, str]]:
    return Counter((row["n"], row["user"]) for row in rows)


def written(directory: Path, name: str, source: str, target: str) -> str:
    """A pipeline's file, with a module beside it."""
    (directory / "shouting.py").write_text(HELPERS)
    file = directory / f"{name}.py"
    file.write_text(FILE.format(helpers="shouting", name=name, source=source, target=target))
    return str(file)


# What runs in the driver.


def run_pipeline(spark: Any, file: str, bootstrap: str, home: str, master: str) -> None:
    from levada.spark import Places, declared

    (one,) = declared(Path(file))
    run_once(spark, one, Places(bootstrap=bootstrap, home=Path(home), master=master))


def run_archive(spark: Any, bootstrap: str, topic: str, place: str) -> None:
    from levada.spark.archive.running import Archiving
    from levada.spark.archive.wanted import Archive
    from levada.spark.jobs.frames import Connection

    Archiving(spark, Connection.of(bootstrap, {}).cluster, Archive(topic, place)).run_once()


def run_audit(spark: Any, bootstrap: str, topic: str) -> tuple[int, str]:
    """How many records there are, and the verdict."""
    from levada.spark.jobs.audit.audit import Audit, audit, prepare
    from levada.spark.jobs.audit.findings import findings, verdict
    from levada.spark.jobs.frames import Connection
    from levada.spark.jobs.running import Silent

    connection = Connection.of(bootstrap, {})
    with connection.cluster.client() as client:
        figures = audit(spark, connection, prepare(client, Audit(topic=topic)), Silent())
    return figures.records, verdict(findings(figures))


# The tests.


def test_a_pipeline_and_the_module_beside_it(
    cluster: SparkCluster, driver: SparkProcess, either: Broker, tmp_path: Path
) -> None:
    source, target = make_topic(either.bootstrap, PARTITIONS), make_topic(either.bootstrap, PARTITIONS)
    file, home = written(tmp_path, f"on_{either.name}", source, target), tmp_path / "home"
    for turn in range(2):
        send(either.bootstrap, source, orders(200, 200 * turn))
        driver.run(run_pipeline, file, either.bootstrap, str(home), cluster.master)
    assert told(received(either.bootstrap, target, PARTITIONS)) == shouted(400)
    assert told(table(home, target)) == shouted(400)


def test_an_archive(driver: SparkProcess, either: Broker, tmp_path: Path) -> None:
    topic, place = make_topic(either.bootstrap, PARTITIONS), str(tmp_path / "archive")
    for turn in range(2):
        send(either.bootstrap, topic, orders(300, 300 * turn))
        driver.run(run_archive, either.bootstrap, topic, place)
    rows = polars.read_delta(place)
    assert sorted(json.loads(value)["n"] for value in rows["value"]) == list(range(600))
    assert rows.select("partition", "offset").n_unique() == 600


def test_a_job(driver: SparkProcess, either: Broker) -> None:
    """Java's partitioner is the router of a topic made over Kafka's protocol; librdkafka's own puts keys elsewhere."""
    right, wrong = make_topic(either.bootstrap, PARTITIONS), make_topic(either.bootstrap, PARTITIONS)
    producer = Producer({"bootstrap.servers": either.bootstrap, "partitioner": "murmur2_random"})
    for number in range(500):
        producer.produce(right, b"%d" % number, key=b"key-%d" % (number % 50))
    producer.flush()
    send(either.bootstrap, wrong, orders(500))
    records, verdict = driver.run(run_audit, either.bootstrap, right)
    assert records == 500 and verdict != "wrong"
    assert driver.run(run_audit, either.bootstrap, wrong) == (500, "wrong")


def test_a_pipeline_from_the_command_line(cluster: SparkCluster, levada: LevadaBroker, tmp_path: Path) -> None:
    source, target = make_topic(levada.bootstrap, PARTITIONS), make_topic(levada.bootstrap, PARTITIONS)
    file, home = written(tmp_path, "told_to_run", source, target), tmp_path / "home"
    send(levada.bootstrap, source, orders(200))
    command = [str(COMMAND), "pipeline", "run", file, "--once", "--json", "--master", cluster.master]
    command += ["--bootstrap", levada.bootstrap, "--home", str(home)]
    # A session of this process names Pythons that are its own.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    here = {**clean, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    done = subprocess.run(command, env=here, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert told(received(levada.bootstrap, target, PARTITIONS)) == shouted(200)
    assert told(table(home, target)) == shouted(200)
