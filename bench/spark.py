"""Levada's Spark source and sink beside Spark's own Kafka connector: the same topics, the same session, one table.

    .venv/bin/python bench/spark.py --quick                      two or three minutes; says roughly where we stand
    .venv/bin/python bench/spark.py                              everything; writes its section of bench/RESULTS.md
    .venv/bin/python bench/spark.py --only raw,typed --brokers levada --rows 1000000

Both connectors read and write a Levada broker, then an Apache Kafka: the brokers never run at once, each in a scratch directory that
is removed afterwards (`--where` chooses the disk). Needs what `make tools` brings and the dependency group `bench`.
Nothing here is a test: numbers are compared with each other, never with a clock.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT / "bench")
sys.path.insert(1, str(ROOT / "tests"))

from harness import report  # noqa: E402
from harness.brokers import Kind, directory, make  # noqa: E402
from harness.rows import Rows  # noqa: E402
from harness.spark import sections  # noqa: E402

SECTIONS: dict[str, Callable[[sections.Run], None]] = {
    "raw": sections.raw,
    "typed": sections.typed,
    "stream": sections.stream,
    "micro-batch": sections.overhead,
    "sink": sections.sink,
    "scale": sections.scale,
    "jobs": sections.jobs,
}
#: Nothing to compare with: on Levada only.
OURS_ALONE = ("scale", "jobs")
KINDS: tuple[Kind, ...] = ("levada", "kafka")
CORES = 2

COMPARISON = report.Comparison(
    title="Levada and Spark's own Kafka connector",
    peers={"official": "official"},
    name="spark",
    marker="spark results",
    against="Ratios are Levada's source or sink ÷ Spark's own connector, on the same broker.",
    condition="broker",
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small amounts; leaves RESULTS.md alone")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--brokers", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--rounds", type=int, default=0, help="how often everything is repeated (default 3, quick 1)")
    parser.add_argument("--rows", type=int, default=0, help="records in the raw topic (default 10 million, quick 1)")
    parser.add_argument("--where", type=Path, help="directory for the brokers' data (default: the system's scratch)")
    options = parser.parse_args()
    for name, known in (("only", SECTIONS), ("brokers", KINDS)):
        chosen = getattr(options, name).split(",")
        if unknown := [word for word in chosen if word not in known]:
            parser.error(f"--{name}: no such thing as {', '.join(unknown)}; there are {', '.join(known)}")
        setattr(options, name, [word for word in known if word in chosen])
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.rows = options.rows or (1_000_000 if options.quick else 10_000_000)
    return options


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Bench:
    """One run of the benchmark. What fails is said and left out; everything else goes on."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rows = Rows()
        self.failures: list[str] = []

    def run(self) -> None:
        with directory(self.options.where) as home:
            spark = session(home)
            self.about = report.machine(self.options.where, versions(spark))
            try:
                for kind in self.options.brokers:
                    self.on(kind, spark, home / kind)
            finally:
                spark.stop()

    def on(self, kind: Kind, spark: Any, home: Path) -> None:
        """All rounds on one broker."""
        with make(kind, home / "broker", "os") as broker:
            run = sections.Run(
                spark,
                broker,
                self.rows,
                home,
                raw_rows=self.options.rows,
                typed_rows=self.options.rows // 2,
                sink_rows=self.options.rows // 5,
                tiny_batches=10 if self.options.quick else 30,
            )
            say(f"{kind}: filling topics and warming up")
            sections.set_up(run)
            for run.round in range(self.options.rounds):
                for name in self.options.only:
                    if kind == "levada" or name not in OURS_ALONE:
                        say(f"{kind}: {name}, round {run.round + 1} of {self.options.rounds}")
                        self.measure(run, name)
                self.keep()

    def measure(self, run: sections.Run, name: str) -> None:
        try:
            SECTIONS[name](run)
        except Exception as error:
            self.failures.append(f"{run.broker.name}: {name}: {error}")
            say(f"failed: {self.failures[-1]}")

    def keep(self) -> None:
        """It takes long: what there is so far is kept, should it be stopped. Only a whole run goes into RESULTS.md."""
        whole = len(self.options.only) == len(SECTIONS) and len(self.options.brokers) == len(KINDS)
        measured = sorted(self.rows.all(), key=lambda row: list(SECTIONS).index(row.section))
        report.write(COMPARISON, measured, self.about, quick=self.options.quick or not whole)


def session(home: Path) -> Any:
    """Both connectors in one session: two cores, 3 GB, everything else as it comes."""
    from levada.spark.session import session as start
    from support.jars import spark_connector

    scratch = home / "scratch"
    conf = {"spark.jars": spark_connector(), "spark.driver.memory": "3g", "spark.local.dir": str(scratch)}
    return start(f"local[{CORES}]", "levada-bench", **conf)


def versions(spark: Any) -> dict[str, str]:
    return {"Spark": spark.version, "Java": spark._jvm.System.getProperty("java.version")}


def main() -> int:
    options = parse()
    # Told to end, it unwinds, and every broker and the session go with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = Bench(options)
    bench.run()
    for failure in bench.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
