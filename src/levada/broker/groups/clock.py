"""The clock of sessions and rebalances."""

from __future__ import annotations

import time
from typing import Final

#: Wall clock minus monotonic clock, when this module was loaded.
_ANCHOR_NS: Final = time.time_ns() - time.monotonic_ns()


def now_ms() -> int:
    """The wall clock as it would be had nobody set it since the start.

    Whoever calls the coordinator passes this and not the wall clock: a clock that is set forward would expire every
    session at once, one that is set back would keep the dead for hours, and a laptop that slept is not a dead member.
    """
    return (time.monotonic_ns() + _ANCHOR_NS) // 1_000_000
