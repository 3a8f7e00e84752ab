"""How long the event loop keeps whoever is ready waiting.

Four times a second it is asked twice: how late is this alarm, and how long does a turn of the loop take? The longer of the
two counts. An alarm may ring a millisecond late by the timer's resolution alone, so that much of its lateness is let go.
"""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import Final

from levada.engine.histogram import Histogram

INTERVAL_S: Final = 0.25
_RESOLUTION_NS: Final = 1_000_000


class LoopDelay:
    """Begins to measure when it is first asked for, so that a broker that nobody watches sleeps undisturbed."""

    def __init__(self) -> None:
        self.histogram = Histogram()
        self._alarm: asyncio.TimerHandle | None = None
        self._due_ns = 0

    def watch(self) -> None:
        """Measure from now on."""
        if self._alarm is None:
            self._set()

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set(self) -> None:
        self._due_ns = perf_counter_ns() + int(INTERVAL_S * 1e9)
        self._alarm = asyncio.get_running_loop().call_later(INTERVAL_S, self._ring)

    def _ring(self) -> None:
        rang_ns = perf_counter_ns()
        asyncio.get_running_loop().call_soon(self._turned, rang_ns, rang_ns - self._due_ns - _RESOLUTION_NS)

    def _turned(self, rang_ns: int, late_ns: int) -> None:
        self.histogram.observe(max(perf_counter_ns() - rang_ns, late_ns))
        if self._alarm is not None:
            self._set()
