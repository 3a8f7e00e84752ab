"""How long things took, counted. Counting costs a quarter of a microsecond: it stands on the road of every message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: The first bucket ends at 2¹⁴ ns, about 16 µs; each ends at twice the one before, the last at 2³⁴ ns, about 17 s.
FIRST: Final = 14
LAST: Final = 34
#: One for every power of two that a duration in nanoseconds can have; those beyond the last are shown as one.
_COUNTS: Final = 64


class Histogram:
    """Durations in nanoseconds, by powers of two. Whoever observes from several threads holds a lock."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * _COUNTS
        self.total_ns = 0

    def observe(self, duration_ns: int, times: int = 1) -> None:
        self.counts[(duration_ns >> FIRST).bit_length()] += times
        self.total_ns += duration_ns * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Pairs (upper bound in seconds, how many took less), ending with infinity."""
        so_far = 0
        for place in range(LAST - FIRST + 1):
            so_far += self.counts[place]
            yield 2 ** (FIRST + place) / 1e9, so_far
        yield float("inf"), self.count
