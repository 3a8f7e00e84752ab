"""An audit as one page of HTML: plots and tables, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from levada.spark.jobs.audit.figures import (
    ABORTED,
    BETWEEN,
    EMPTIED,
    MARKERS,
    SIZES,
    UNARCHIVED,
    WITHIN,
    Figures,
    Key,
    Partition,
)
from levada.spark.jobs.audit.findings import Finding, verdict
from levada.spark.jobs.audit.plots import Bar, bars, columns, moment, short, size

_TEMPLATE: Final = "page.html.j2"
_VERDICTS: Final = {
    "ok": "as it should be",
    "look": "worth a look",
    "wrong": "not as it should be",
    "skipped": "nothing could be checked",
}
#: Kinds of holes: what a person calls them, and their colour.
_KINDS: Final = (
    ("retention", "retention", "faint"),
    (MARKERS, "transaction markers", "two"),
    (ABORTED, "aborted transactions", "three"),
    (WITHIN, "taken out of batches", "four"),
    (EMPTIED, "emptied batches", "five"),
    (BETWEEN, "in no batch", "bad"),
    (UNARCHIVED, "deleted before they were archived", "bad"),
)


def page(figures: Figures, found: Sequence[Finding]) -> str:
    """The whole page."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        size=size, moment=moment, grouped=lambda number: f"{number:,}", shown=_shown, offsets=offsets
    )
    return environment.get_template(_TEMPLATE).render(
        figures=figures,
        findings=found,
        verdict=verdict(list(found)),
        verdict_text=_VERDICTS[verdict(list(found))],
        plots=_plots(figures),
        legend=[(name, colour) for kind, name, colour in _KINDS if _missing(figures, kind)],
        missing={one.partition: sum(one.holes.values()) for one in figures.partitions},
    )


def offsets(partition: Partition) -> str:
    """What was read of it, both ends included: "0–99"."""
    if partition.start == partition.end:
        return "none"
    return f"{partition.start:,}–{partition.end - 1:,}"


def _plots(figures: Figures) -> dict[str, Any]:
    slots = [(slot.start_ms, slot.records) for slot in figures.timeline]
    return {
        "timeline": columns(slots, figures.slot_ms),
        "balance": _balance(figures),
        "holes": _holes(figures),
        "sizes": _sizes(figures.partitions),
        "keys": _keys(figures.keys.largest, figures.records),
    }


def _balance(figures: Figures) -> str:
    mean = figures.records / len(figures.partitions) if figures.partitions else 0
    rows = [
        Bar(f"partition {one.partition}", [(one.records, "one")], f"{short(one.records)} · {size(one.bytes)}")
        for one in figures.partitions
    ]
    return bars(rows, mark=mean)


def _missing(figures: Figures, kind: str) -> int:
    return sum(one.deleted for one in figures.partitions) if kind == "retention" else figures.missing(kind)


def _holes(figures: Figures) -> str:
    rows = []
    for one in figures.partitions:
        counts = {"retention": one.deleted, **one.holes}
        parts = [(counts.get(kind, 0), colour) for kind, _, colour in _KINDS]
        told = ", ".join(f"{counts[kind]:,} {name}" for kind, name, _ in _KINDS if counts.get(kind))
        total = sum(count for count, _ in parts)
        rows.append(Bar(f"partition {one.partition}", parts, short(total) if total else "none", told))
    return bars(rows) if any(_missing(figures, kind) for kind, _, _ in _KINDS) else ""


def _sizes(partitions: Sequence[Partition]) -> str:
    counts = [sum(one.sizes[number] for one in partitions) for number in range(len(SIZES) + 1)]
    labels = [f"< {size(one)}" for one in SIZES] + [f"≥ {size(SIZES[-1])}"]
    held = [number for number, count in enumerate(counts) if count]
    if not held:
        return ""
    rows = [
        Bar(labels[number], [(counts[number], "two")], f"{counts[number]:,}") for number in range(held[0], held[-1] + 1)
    ]
    return bars(rows)


def _keys(largest: Sequence[Key], records: int) -> str:
    rows = [
        Bar(
            _shown(one.key, 15),
            [(one.records, "three")],
            f"{one.records:,} · {one.records / records:.1%}",
            _shown(one.key),
        )
        for one in largest
    ]
    return bars(rows)


def _shown(key: bytes, length: int = 60) -> str:
    text = "".join(char if char.isprintable() else "·" for char in key.decode(errors="backslashreplace"))
    return text if len(text) <= length else text[: length - 1] + "…"
