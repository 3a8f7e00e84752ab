"""Bytes held in memory for clients, all connections together.

A frame's buffer is granted while less than the limit is taken, so the sum exceeds it by at most one frame and a frame
larger than the limit can still be received. Connections without a grant wait in line; their sockets are not read.

Answers that wait for a slow reader are counted too, but never wait: they shrink what the next Fetch may bring along,
so readers who do not read cannot keep writers from writing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from levada.config import MiB

#: Most bytes of records in one answer. A client may ask for more; larger answers would only cost memory.
ANSWER_BYTES_MAX: Final = 8 * MiB


class Budget:
    """What is taken of `limit_bytes`, and who waits."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.taken_bytes = 0
        self.unsent_bytes = 0

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Count `size` bytes. False: not now, `granted` is called when they have been counted."""
        if self.taken_bytes >= self._limit_bytes or self._waiting:
            self._waiting.append((size, granted))
            return False
        self.taken_bytes += size
        return True

    def give(self, size: int) -> None:
        """The bytes are free again; whoever waited longest goes on."""
        self.taken_bytes -= size
        while self._waiting and self.taken_bytes < self._limit_bytes:
            size, granted = self._waiting.popleft()
            self.taken_bytes += size
            granted()

    def forget(self, granted: Callable[[], None]) -> None:
        """Someone who waited is gone."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)

    def answer_bytes_max(self) -> int:
        """How many bytes of records an answer may hold now. Less, down to none beyond the first batch, as answers pile up."""
        return max(0, min(ANSWER_BYTES_MAX, (self._limit_bytes // 2 - self.unsent_bytes) // 4))
