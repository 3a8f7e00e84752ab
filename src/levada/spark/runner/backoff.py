"""How long to wait before the next try."""

from __future__ import annotations

from typing import Final

FIRST_S: Final = 1.0
LONGEST_S: Final = 60.0
#: Who has run for so long has recovered: the next failure is the first again.
HEALTHY_S: Final = 60.0


def delay_s(failures: int) -> float:
    """After so many failures in a row: 1 s, doubling up to 60 s."""
    return float(min(FIRST_S * 2 ** min(failures - 1, 16), LONGEST_S)) if failures > 0 else 0.0
