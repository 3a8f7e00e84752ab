"""Scenario 46 by other ways: a topic of Apache Kafka, and the command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from levada.spark.archive.wanted import Archive
from levada.wire.apis import ApiKey
from support.archives import IMPATIENT, archive_all, cluster_of, expected, figures, fill, make_archived
from support.kafka import KafkaBroker
from support.levada import COMMAND, LevadaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_topic_of_apache_kafka_has_a_history_where_one_is_named(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    cluster, topic, place = cluster_of(kafka.bootstrap), f"k-{uuid4().hex[:8]}", str(tmp_path / "lake")
    with cluster.client() as client:
        client.create_topic(topic, 2, configs={"retention.ms": "-1"})
    fill(cluster, topic, 0, 2000, 2)
    archive_all(spark, cluster, Archive(topic, place))
    fill(cluster, topic, 2000, 1000, 2)
    rows = [{"name": topic, "partitions": [{"partition_index": one, "offset": 900} for one in range(2)]}]
    with cluster.client() as client:
        client.request(ApiKey.DELETE_RECORDS, {"topics": rows, "timeout_ms": 30_000})
    options = {"bootstrap": kafka.bootstrap, "subscribe": topic, "columns": "value"}
    assert spark.read.format("levada").options(**options).load().count() == 1200
    assert figures(spark.read.format("levada").options(**options, history=place).load()) == expected(3000)


def test_the_command_line_archives_and_shows_how_far(tmp_path: Path) -> None:
    with LevadaBroker(tmp_path / "broker", IMPATIENT) as broker:
        cluster = cluster_of(broker.bootstrap)
        archive = make_archived(cluster, tmp_path / "lake", 2)
        fill(cluster, archive.topic, 0, 1000, 2)
        done = levada(
            "archive", "run", archive.topic, "--once", "--json", "--bootstrap", broker.bootstrap, "--master", "local[2]"
        )
        assert json.loads(done.stdout)["rows_total"] == 1000, done.stderr
        told = json.loads(levada("archive", "status", archive.topic, "--json", "--bootstrap", broker.bootstrap).stdout)
        assert [(one["partition"], one["archived_end"], one["lag"], one["files"]) for one in told] == [
            (0, 500, 0, 1),
            (1, 500, 0, 1),
        ]
        shown = levada("archive", "status", archive.topic, "--bootstrap", broker.bootstrap).stdout
        assert "0–499" in shown and archive.topic in shown


def levada(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, timeout=150, check=True)
