"""What is measured, one function a section. Each gets a started server and adds what it found to the rows.

Targets stand here, beside what they bound.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from harness.awake import awake
from harness.brokers import Durability
from harness.native.servers import Kind, Server
from harness.native.workers import do, worker
from harness.rows import Row, Rows

#: Messages a second while it is measured how long each is on its way.
DELIVERY_RATE = 500
#: Messages a second while memory is watched.
MEMORY_RATE = 10_000
#: As close to flat as a process that allocates can be.
FLAT = 1.1


@dataclass
class Run:
    """One server under measurement, and how much to do to it."""

    kind: Kind
    durability: Durability
    server: Server
    rows: Rows
    quick: bool

    def add(
        self,
        section: str,
        name: str,
        unit: str,
        value: float,
        *,
        more: bool = False,
        target: float | None = None,
        limit: float | None = None,
    ) -> None:
        row = Row(section, name, unit, self.durability, more, target, limit if self.durability == "os" else None)
        self.rows.add(self.kind, row, value)

    def amount(self, *, os: int, fsync: int, quick: int) -> int:
        return quick if self.quick else {"os": os, "fsync": fsync, "interval": fsync}[self.durability]

    @property
    def patience(self) -> int:
        """By how much less there is to do. NATS syncs message by message: it would take minutes for what the others do in seconds."""
        return 10 if self.kind == "nats" and self.durability == "fsync" else 1

    def do(self, task: str, stream: str, **amounts: int) -> dict[str, float]:
        return do(self.server, self.kind, task, stream, **amounts)

    def resident_mb(self) -> float:
        return float(psutil.Process(self.server.pid).memory_info().rss) / 1e6

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.server.pid).cpu_times()
        return float(times.user + times.system)

    def cpu_per_million(self, count: int, work: Callable[[], dict[str, float]]) -> tuple[dict[str, float], float]:
        """What the work returned, and the server's CPU seconds per million messages while it ran."""
        before = self.cpu_seconds()
        found = work()
        return found, (self.cpu_seconds() - before) / (count / 1e6)


def throughput(run: Run) -> None:
    """A hundred at a time, and then all of it read back by a group that acknowledges."""
    count = run.amount(os=1_000_000, fsync=200_000, quick=20_000) // run.patience
    warm = count // 10
    run.do("create", "throughput")
    found, cpu = run.cpu_per_million(count + warm, lambda: run.do("batched", "throughput", warm=warm, count=count))
    run.add("publish", "a hundred at a time", "messages/s", found["per_second"], more=True, target=1.2)
    run.add("publish", "a hundred at a time: server CPU", "s/M messages", cpu)
    if run.kind == "levada":  # the others wait for every hundred anyway
        run.do("create", "awaited")
        found = run.do("awaited", "awaited", warm=warm, count=count // 2)
    run.add("publish", "a hundred at a time, each awaited", "messages/s", found["per_second"], more=True, target=1.2)
    found, cpu = run.cpu_per_million(count + warm, lambda: run.do("consume", "throughput", count=count + warm))
    run.add("consume", "a group of one", "messages/s", found["per_second"], more=True, target=1.0)
    run.add("consume", "a group of one: server CPU", "s/M messages", cpu)
    run.add("memory", "resident after publishing and consuming", "MB", run.resident_mb())


def each(run: Run) -> None:
    """One call a message, none waited for: what most programs do. Redis has no such call."""
    if run.kind == "redis":
        return
    count = run.amount(os=200_000, fsync=50_000, quick=10_000) // run.patience
    run.do("create", "each")
    found = run.do("each", "each", warm=count // 5, count=count)
    run.add("publish", "one call a message, not waiting", "messages/s", found["per_second"], more=True)


def single(run: Run) -> None:
    """One at a time, each acknowledged before the next."""
    count = run.amount(os=20_000, fsync=5_000, quick=1_000)
    run.do("create", "single")
    found = run.do("single", "single", warm=count // 5, count=count)
    run.add("one at a time", "publish", "messages/s", found["per_second"], more=True)
    run.add("one at a time", "publish → acknowledged, p50", "ms", found["p50_ms"], limit=0.5)
    run.add("one at a time", "publish → acknowledged, p99", "ms", found["p99_ms"])
    with awake():
        found = run.do("single", "single", warm=count // 5, count=count)
    run.add("one at a time", "cores awake: publish → acknowledged, p50", "ms", found["p50_ms"])


def delivery(run: Run) -> None:
    """From when a message was due to be sent to when another process has it, at a steady rate."""
    count = DELIVERY_RATE * run.amount(os=20, fsync=20, quick=2)
    run.do("create", "delivery")
    with worker(run.server, run.kind, "receive", "delivery", count=count) as receiver:
        receiver.line()  # in place
        run.do("send", "delivery", count=count, rate=DELIVERY_RATE)
        found = receiver.result()
    for quantile in ("p50", "p99"):
        limit = 5.0 if quantile == "p99" else None
        run.add(
            "delivery",
            f"{DELIVERY_RATE} a second, publish → delivered, {quantile}",
            "ms",
            found[f"{quantile}_ms"],
            limit=limit,
        )


def memory(run: Run, seconds: float) -> None:
    """Resident memory while a publisher and a group are at work all the time: it should not grow after a while."""
    run.do("create", "memory")
    samples: list[tuple[float, float]] = []
    publishing = worker(
        run.server, run.kind, "drip", "memory", rate=MEMORY_RATE, seconds=seconds, timeout_s=seconds + 120
    )
    with worker(run.server, run.kind, "drain", "memory", timeout_s=seconds + 240) as reader:
        reader.line()
        start = time.monotonic()
        with publishing as publisher:
            while (passed := time.monotonic() - start) < seconds:
                samples.append((passed, run.resident_mb()))
                time.sleep(min(1.0, seconds / 20))
            sent = publisher.result()["sent"]
    early = statistics.median(mb for at, mb in samples if seconds / 6 <= at < seconds / 3)
    late = statistics.median(mb for at, mb in samples if at >= seconds * 5 / 6)
    at_work = f"{seconds / 60:.3g} minutes of {MEMORY_RATE:,} messages/s"
    run.add("memory", f"{at_work}: resident in the second sixth", "MB", early)
    run.add("memory", f"{at_work}: resident in the last sixth", "MB", late)
    run.add("memory", f"{at_work}: last ÷ second sixth", "", late / early, limit=FLAT)
    run.add("memory", f"{at_work}: sent", "messages", sent, more=True)
