"""A set of byte ranges, for remembering what of a file has been verified."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right


class Ranges:
    """Half-open ranges of bytes; touching ones are joined. Safe to use from several threads."""

    __slots__ = ("_ends", "_lock", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Ranges {list(zip(self._starts, self._ends, strict=True))}>"

    def add(self, start: int, end: int) -> None:
        with self._lock:
            first = bisect_left(self._ends, start)
            last = bisect_right(self._starts, end)
            if first < last:
                start = min(start, self._starts[first])
                end = max(end, self._ends[last - 1])
            self._starts[first:last] = [start]
            self._ends[first:last] = [end]

    def cover(self, start: int, end: int) -> bool:
        """True when every byte of the range is in the set."""
        with self._lock:
            slot = bisect_right(self._starts, start) - 1
            return slot >= 0 and end <= self._ends[slot]

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of the range that are not in the set."""
        missing = []
        with self._lock:
            for known_start, known_end in zip(self._starts, self._ends, strict=True):
                if known_end <= start:
                    continue
                if known_start >= end:
                    break
                if start < known_start:
                    missing.append((start, known_start))
                start = max(start, known_end)
        if start < end:
            missing.append((start, end))
        return missing

    def cut(self, end: int) -> None:
        """Forget all bytes from `end` on."""
        with self._lock:
            keep = bisect_left(self._starts, end)
            del self._starts[keep:]
            del self._ends[keep:]
            if self._ends and self._ends[-1] > end:
                self._ends[-1] = end
