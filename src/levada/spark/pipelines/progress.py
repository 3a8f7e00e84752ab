"""How a running pipeline is doing, out of what Spark reports of each micro-batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from levada.spark.losses import Lost

#: The time that only a micro-batch takes that was carried out.
_EXECUTED: Final = "addBatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One look. `batch` is −1 until one is done."""

    batch: int = -1
    #: Of this micro-batch.
    rows: int = 0
    batch_ms: int = 0
    #: Of the last one that had rows: what comes after it may only have closed windows.
    rows_s: float = 0.0
    #: Of this run.
    rows_total: int = 0
    #: Records in the topics that no finished micro-batch has read; None where it is not known.
    lag: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    #: Rows left out since they came later than the watermark allows, in this run.
    late_rows: int = 0
    watermark: str | None = None
    #: What was gone before this run could read it: "offsets 0 to 9 of orders-0: …".
    lost: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "lost": list(self.lost)}


def read(offset: str | Mapping[str, Any] | None) -> tuple[dict[tuple[str, int], int], list[Lost]]:
    """Where a source stands, by topic and partition, and what it has lost on the way, out of the offset it gave to Spark."""
    found = (json.loads(offset) if isinstance(offset, str) else offset) or {}
    held = {(topic, int(number)): at for topic, by in found.get("to", {}).items() for number, at in by.items()}
    return held, [Lost.of_json(one) for one in found.get("lost", ())]


def behind(ends: Mapping[tuple[str, int], int], at: Mapping[tuple[str, int], int]) -> int:
    """How many offsets lie between where it stands and the ends of the partitions."""
    return sum(max(0, end - at.get(partition, end)) for partition, end in ends.items())


class Progresses:
    """Adds up what Spark says of each micro-batch, which it may say several times, and of idle ones without rows."""

    def __init__(self) -> None:
        #: The last one that was added.
        self.batch = -1
        self._rows_total = 0
        self._late_total = 0
        self._last_with_rows: Mapping[str, Any] = {}
        self._latest: Mapping[str, Any] = {}
        self._lost: list[str] = []
        #: Where the sources stand after the last batch, by topic and partition.
        self.positions: dict[tuple[str, int], int] = {}

    def add(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Reports in their order; those that were added already are passed over."""
        for report in reports:
            if report["batchId"] <= self.batch:
                continue
            if _EXECUTED not in report["durationMs"]:
                # Idle: it has the number of the next micro-batch, which is still to come, and says where the sources stand.
                for source in report.get("sources", ()):
                    self.positions |= read(source.get("endOffset"))[0]
                continue
            self.batch = report["batchId"]
            self._latest = report
            self._rows_total += report["numInputRows"]
            self._late_total += sum(one.get("numRowsDroppedByWatermark", 0) for one in report.get("stateOperators", ()))
            self._look_at(report.get("sources", ()))
            if report["numInputRows"]:
                self._last_with_rows = report

    def _look_at(self, sources: Iterable[Mapping[str, Any]]) -> None:
        for source in sources:
            held, lost = read(source.get("endOffset"))
            self.positions |= held
            self._lost += [str(one) for one in lost]

    def progress(self, *, lag: int | None = None) -> Progress:
        if not self._latest:
            return Progress(lag=lag)
        state = self._latest.get("stateOperators", ())
        return Progress(
            batch=self.batch,
            rows=self._latest["numInputRows"],
            batch_ms=self._latest["durationMs"].get("triggerExecution", 0),
            rows_s=self._last_with_rows.get("processedRowsPerSecond") or 0.0,
            rows_total=self._rows_total,
            lag=lag,
            state_rows=sum(one["numRowsTotal"] for one in state),
            state_bytes=sum(one["memoryUsedBytes"] for one in state),
            late_rows=self._late_total,
            watermark=(self._latest.get("eventTime") or {}).get("watermark"),
            lost=tuple(self._lost),
        )
