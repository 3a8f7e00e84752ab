"""What needs brokers of its own: starting, restarting with much data, growing logs, many topics."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from pathlib import Path

from harness import load, ready
from harness.brokers import Broker, Kind, cpu_seconds, directory, make, resident_mb, running
from harness.rows import Row, Rows
from support.ports import free_port


def timed_start(broker: Broker) -> float:
    """Seconds from starting the process to the first answer to a Metadata request."""
    if not broker.port:
        broker.port = free_port()
    start = time.perf_counter()
    broker.launch()
    ready.wait_for_metadata(broker.bootstrap)
    took = time.perf_counter() - start
    adopt(broker)
    return took


def adopt(broker: Broker) -> None:
    """Read the ready line that launch leaves unread."""
    if broker.name == "levada":
        broker.read_ready()  # type: ignore[union-attr]  # only Levada says ready


def startup(kind: Kind, rows: Rows, where: Path | None, *, quick: bool) -> None:
    row = Row("startup", "empty data directory, to the first answer", "s", target=0.25)
    for _ in range(3 if quick else 5):
        with directory(where) as home:
            broker = make(kind, home, "os")
            if kind == "kafka":
                broker.format()  # type: ignore[union-attr]  # formatting is set-up, not starting
            try:
                rows.add(kind, row, timed_start(broker))
            finally:
                broker.kill()


def restart(kind: Kind, rows: Rows, where: Path | None, *, gigabytes: float) -> None:
    """Start again with this much data, after a clean stop and after kill −9, until every partition answers with its end."""
    partitions = 10
    count = int(gigabytes * 1e9 / 1000)
    with directory(where) as home, make(kind, home, "os") as broker:
        load.create(broker.bootstrap, "big", partitions)
        load.java_produce(broker.bootstrap, "big", count, 1000)
        ends = {"big": ready.ends(broker.bootstrap, "big", partitions)}
        for how, stop in (("clean stop", broker.stop), ("kill -9", broker.kill)):
            if how == "kill -9":  # something that is not on disk yet
                load.java_produce(broker.bootstrap, "big", count // 50, 1000)
                ends = {"big": ready.ends(broker.bootstrap, "big", partitions)}
            stop()
            start = time.perf_counter()
            broker.launch()
            ready.wait_for_ends(broker.bootstrap, ends)
            took = time.perf_counter() - start
            adopt(broker)
            row = Row("restart", f"{gigabytes:g} GB, after {how}", "s", target=0.5)
            rows.add(kind, row, took)


def growth(kind: Kind, rows: Rows, where: Path | None, *, gigabytes: list[float]) -> None:
    """Cost per record as the log grows: half a gigabyte is produced at each size, once the disk has caught up.

    Without that wait the kernel makes writers work off its backlog of dirty pages, whatever the size of the log.
    """
    partitions, step = 4, 500_000
    with running(kind, "os", where) as broker:
        load.create(broker.bootstrap, "growing", partitions)
        load.java_produce(broker.bootstrap, "growing", step, 1000)
        written = step
        for size in gigabytes:
            missing = int(size * 1e6) - written
            if missing > 0:
                load.librdkafka_produce(broker.bootstrap, "growing", partitions, missing // 10_000 * 10_000, 1000)
                written += missing // 10_000 * 10_000
            os.sync()
            before = cpu_seconds(broker)
            speed = load.librdkafka_produce(broker.bootstrap, "growing", partitions, step, 1000)
            used = (cpu_seconds(broker) - before) / (step / 1e6)
            written += step
            at = f"log of {size:g} GB"
            rows.add(kind, Row("growth", f"{at}: produce", "records/s", more_is_better=True), speed)
            rows.add(kind, Row("growth", f"{at}: broker CPU producing", "s/M records"), used)
            rows.add(kind, Row("growth", f"{at}: resident", "MB"), resident_mb(broker))


def topics(kind: Kind, rows: Rows, where: Path | None, *, counts: list[int], quick: bool) -> None:
    """Cost per record as topics become many: one topic is written and read while the others lie there."""
    count = 300_000 if quick else 1_000_000
    with running(kind, "os", where) as broker:
        made = 0
        for wanted in counts:
            start = time.perf_counter()
            names = [f"topic-{number}" for number in range(made, wanted)]
            load.create_many(broker.bootstrap, names)
            took, made = time.perf_counter() - start, wanted
            at = f"{wanted:,} topic{'s' if wanted > 1 else ''}"
            topic = f"topic-{wanted - 1}"
            for repeat in itertools.count():
                before = cpu_seconds(broker)
                speed = load.librdkafka_produce(broker.bootstrap, topic, 1, count, 100)
                used = (cpu_seconds(broker) - before) / (count / 1e6)
                if repeat:  # the first round warms up
                    break
            rows.add(kind, Row("topics", f"{at}: produce", "records/s", more_is_better=True), speed)
            rows.add(kind, Row("topics", f"{at}: broker CPU producing", "s/M records"), used)
            before = cpu_seconds(broker)
            read = [load.kcat_consume(broker.bootstrap, topic, 2 * count) for _ in range(3)]
            used = (cpu_seconds(broker) - before) / (3 * 2 * count / 1e6)
            rows.add(kind, Row("topics", f"{at}: consume", "records/s", more_is_better=True), statistics.median(read))
            rows.add(kind, Row("topics", f"{at}: broker CPU consuming", "s/M records"), used)
            rows.add(kind, Row("topics", f"{at}: resident", "MB"), resident_mb(broker))
            if len(names) > 1:
                rows.add(kind, Row("topics", f"{at}: creating one", "ms"), took / len(names) * 1000)
