"""One line of the comparison: the same thing measured on both brokers, the ratio, and whether the target is reached."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Row:
    """`target` bounds the ratio Levada ÷ Kafka: from below where more is better, from above where less is."""

    section: str
    name: str
    unit: str
    durability: str = "os"
    more_is_better: bool = False
    target: float | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)

    def value(self, kind: str) -> float | None:
        """The median of what was measured."""
        samples = self.samples.get(kind)
        return statistics.median(samples) if samples else None

    @property
    def ratio(self) -> float | None:
        levada, kafka = self.value("levada"), self.value("kafka")
        return levada / kafka if levada is not None and kafka else None

    @property
    def reached(self) -> bool | None:
        if self.target is None or self.ratio is None:
            return None
        return self.ratio >= self.target if self.more_is_better else self.ratio <= self.target

    def goal(self) -> str:
        if self.target is None:
            return ""
        return f"{'≥' if self.more_is_better else '≤'} {self.target:g}×"

    def as_json(self) -> dict[str, Any]:
        derived = {"kafka": self.value("kafka"), "levada": self.value("levada")}
        return {**asdict(self), **derived, "ratio": self.ratio, "reached": self.reached}


class Rows:
    """All lines of a run, in the order they were first measured."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, str, str], Row] = {}

    def add(self, kind: str, row: Row, value: float) -> None:
        kept = self.by_name.setdefault((row.section, row.name, row.durability), row)
        kept.samples.setdefault(kind, []).append(value)

    def all(self) -> list[Row]:
        return list(self.by_name.values())
