"""Bytes held in memory for clients, all connections together.

A frame is begun while less than the limit is taken, and counted as it comes: what a client only promises to send is not
taken from others. Connections without a grant wait in line; their sockets are not read. When all is taken, one of the
frames that are under way is received to its end nevertheless, then the next: so frames never wait for one another,
the sum exceeds the limit by at most one frame, and a frame larger than the limit can still be received.

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
    """What is taken of `limit_bytes`, and who waits. Whoever takes is known by what is called when it was granted."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        #: Those with a frame under way, and those who would begin one.
        self._growing: deque[tuple[int, Callable[[], None]]] = deque()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        #: Whose frame is received to its end, whatever is taken.
        self._favoured: Callable[[], None] | None = None
        self.taken_bytes = 0
        self.unsent_bytes = 0

    def resize(self, limit_bytes: int) -> None:
        """Another limit from now on; whoever fits into it goes on."""
        self._limit_bytes = limit_bytes
        self.give(0)

    @property
    def is_scarce(self) -> bool:
        """Does anybody wait?"""
        return bool(self._waiting or self._growing)

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Count `size` bytes. False: not now, `granted` is called when they have been counted."""
        if self.taken_bytes >= self._limit_bytes or self._waiting:
            self._waiting.append((size, granted))
            return False
        self.taken_bytes += size
        return True

    def grow(self, size: int, granted: Callable[[], None]) -> bool:
        """The same for more of a frame, some of which was taken before. Goes before those who have nothing yet."""
        if self.taken_bytes >= self._limit_bytes and self._favoured != granted:
            if self._favoured is not None:
                self._growing.append((size, granted))
                return False
            self._favoured = granted
        self.taken_bytes += size
        return True

    def give(self, size: int, granted: Callable[[], None] | None = None) -> None:
        """The bytes are free again: the frame is here, or its sender is gone. Whoever waited longest goes on."""
        self.taken_bytes -= size
        if self._favoured is not None and self._favoured == granted:
            self._favoured = None
        while self._growing and (self._favoured is None or self.taken_bytes < self._limit_bytes):
            if self.taken_bytes >= self._limit_bytes:
                self._favoured = self._growing[0][1]
            self._grant(self._growing)
        while self._waiting and self.taken_bytes < self._limit_bytes:
            self._grant(self._waiting)

    def _grant(self, line: deque[tuple[int, Callable[[], None]]]) -> None:
        size, granted = line.popleft()
        self.taken_bytes += size
        granted()

    def forget(self, granted: Callable[[], None]) -> None:
        """Someone who waited is gone."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)
        self._growing = deque(entry for entry in self._growing if entry[1] != granted)

    def answer_bytes_max(self) -> int:
        """How many bytes of records an answer may hold now. Less, down to none beyond the first batch, as answers pile up."""
        return max(0, min(ANSWER_BYTES_MAX, (self._limit_bytes // 2 - self.unsent_bytes) // 4))
