"""Orders for pipelines: sent to a topic, and read back out of topics and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars
from confluent_kafka import Producer

from levada.spark.pipelines.declaration import Pipeline
from levada.spark.pipelines.errors import TooBusy
from levada.spark.pipelines.places import Places
from levada.spark.pipelines.running import Running
from support.spark_topics import consumed

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ORDER = "id STRING, user STRING, amount DOUBLE, at TIMESTAMP"


def order(number: int, user: str, amount: float, after_s: float) -> dict[str, Any]:
    """An order, so long after noon."""
    return {"id": f"o-{number}", "user": user, "amount": amount, "at": (NOON + timedelta(seconds=after_s)).isoformat()}


def send(bootstrap: str, topic: str, values: Iterable[Mapping[str, Any] | bytes]) -> None:
    """In their order, keyed by user, so that a user's orders are in one partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        if isinstance(value, bytes):
            producer.produce(topic, value)
        else:
            producer.produce(topic, json.dumps(value).encode(), key=str(value.get("user", "")).encode())
    producer.flush()


def received(bootstrap: str, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
    """The JSON objects a reader of committed records sees, those of one partition in their order."""
    return [json.loads(row[4] or b"") for row in consumed(bootstrap, topic, partitions=partitions)]


def table(home: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a lake table, as somebody reads them who knows nothing of Levada or Spark."""
    return polars.read_delta(str(home / "lake" / name)).to_dicts()


def run_once(spark: Any, pipeline: Pipeline, places: Places, **options: Any) -> Running:
    """Until all is read that is there. What it failed with is raised, unless the machine was too busy to begin: then once more."""
    for left in (2, 1, 0):
        running = Running.start(spark, pipeline, places, once=True, **options)
        assert running.wait(600), "the pipeline did not end"
        running.progress()
        failure = running.failure
        if failure is None:
            return running
        if not isinstance(failure, TooBusy) or not left:
            raise failure
    raise AssertionError("the last try returns or raises")


def run_until(spark: Any, pipeline: Pipeline, places: Places, rows: int) -> Running:
    """Started, and still running when so many rows were read."""
    running = Running.start(spark, pipeline, places)
    while running.progress().rows_total < rows:
        if running.wait(0.1):
            assert isinstance(running.failure, TooBusy), running.failure
            running = Running.start(spark, pipeline, places)
    return running
