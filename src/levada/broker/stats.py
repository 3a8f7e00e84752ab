"""This broker in ten figures."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

from levada import __version__
from levada.engine.port import TopicView

_STATM: Final = Path("/proc/self/statm")


class Stats(NamedTuple):
    """Records are counted since the start; memory is 0 where the system does not tell."""

    version: str
    uptime_ms: int
    topics: int
    partitions: int
    groups: int
    connections: int
    bytes_on_disk: int
    records_in: int
    records_out: int
    resident_bytes: int


class Statistician:
    """Reads the figures when somebody asks. What it cannot see for itself it is given ways to find out."""

    def __init__(
        self,
        view: TopicView,
        *,
        groups: Callable[[], int],
        connections: Callable[[], int],
        records: Callable[[], tuple[int, int]],
        bytes_on_disk: Callable[[], Awaitable[int]],
    ) -> None:
        self._view = view
        self._groups = groups
        self._connections = connections
        self._records = records
        self._bytes_on_disk = bytes_on_disk
        self._started_ns = time.monotonic_ns()

    async def read(self) -> Stats:
        """Topics without those that are the broker's own."""
        infos = [info for info in self._view.all() if not info.internal]
        size = await self._bytes_on_disk()
        return Stats(
            __version__,
            (time.monotonic_ns() - self._started_ns) // 1_000_000,
            len(infos),
            sum(info.partitions for info in infos),
            self._groups(),
            self._connections(),
            size,
            *self._records(),
            resident_bytes(),
        )


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
