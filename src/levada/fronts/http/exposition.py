"""Metrics as text, in Prometheus's format 0.0.4, a piece at a time so that the loop serves others in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class _Piece(Collector):
    """As much of a registry as is written at once."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


async def exposition(metrics: Iterable[Metric]) -> AsyncIterator[bytes]:
    """The text of these metrics. One that comes in several pieces, one after the other, gets one heading."""
    before = ""
    for metric in metrics:
        text = generate_latest(_Piece(metric))  # type: ignore[arg-type]  # of a registry it asks nothing else
        if metric.name == before:
            text = b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
        before = metric.name
        yield text
        await asyncio.sleep(0)
