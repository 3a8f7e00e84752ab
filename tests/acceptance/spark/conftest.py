"""One Spark session for all tests of a process, and brokers: `broker` is the kind under test, `either` is both kinds, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from levada.spark.session import session
from support.brokers import Broker
from support.kafka import KafkaBroker
from support.levada import LevadaBroker
from support.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Sessions that live for seconds are not worth compiling much for; processes that tests start take this over.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two tasks beside one another, in this process's JVM. Tests leave no query running."""
    running = session("local[2]", "tests", **{"spark.driver.memory": "1g"})
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def no_query_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a failed test leaves running must not disturb the next."""
    yield
    if "spark" in request.fixturenames:
        running: Any = request.getfixturevalue("spark")
        for query in running.streams.active:
            query.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real Apache Kafka."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def levada(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LevadaBroker]:
    """A Levada that does not wait for the disk."""
    with LevadaBroker(tmp_path_factory.mktemp("levada"), {"levada.durability": "os"}) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A real Spark standalone cluster with two workers; sessions on it are in processes of their own (support.spark_process)."""
    with SparkCluster(tmp_path_factory.mktemp("cluster") / "spark") as running:
        yield running


@pytest.fixture(params=["levada", "kafka"])
def either(request: pytest.FixtureRequest) -> Broker:
    """Levada, and Apache Kafka: the source and the sink do not know which of them they talk to."""
    running: Broker = request.getfixturevalue(request.param)
    return running
