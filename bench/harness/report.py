"""A comparison as a table on the terminal, a JSON file, a plot, and a section of bench/RESULTS.md."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from harness import floors
from harness.rows import OURS, Row

BENCH = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Comparison:
    """Who is compared, and where the outcome goes."""

    title: str
    #: Kind → what a reader calls it; Levada comes last by itself.
    peers: Mapping[str, str]
    #: results/<name>.json and .png.
    name: str
    #: RESULTS.md has the outcome between `<!-- <marker> -->` and `<!-- end of <marker> -->`.
    marker: str
    #: What the ratio is to, in a sentence.
    against: str
    #: What the second column says of a line.
    condition: str = "durability"

    @property
    def columns(self) -> dict[str, str]:
        return {**self.peers, OURS: "Levada"}


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def verdict(row: Row) -> str:
    return {True: "yes", False: "no", None: ""}[row.reached]


def ratio(row: Row) -> str:
    return f"{row.ratio:.2f}×" if row.ratio is not None else ""


def table(comparison: Comparison, rows: Sequence[Row]) -> Table:
    shown = Table(title=comparison.title, title_justify="left")
    for name in ("", comparison.condition, "unit"):
        shown.add_column(name)
    for name in (*comparison.columns.values(), "ratio", "target", "reached"):
        shown.add_column(name, justify="right")
    section = None
    for row in rows:
        if row.section != section:
            section = row.section
            shown.add_section()
            shown.add_row(f"[bold]{section}")
        colour = {True: "green", False: "red", None: "default"}[row.reached]
        values = [number(row.value(kind)) for kind in comparison.columns]
        cells = [f"  {row.name}", row.durability, row.unit, *values]
        shown.add_row(*cells, f"[{colour}]{ratio(row)}", row.goal(), f"[{colour}]{verdict(row)}")
    return shown


def machine(where: Path | None, versions: Mapping[str, str]) -> dict[str, Any]:
    """What this ran on; `versions` names the peers."""
    model = [line.split(":", 1)[1].strip() for line in cpu_lines() if line.startswith("model name")]
    return {
        "cpu": model[0] if model else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": dict(versions),
        "load_before": os.getloadavg()[0],
        "round_trip_ms": floors.round_trip_ms(),
        "sync_ms": floors.sync_ms(where),
    }


def cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def write(comparison: Comparison, rows: Sequence[Row], about: dict[str, Any], *, quick: bool) -> None:
    """Print, and keep: results/<name>.json, results/<name>.png, and the section of RESULTS.md. A quick run has files of its own."""
    Console(width=170).print(table(comparison, rows))
    results = BENCH / "results"
    results.mkdir(exist_ok=True)
    name = f"{comparison.name}-quick" if quick else comparison.name
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    kept = {"when": when, "machine": about, "rows": [row.as_json() for row in rows]}
    (results / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    plot(comparison, rows, results / f"{name}.png")
    if not quick:
        update_results(comparison, rows, about, when)


def markdown(comparison: Comparison, rows: Sequence[Row]) -> str:
    names = ["", comparison.condition, "unit", *comparison.columns.values(), "ratio", "target", "reached"]
    sides = ["-"] * 3 + ["-:"] * (len(comparison.columns) + 2) + ["-"]
    lines = [_line(names), "|" + "|".join(sides) + "|"]
    for row in rows:
        values = [number(row.value(kind)) for kind in comparison.columns]
        lines.append(
            _line(
                [f"{row.section}: {row.name}", row.durability, row.unit, *values, ratio(row), row.goal(), verdict(row)]
            )
        )
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def update_results(comparison: Comparison, rows: Sequence[Row], about: dict[str, Any], when: str) -> None:
    """Replace what stands between the comparison's markers in RESULTS.md; the prose around it stays."""
    path = BENCH / "RESULTS.md"
    start, end = f"<!-- {comparison.marker} -->", f"<!-- end of {comparison.marker} -->"
    head, found, rest = path.read_text().partition(start)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise RuntimeError(f"{path} has no {start} … {end}")
    reached = [row.reached for row in rows if row.reached is not None]
    versions = "".join(f", {name} {version}" for name, version in about["versions"].items())
    said = f"Measured {when} on {about['cores']} × {about['cpu']}, {about['memory_gb']} GB, Linux {about['kernel']}, "
    said += f"Python {about['python']}{versions}. Load average before: {about['load_before']:.2f}. "
    said += f"A bare round trip over loopback takes {about['round_trip_ms']:.3f} ms, a bare fdatasync {about['sync_ms']:.3f} ms. "
    said += f"{comparison.against} Targets reached: {sum(reached)} of {len(reached)}."
    picture = f"![ratios](results/{comparison.name}.png)"
    body = f"{start}\n\n{said}\n\n{picture}\n\n{markdown(comparison, rows)}\n\n{end}"
    path.write_text(head + body + tail)


def plot(comparison: Comparison, rows: Sequence[Row], path: Path) -> None:
    """Every ratio on one logarithmic axis, turned so that right of 1 is better for Levada."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    shown = [row for row in rows if row.ratio]
    if not shown:
        return
    factors = [row.ratio if row.more_is_better else 1 / row.ratio for row in shown if row.ratio]
    colours = [{True: "#2a7", False: "#c43", None: "#888"}[row.reached] for row in shown]
    figure, axis = pyplot.subplots(figsize=(11, 1.5 + 0.24 * len(shown)))
    axis.barh(range(len(shown)), [factor - 1 for factor in factors], left=1, color=colours, height=0.7)
    for place, row in enumerate(shown):
        if row.target is not None:
            goal = row.target if row.more_is_better else 1 / row.target
            axis.plot([goal, goal], [place - 0.4, place + 0.4], color="black", linewidth=1.5)
    axis.set_xscale("log")
    few = max(factors) / min(factors) < 100
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}×"))
    axis.xaxis.set_minor_formatter(
        FuncFormatter(lambda value, _place: f"{value:g}×" if few and f"{value:e}"[0] in "235" else "")
    )
    axis.set_yticks(range(len(shown)), [f"{row.section}: {row.name} ({row.durability})" for row in shown], fontsize=7)
    axis.invert_yaxis()
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xlabel(f"times better than {' or '.join(comparison.peers.values())} (black mark: target)")
    axis.grid(axis="x", which="both", alpha=0.2)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
