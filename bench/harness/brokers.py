"""The two brokers as the benchmark runs them, and what the operating system says about them.

Kafka runs as its own start script runs it: 1 GB of heap, G1, default threads. Equal durability means Kafka's default
(records handed to the operating system) against Levada's `os`, and `flush.messages=1` against Levada's `fsync`.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import psutil

from support.kafka import KafkaBroker
from support.levada import LevadaBroker

Kind = Literal["kafka", "levada"]
Durability = Literal["os", "fsync"]
Broker = LevadaBroker | KafkaBroker

#: kafka-run-class.sh's and kafka-server-start.sh's flags.
KAFKA_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
KAFKA_DURABILITY: Mapping[Durability, Mapping[str, str]] = {"os": {}, "fsync": {"log.flush.interval.messages": "1"}}


def make(kind: Kind, home: Path, durability: Durability, settings: Mapping[str, str] | None = None) -> Broker:
    """A broker that is not started yet."""
    if kind == "kafka":
        return KafkaBroker(home, {**KAFKA_DURABILITY[durability], **(settings or {})}, heap="1g", jvm=KAFKA_JVM)
    return LevadaBroker(home, settings, flags=["--durability", durability, "--log-level", "warning"])


@contextlib.contextmanager
def directory(where: Path | None) -> Iterator[Path]:
    """A scratch directory that is gone afterwards, whatever happens."""
    home = Path(tempfile.mkdtemp(prefix="levada-bench-", dir=where))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def running(kind: Kind, durability: Durability, where: Path | None = None) -> Iterator[Broker]:
    """A started broker on an empty directory."""
    with directory(where) as home, make(kind, home, durability) as broker:
        yield broker


def processes(broker: Broker) -> list[psutil.Process]:
    main = psutil.Process(broker.pid)
    return [main, *main.children(recursive=True)]


def cpu_seconds(broker: Broker) -> float:
    """User and system time of the broker so far."""
    times = [process.cpu_times() for process in processes(broker)]
    return float(sum(time.user + time.system for time in times))


def resident_mb(broker: Broker) -> float:
    return float(sum(process.memory_info().rss for process in processes(broker))) / 1e6
