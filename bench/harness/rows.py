"""One line of a comparison: the same thing measured on every broker, the ratio, and whether the target is reached."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

OURS = "levada"


@dataclass
class Row:
    """`target` bounds the ratio Levada ÷ best peer, `limit` Levada's own value: from below where more is better, else from above."""

    section: str
    name: str
    unit: str
    durability: str = "os"
    more_is_better: bool = False
    target: float | None = None
    limit: float | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)

    def value(self, kind: str) -> float | None:
        """The median of what was measured."""
        samples = self.samples.get(kind)
        return statistics.median(samples) if samples else None

    @property
    def best_peer(self) -> float | None:
        """The better of the others, where there are any."""
        values = [value for kind in self.samples if kind != OURS and (value := self.value(kind)) is not None]
        if not values:
            return None
        return max(values) if self.more_is_better else min(values)

    @property
    def ratio(self) -> float | None:
        ours, theirs = self.value(OURS), self.best_peer
        return ours / theirs if ours is not None and theirs else None

    @property
    def reached(self) -> bool | None:
        """None where nothing was to be reached, or something has not been measured."""
        verdicts = [
            value >= bound if self.more_is_better else value <= bound
            for value, bound in ((self.ratio, self.target), (self.value(OURS), self.limit))
            if value is not None and bound is not None
        ]
        return all(verdicts) if verdicts else None

    def goal(self) -> str:
        sign = "≥" if self.more_is_better else "≤"
        bounds = [f"{self.target:g}×"] if self.target is not None else []
        if self.limit is not None:
            bounds.append(f"{self.limit:g} {self.unit}".strip())
        return f"{sign} {' and '.join(bounds)}" if bounds else ""

    def as_json(self) -> dict[str, Any]:
        medians = {kind: self.value(kind) for kind in self.samples}
        return {**asdict(self), "medians": medians, "ratio": self.ratio, "reached": self.reached}


class Rows:
    """All lines of a run, in the order they were first measured."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, str, str], Row] = {}

    def add(self, kind: str, row: Row, value: float) -> None:
        kept = self.by_name.setdefault((row.section, row.name, row.durability), row)
        kept.samples.setdefault(kind, []).append(value)

    def all(self) -> list[Row]:
        return list(self.by_name.values())
