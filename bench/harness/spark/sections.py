"""What is measured, one function a section. Each gets a session and a filled broker and adds what it found to the rows.

The connectors take turns within a section, and who begins changes from round to round. Targets stand here, beside what they bound.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.brokers import Broker
from harness.rows import Row, Rows
from harness.spark import filling
from harness.spark.connectors import PAIR, Connector, Official, Ours
from harness.spark.jobs import archive, audit

#: What reads should reach, as ratios to the official connector.
RAW, TYPED, STREAM = 2.5, 4.5, 1.8
#: What sinks should, against its at-least-once.
EXACTLY_ONCE, AT_LEAST_ONCE = 1.0, 2.0
#: Rows a second of Levada's own jobs.
JOBS = 500_000
THEIRS, EXACT, SIMPLE = Official(), Ours("exactly_once"), Ours("at_least_once")
SINKS: tuple[Connector, ...] = (THEIRS, EXACT, SIMPLE)
#: As flat as a measurement of a second or two can tell.
FLAT = 1.25


@dataclass
class Run:
    """One broker with its topics, the session, and how much to do."""

    spark: Any
    broker: Broker
    rows: Rows
    home: Path
    raw_rows: int
    typed_rows: int
    sink_rows: int
    tiny_batches: int
    round: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def steps(self) -> tuple[int, int]:
        """Smaller topics beside the large one: a tenth and a half of it."""
        return self.raw_rows // 10, self.raw_rows // 2

    def turns(self, connectors: Sequence[Connector] = PAIR) -> list[Connector]:
        return list(connectors if self.round % 2 == 0 else reversed(connectors))

    def fresh(self, stem: str) -> str:
        return f"{stem}-{next(self._numbers)}"

    def checkpoint(self) -> str:
        return str(self.home / self.fresh("checkpoint"))

    def add(self, kind: str, section: str, name: str, unit: str, value: float, **bounds: Any) -> None:
        more = bounds.pop("more", False)
        self.rows.add(kind, Row(section, name, unit, f"on {self.broker.name.title()}", more, **bounds), value)

    def rate(self, kind: str, section: str, name: str, rows: int, seconds: float, **bounds: Any) -> None:
        self.add(kind, section, name, "rows/s", rows / seconds, more=True, **bounds)


def timed(work: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def to_nothing(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def counted(frame: Any, rows: int) -> None:
    found = sum(row["count"] for row in frame.groupBy("partition").count().collect())
    if found != rows:
        raise RuntimeError(f"{found} rows instead of {rows}")


def set_up(run: Run) -> None:
    """Fill the topics, and let the JIT and the compiled code of both connectors see everything once."""
    small, half = run.steps
    for topic, rows in (("small", small), ("half", half), ("raw", run.raw_rows)):
        filling.fill(run.bootstrap, topic, rows)
    filling.fill(run.bootstrap, "orders", run.typed_rows, typed=True)
    filling.fill(run.bootstrap, "few", run.tiny_batches * filling.BATCH_ROWS)
    for connector in PAIR:
        for _ in range(2):
            to_nothing(connector.raw(run.spark.read, run.bootstrap, "small"))
        some = _last(run, "orders", min(run.typed_rows, small))
        to_nothing(connector.orders(run.spark.read, run.bootstrap, "orders", **some))
        frame = connector.raw(run.spark.readStream, run.bootstrap, "few")
        finished(frame.writeStream.format("noop"), run, run.tiny_batches * filling.BATCH_ROWS)
    rows, frame = ready_frame(run.spark, small // 10)
    for connector in SINKS:
        written(run, frame, rows, connector)
    frame.unpersist()


def raw(run: Run) -> None:
    """Bytes as they are: to nowhere, and counted by partition."""
    read = run.spark.read
    for connector in run.turns():
        name, rows = connector.name, run.raw_rows
        five = connector.raw(read, run.bootstrap, "raw")
        run.rate(name, "raw", "five columns → noop", rows, timed(to_nothing, five), target=RAW)
        run.rate(name, "raw", "five columns → groupBy", rows, timed(counted, five, rows), target=RAW)
        frame = connector.all_columns(read, run.bootstrap, "raw")
        run.rate(name, "raw", "Kafka's columns → noop", rows, timed(to_nothing, frame))


def typed(run: Run) -> None:
    """JSON of four fields as typed columns: valueFormat=json against from_json."""
    from pyspark.sql import functions as f

    for connector in run.turns():
        name, rows = connector.name, run.typed_rows
        orders = connector.orders(run.spark.read, run.bootstrap, "orders")
        run.rate(name, "typed", "JSON → noop", rows, timed(to_nothing, orders), target=TYPED)
        revenue = orders.groupBy("user").agg(f.sum("amount"))
        run.rate(name, "typed", "JSON → revenue by user", rows, timed(revenue.collect), target=TYPED)


def stream(run: Run) -> None:
    """availableNow over everything, in four micro-batches."""
    limit = str(run.raw_rows // 4)
    for connector in run.turns():
        frame = connector.raw(run.spark.readStream, run.bootstrap, "raw", maxOffsetsPerTrigger=limit)
        seconds = timed(finished, frame.writeStream.format("noop"), run, run.raw_rows)
        run.rate(connector.name, "stream", "five columns → noop", run.raw_rows, seconds, target=STREAM)


def finished(writer: Any, run: Run, rows: int) -> list[dict[str, Any]]:
    """Run a query over all there is now; its progress, batch by batch."""
    query = writer.option("checkpointLocation", run.checkpoint()).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [json.loads(one.json) for one in query.recentProgress]
    if (found := sum(one["numInputRows"] for one in progress)) != rows:
        raise RuntimeError(f"the query read {found} rows instead of {rows}")
    return progress


def overhead(run: Run) -> None:
    """What a micro-batch costs that has hardly anything to do: the median over many."""
    rows, size = run.tiny_batches * filling.BATCH_ROWS, str(filling.BATCH_ROWS)
    for connector in run.turns():
        frame = connector.raw(run.spark.readStream, run.bootstrap, "few", maxOffsetsPerTrigger=size)
        progress = finished(frame.writeStream.format("noop"), run, rows)
        run.add(connector.name, "micro-batch", "topic → noop", "ms", _median_ms(progress))
    for connector in run.turns():
        target = run.fresh("copied")
        filling.create(run.bootstrap, target)
        frame = connector.raw(run.spark.readStream, run.bootstrap, "few", maxOffsetsPerTrigger=size)
        writer = connector.sink(frame.select("key", "value").writeStream, run.bootstrap, target)
        progress = finished(writer, run, rows)
        run.add(connector.name, "micro-batch", "topic → topic, ours exactly once", "ms", _median_ms(progress))


def _median_ms(progress: Sequence[dict[str, Any]]) -> float:
    """Without the first, which plans and starts workers."""
    return statistics.median(one["durationMs"]["triggerExecution"] for one in progress[1:] if one["numInputRows"])


def sink(run: Run) -> None:
    """A frame that lies ready in memory, into a topic."""
    rows, frame = ready_frame(run.spark, run.sink_rows)
    seconds = {connector: written(run, frame, rows, connector) for connector in run.turns(SINKS)}
    frame.unpersist()
    for ours, name, target in ((EXACT, "exactly once", EXACTLY_ONCE), (SIMPLE, "at least once", AT_LEAST_ONCE)):
        # One measurement of theirs, which is at least once, stands beside both of ours.
        for connector in (THEIRS, ours):
            run.rate(connector.name, "sink", name, rows, seconds[connector], target=target)


def written(run: Run, frame: Any, rows: int, connector: Connector) -> float:
    topic = run.fresh("written")
    filling.create(run.bootstrap, topic)
    seconds = timed(connector.sink(frame.write.mode("append"), run.bootstrap, topic).save)
    if (found := filling.count(run.bootstrap, topic)) < rows:
        raise RuntimeError(f"{topic} holds {found} records of {rows}")
    filling.delete(run.bootstrap, topic)
    return seconds


def ready_frame(spark: Any, rows: int) -> tuple[int, Any]:
    """So many rows, with keys of 8 bytes and values of 100, in memory."""
    from pyspark.sql import functions as f

    key = f.format_string("%08d", f.col("id")).cast("binary").alias("key")
    value = f.rpad(f.sha2(f.col("id").cast("string"), 256), 100, "x").cast("binary").alias("value")
    frame = spark.range(rows, numPartitions=filling.PARTITIONS).select(key, value).persist()
    return frame.count(), frame


def scale(run: Run) -> None:
    """Ours alone: cost in proportion to the rows read, whatever else the topic holds."""
    ours, (small, half) = Ours(), run.steps
    seconds = {}
    for topic, rows in (("small", small), ("half", half), ("raw", run.raw_rows)):
        frame = ours.raw(run.spark.read, run.bootstrap, topic)
        seconds[topic] = timed(to_nothing, frame)
        run.rate(ours.name, "scale", f"{rows:,} rows → noop", rows, seconds[topic])
    grows = (seconds["raw"] / run.raw_rows) / (seconds["half"] / half)
    run.add(ours.name, "scale", "seconds a row, all ÷ half of the rows", "×", grows, limit=FLAT)
    last = {}
    for topic in ("small", "raw"):
        some = _last(run, topic, small // 10)
        last[topic] = timed(to_nothing, ours.raw(run.spark.read, run.bootstrap, topic, **some))
        held = small if topic == "small" else run.raw_rows
        run.add(ours.name, "scale", f"the last {small // 10:,} of {held:,} rows → noop", "s", last[topic])
    longer = last["raw"] / last["small"]
    run.add(ours.name, "scale", "the last rows, long ÷ short history", "×", longer, limit=FLAT)


def jobs(run: Run) -> None:
    """Ours alone: the audit of a topic, and its archive."""
    seconds = timed(audit, run.spark, run.bootstrap, "raw", run.raw_rows)
    run.rate("levada", "jobs", "audit", run.raw_rows, seconds, limit=JOBS)
    place = run.home / run.fresh("archive")
    seconds = timed(archive, run.spark, run.bootstrap, "raw", place, run.raw_rows)
    run.rate("levada", "jobs", "archive to a Delta table", run.raw_rows, seconds, limit=JOBS)
    shutil.rmtree(place)


def _last(run: Run, topic: str, rows: int) -> dict[str, str]:
    """Options that read about the last `rows` of a topic."""
    each = rows // filling.PARTITIONS
    end = filling.count(run.bootstrap, topic) // filling.PARTITIONS
    starts = {str(partition): max(0, end - each) for partition in range(filling.PARTITIONS)}
    return {"startingOffsets": json.dumps({topic: starts})}
