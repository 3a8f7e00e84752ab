"""What is measured, one function a section. Each gets a started broker and adds what it found to the rows.

Targets stand here, beside what they bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from harness import load, ready
from harness.awake import awake
from harness.brokers import Broker, Durability, Kind, cpu_seconds, resident_mb
from harness.rows import Row, Rows

GRID = [(100, 1), (100, 4), (100, 64), (1000, 1), (1000, 4), (1000, 64)]
SHORT_GRID = [(100, 4), (1000, 4)]


@dataclass
class Run:
    """One broker under measurement, and how much to do to it."""

    kind: Kind
    durability: Durability
    broker: Broker
    rows: Rows
    quick: bool

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def add(
        self, section: str, name: str, unit: str, value: float, *, more: bool = False, target: float | None = None
    ) -> None:
        row = Row(section, name, unit, self.durability, more, target)
        self.rows.add(self.kind, row, value)

    def scaled(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def cpu_per_million(broker: Broker, count: int, work: Callable[[], float]) -> tuple[float, float]:
    """What the work returned, and the broker's CPU seconds per million records while it ran."""
    before = cpu_seconds(broker)
    result = work()
    return result, (cpu_seconds(broker) - before) / (count / 1e6)


def warm_up(run: Run) -> None:
    """Let the JIT see everything first: produce and consume, with each client."""
    count = run.scaled(2_000_000 if run.durability == "os" else 300_000, 300_000)
    load.create(run.bootstrap, "warm", 4)
    load.java_produce(run.bootstrap, "warm", count, 100)
    load.librdkafka_produce(run.bootstrap, "warm", 4, count, 100)
    load.java_consume(run.bootstrap, "warm", 2 * count)


def produce_and_consume(run: Run) -> None:
    """Throughput and broker CPU, both ways, with Java's tools and with librdkafka. Durability matters for producing only."""
    grid = SHORT_GRID if run.quick or run.durability == "fsync" else GRID
    for size, partitions in grid:
        full = {100: 3_000_000, 1000: 600_000} if run.durability == "os" else {100: 1_000_000, 1000: 200_000}
        count = run.scaled(full[size], 1_000_000 if size == 100 else 200_000)
        warm = count // 2  # a JVM's client takes a second or two to get up to speed
        what = f"{size} B, {partitions} partition{'s' if partitions > 1 else ''}"
        topic = f"java-{size}-{partitions}"
        load.create(run.bootstrap, topic, partitions)
        work = partial(load.java_produce, run.bootstrap, topic, count, size, warm=warm)
        speed, cpu = cpu_per_million(run.broker, count + warm, work)
        run.add("produce", f"Java, {what}", "records/s", speed, more=True, target=1.2)
        run.add("produce", f"Java, {what}: broker CPU", "s/M records", cpu, target=0.4)
        other = f"rd-{size}-{partitions}"
        load.create(run.bootstrap, other, partitions)
        work = partial(load.librdkafka_produce, run.bootstrap, other, partitions, count, size)
        speed, cpu = cpu_per_million(run.broker, count, work)
        run.add("produce", f"librdkafka, {what}", "records/s", speed, more=True, target=1.2)
        run.add("produce", f"librdkafka, {what}: broker CPU", "s/M records", cpu, target=0.4)
        if run.durability == "os":
            consume(run, what, topic, count + warm)


def consume(run: Run, what: str, topic: str, count: int) -> None:
    for client, work in (("Java", load.java_consume), ("kcat", load.kcat_consume)):
        speed, cpu = cpu_per_million(run.broker, count, partial(work, run.bootstrap, topic, count))
        run.add("consume", f"{client}, {what}", "records/s", speed, more=True, target=1.0)
        run.add("consume", f"{client}, {what}: broker CPU", "s/M records", cpu, target=1.0)


def latency(run: Run) -> None:
    """End to end at a steady rate: intended send to poll, in one Java process, linger 0."""
    warm, seconds = run.scaled(5, 2), run.scaled(15, 4)
    for rate in (1_000, 10_000):
        topic = f"latency-{rate}"
        load.create(run.bootstrap, topic, 4)
        found = load.bench_java("latency", run.bootstrap, topic, str(rate), str(warm), str(seconds))
        for quantile in ("p50", "p99"):
            run.add("latency", f"{rate:,} msg/s, {quantile}", "ms", found[f"{quantile}_ms"])


def sync(run: Run) -> None:
    """One produce after another, each acknowledged: p50 and p99; as the machine is, and with its cores kept awake."""
    load.create(run.bootstrap, "sync", 1)
    sync_rows(run, "")
    with awake():
        sync_rows(run, ", cores awake")


def sync_rows(run: Run, how: str) -> None:
    warm, count = run.scaled(3_000, 500), run.scaled(10_000 if run.durability == "os" else 4_000, 1_500)
    for client, found in (
        ("librdkafka", load.librdkafka_sync(run.bootstrap, "sync", warm, count)),
        ("Java", load.bench_java("sync", run.bootstrap, "sync", str(warm), str(count))),
    ):
        run.add("sync", f"{client}{how}, p50", "ms", found["p50_ms"], target=0.5)
        run.add("sync", f"{client}{how}, p99", "ms", found["p99_ms"], target=0.3)


def transactions(run: Run) -> None:
    """Ten records over two partitions a transaction, Java, one producer and four."""
    warm, seconds = run.scaled(4, 2), run.scaled(10, 3)
    for producers in (1, 4):
        topic = f"transactions-{producers}"
        load.create(run.bootstrap, topic, 2)
        found = load.bench_java("transactions", run.bootstrap, topic, str(producers), str(warm), str(seconds))
        run.add(
            "transactions",
            f"{producers} producer{'s' if producers > 1 else ''}",
            "tx/s",
            found["per_second"],
            more=True,
        )


def idle_memory(run: Run) -> None:
    time.sleep(1)
    run.add("memory", "resident, idle after start", "MB", resident_mb(run.broker), target=0.2)


def used_memory(run: Run) -> None:
    run.add("memory", "resident, after the load", "MB", resident_mb(run.broker), target=0.2)


def idle(run: Run) -> None:
    """CPU with a thousand topics and a thousand connections that do nothing."""
    from support.raw import Raw

    load.create_many(run.bootstrap, [f"idle-{number}" for number in range(1000)])
    connections = [Raw(run.bootstrap) for _ in range(1000)]
    ready.wait_for_metadata(run.bootstrap)
    time.sleep(run.scaled(20, 5))
    before, start, seconds = cpu_seconds(run.broker), time.perf_counter(), run.scaled(30, 10)
    time.sleep(seconds)
    used = (cpu_seconds(run.broker) - before) / (time.perf_counter() - start) * 100
    run.add("idle", "1,000 topics, 1,000 connections: CPU", "% of a core", used)
    run.add("idle", "1,000 topics, 1,000 connections: resident", "MB", resident_mb(run.broker), target=0.2)
    for connection in connections:
        connection.close()
