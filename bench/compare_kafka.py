"""Levada and a real Apache Kafka, side by side on this machine: same clients, same settings, one table.

    .venv/bin/python bench/compare_kafka.py --quick                  a few minutes; says roughly where we stand
    .venv/bin/python bench/compare_kafka.py                          everything; writes bench/RESULTS.md
    .venv/bin/python bench/compare_kafka.py --only produce,sync      some sections

The brokers run in turn, never at once, each in a scratch directory that is removed afterwards. `--where` chooses the disk.
Needs what `make tools` brings. Nothing here is a test: numbers are compared with each other, never with a clock.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

from harness import lifetimes, report, sections  # noqa: E402
from harness.brokers import Durability, Kind, running  # noqa: E402
from harness.rows import Rows  # noqa: E402

KINDS: tuple[Kind, ...] = ("kafka", "levada")
COMPARISON = report.Comparison(
    title="Levada and Apache Kafka",
    peers={"kafka": "Kafka"},
    name="kafka",
    marker="results",
    against="Ratios are Levada ÷ Kafka.",
)
#: Sections that share one started broker, in the order they run.
SHARED = ("memory", "produce", "consume", "latency", "sync", "transactions", "idle")
#: Sections that start brokers of their own.
OWN = ("startup", "restart", "growth", "topics")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small amounts; leaves RESULTS.md alone")
    parser.add_argument("--only", default=",".join((*SHARED, *OWN)), help=f"of {', '.join((*SHARED, *OWN))}")
    parser.add_argument("--brokers", default=",".join(KINDS), help="levada alone is useful while tuning")
    parser.add_argument("--rounds", type=int, default=0, help="how often the brokers take turns (default 3, quick 1)")
    parser.add_argument("--restart-gb", type=float, default=0, help="data for the restart (default 10, quick 1)")
    parser.add_argument("--growth-gb", default="", help="sizes of the log, e.g. 1,5,10,20 (quick: 1,2)")
    parser.add_argument("--topics", default="", help="numbers of topics, e.g. 1,1000,10000 (quick: 1,1000)")
    parser.add_argument("--where", type=Path, help="directory for the brokers' data (default: the system's scratch)")
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - {*SHARED, *OWN}
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join((*SHARED, *OWN))}")
    return options


def java_version() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()
    return said[0].split('"')[1] if said else "?"


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def shared_sections(
    rows: Rows, kind: Kind, durability: Durability, chosen: set[str], options: argparse.Namespace
) -> None:
    """One broker through all the sections that make sense at this durability."""
    with running(kind, durability, options.where) as broker:
        run = sections.Run(kind, durability, broker, rows, options.quick)
        if "memory" in chosen and durability == "os":
            sections.idle_memory(run)
        if chosen & {"produce", "consume", "latency", "sync", "transactions"}:
            say(f"{kind} ({durability}): warming up")
            sections.warm_up(run)
        for name, work in (
            ("sync", sections.sync),
            ("transactions", sections.transactions),
            ("latency", sections.latency),
            ("produce", sections.produce_and_consume),
            ("idle", sections.idle),
        ):
            wanted = name in chosen or (name == "produce" and "consume" in chosen and durability == "os")
            if wanted and (durability == "os" or name in ("sync", "transactions", "produce")):
                say(f"{kind} ({durability}): {name}")
                work(run)
            if name == "produce" and "memory" in chosen and durability == "os":
                sections.used_memory(run)


def own_sections(rows: Rows, kind: Kind, chosen: set[str], options: argparse.Namespace) -> None:
    quick, where = options.quick, options.where
    if "startup" in chosen:
        say(f"{kind}: startup")
        lifetimes.startup(kind, rows, where, quick=quick)
    if "restart" in chosen:
        say(f"{kind}: restart")
        lifetimes.restart(kind, rows, where, gigabytes=options.restart_gb or (1 if quick else 10))
    # These two show that our cost does not grow; Kafka's number is there for the small sizes of the other sections.
    if kind == "levada" and "growth" in chosen:
        say(f"{kind}: growth")
        sizes = options.growth_gb or ("1,2" if quick else "1,5,10,20")
        lifetimes.growth(kind, rows, where, gigabytes=[float(size) for size in sizes.split(",")])
    if kind == "levada" and "topics" in chosen:
        say(f"{kind}: topics")
        counts = options.topics or ("1,1000" if quick else "1,100,1000,10000")
        lifetimes.topics(kind, rows, where, counts=[int(count) for count in counts.split(",")], quick=quick)


def main() -> None:
    options = parse()
    chosen, rows = set(options.only.split(",")), Rows()
    about = report.machine(options.where, {"Java": java_version()})
    kinds = [kind for kind in KINDS if kind in options.brokers.split(",")]
    durabilities: tuple[Durability, ...] = ("os", "fsync")
    for _ in range(options.rounds or (1 if options.quick else 3)):
        for durability in durabilities:
            matters = {"produce", "sync", "transactions"} if durability == "fsync" else set(SHARED)
            if chosen & matters:
                for kind in kinds:
                    shared_sections(rows, kind, durability, chosen, options)
                # It takes long: what there is so far is kept, should it be stopped.
                report.write(COMPARISON, rows.all(), about, quick=options.quick)
    for kind in kinds:
        own_sections(rows, kind, chosen, options)
        report.write(COMPARISON, rows.all(), about, quick=options.quick)


if __name__ == "__main__":
    main()
