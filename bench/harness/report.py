"""The comparison as a table on the terminal, a JSON file, a plot and bench/RESULTS.md."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from harness import floors
from harness.rows import Row

BENCH = Path(__file__).resolve().parent.parent
START, END = "<!-- results -->", "<!-- end of results -->"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def verdict(row: Row) -> str:
    return {True: "yes", False: "no", None: ""}[row.reached]


def table(rows: Sequence[Row]) -> Table:
    shown = Table(title="Levada and Apache Kafka", title_justify="left")
    for name, side in (("", "left"), ("durability", "left"), ("unit", "left"), ("Kafka", "right"), ("Levada", "right")):
        shown.add_column(name, justify=side)  # type: ignore[arg-type]  # one of rich's words
    for name in ("ratio", "target", "reached"):
        shown.add_column(name, justify="right")
    section = None
    for row in rows:
        if row.section != section:
            section = row.section
            shown.add_section()
            shown.add_row(f"[bold]{section}")
        colour = {True: "green", False: "red", None: "default"}[row.reached]
        ratio = f"{row.ratio:.2f}×" if row.ratio is not None else ""
        cells = [f"  {row.name}", row.durability, row.unit, number(row.value("kafka")), number(row.value("levada"))]
        shown.add_row(*cells, f"[{colour}]{ratio}", row.goal(), f"[{colour}]{verdict(row)}")
    return shown


def machine(where: Path | None) -> dict[str, Any]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()
    model = [line.split(":", 1)[1].strip() for line in cpu_lines() if line.startswith("model name")]
    return {
        "cpu": model[0] if model else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java[0] if java else "?",
        "load_before": os.getloadavg()[0],
        "round_trip_ms": floors.round_trip_ms(),
        "sync_ms": floors.sync_ms(where),
    }


def cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def write(rows: Sequence[Row], about: dict[str, Any], *, quick: bool) -> None:
    """Print, and keep: results/<name>.json, results/<name>.png, and the table in RESULTS.md."""
    Console(width=150).print(table(rows))
    results = BENCH / "results"
    results.mkdir(exist_ok=True)
    name = "quick" if quick else "full"
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    kept = {"when": when, "machine": about, "rows": [row.as_json() for row in rows]}
    (results / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    plot(rows, results / f"{name}.png")
    if not quick:
        update_results(rows, about, when)


def markdown(rows: Sequence[Row]) -> str:
    lines = ["| | durability | unit | Kafka | Levada | ratio | target | reached |", "|-|-|-|-:|-:|-:|-:|-|"]
    for row in rows:
        ratio = f"{row.ratio:.2f}×" if row.ratio is not None else ""
        cells = [f"{row.section}: {row.name}", row.durability, row.unit, number(row.value("kafka"))]
        cells += [number(row.value("levada")), ratio, row.goal(), verdict(row)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def update_results(rows: Sequence[Row], about: dict[str, Any], when: str) -> None:
    """Replace what stands between the markers of RESULTS.md; the prose around it stays."""
    path = BENCH / "RESULTS.md"
    text = path.read_text()
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    reached = [row.reached for row in rows if row.reached is not None]
    said = f"Measured {when} on {about['cores']} × {about['cpu']}, {about['memory_gb']} GB, Linux {about['kernel']}, "
    said += f"Python {about['python']}, {about['java']}. Load average before: {about['load_before']:.2f}. "
    said += f"A bare round trip over loopback takes {about['round_trip_ms']:.3f} ms, a bare fdatasync {about['sync_ms']:.3f} ms. "
    said += f"Targets reached: {sum(reached)} of {len(reached)}."
    body = f"{START}\n\n{said}\n\n![ratios](results/full.png)\n\n{markdown(rows)}\n\n{END}"
    path.write_text(head + body + tail)


def plot(rows: Sequence[Row], path: Path) -> None:
    """Every ratio on one logarithmic axis, turned so that right of 1 is better for Levada."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

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
    axis.set_yticks(range(len(shown)), [f"{row.section}: {row.name} ({row.durability})" for row in shown], fontsize=7)
    axis.invert_yaxis()
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xlabel("times better than Apache Kafka (black mark: target)")
    axis.grid(axis="x", which="both", alpha=0.2)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
