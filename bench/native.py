"""Levada's own API, NATS JetStream and Redis Streams, side by side on this machine: the same work through each one's Python client.

    .venv/bin/python bench/native.py --quick                     a minute or two; says roughly where we stand
    .venv/bin/python bench/native.py                             everything; writes its section of bench/RESULTS.md
    .venv/bin/python bench/native.py --only throughput --servers levada,redis

The servers run in turn, never at once, each in a scratch directory that is removed afterwards. `--where` chooses the disk.
Needs nats-server and redis-server (`scripts/tools.py --bench`) and the dependency group `bench`. A server that is missing or
cannot do what is asked is left out, and said so. Nothing here is a test: numbers are compared with each other, never with a clock.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

from harness import report  # noqa: E402
from harness.brokers import Durability  # noqa: E402
from harness.native import sections, servers  # noqa: E402
from harness.native.servers import KINDS, Kind  # noqa: E402
from harness.native.workers import WorkerFailed  # noqa: E402
from harness.rows import Rows  # noqa: E402

SECTIONS: dict[str, Callable[[sections.Run], None]] = {
    "single": sections.single,
    "delivery": sections.delivery,
    "throughput": sections.throughput,
    "each": sections.each,
}
ALL = (*SECTIONS, "memory")
DURABILITIES: tuple[Durability, ...] = ("os", "fsync")

COMPARISON = report.Comparison(
    title="Levada, NATS JetStream and Redis Streams",
    peers={"redis": "Redis", "nats": "NATS"},
    name="native",
    marker="native results",
    against="Ratios are to the better of the two.",
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small amounts; leaves RESULTS.md alone")
    parser.add_argument("--only", default=",".join(ALL), help=f"of {', '.join(ALL)}")
    parser.add_argument("--servers", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--durability", default=",".join(DURABILITIES), help=f"of {', '.join(DURABILITIES)}")
    parser.add_argument("--rounds", type=int, default=0, help="how often the servers take turns (default 3, quick 1)")
    parser.add_argument("--memory-s", type=float, default=0, help="how long memory is watched (default 600, quick 10)")
    parser.add_argument("--where", type=Path, help="directory for the servers' data (default: the system's scratch)")
    options = parser.parse_args()
    for name, known in (("only", ALL), ("servers", KINDS), ("durability", DURABILITIES)):
        chosen = getattr(options, name).split(",")
        if unknown := [word for word in chosen if word not in known]:
            parser.error(f"--{name}: no such thing as {', '.join(unknown)}; there are {', '.join(known)}")
        setattr(options, name, [word for word in known if word in chosen])
    return options


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Bench:
    """One run of the benchmark. What fails is said and left out; everything else goes on."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rows = Rows()
        self.failures: list[str] = []
        self.about = report.machine(options.where, servers.versions())

    def measure(self, kind: Kind, durability: Durability, name: str, work: Callable[[sections.Run], None]) -> None:
        """One section on a fresh server."""
        say(f"{kind} ({durability}): {name}")
        try:
            with servers.running(kind, durability, self.options.where) as server:
                work(sections.Run(kind, durability, server, self.rows, self.options.quick))
        except servers.Unavailable as error:
            say(f"left out: {error}")
        except (WorkerFailed, OSError, RuntimeError, TimeoutError) as error:
            self.failures.append(f"{kind} ({durability}): {name}: {error}")
            say(f"failed: {self.failures[-1]}")

    def run(self) -> None:
        for number in range(self.rounds):
            say(f"round {number + 1} of {self.rounds}")
            for durability in self.options.durability:
                for name, work in SECTIONS.items():
                    if name in self.options.only:
                        for kind in self.options.servers:
                            self.measure(kind, durability, name, work)
                self.keep()
        if "memory" in self.options.only and "levada" in self.options.servers:
            seconds = self.options.memory_s or (10 if self.options.quick else 600)
            self.measure("levada", "os", "memory", lambda run: sections.memory(run, seconds))
            self.keep()

    @property
    def rounds(self) -> int:
        return int(self.options.rounds or (1 if self.options.quick else 3))

    def keep(self) -> None:
        """It takes long: what there is so far is kept, should it be stopped. Only a whole run goes into RESULTS.md."""
        given = (self.options.only, self.options.servers, self.options.durability)
        whole = all(
            len(chosen) == len(all_of) for chosen, all_of in zip(given, (ALL, KINDS, DURABILITIES), strict=True)
        )
        measured = self.rows.all()
        order = list(dict.fromkeys(row.section for row in measured))
        measured.sort(key=lambda row: (DURABILITIES.index(row.durability), order.index(row.section)))  # type: ignore[arg-type]  # one of them
        report.write(COMPARISON, measured, self.about, quick=self.options.quick or not whole)


def main() -> int:
    options = parse()
    # Told to end, it unwinds, and every server and client goes with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = Bench(options)
    bench.run()
    for failure in bench.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
