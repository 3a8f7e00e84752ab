"""Producer ids: numbers that no two producers ever share, also not across a crash.

They are reserved on disk a block at a time and given out from memory; the next block is fetched while half of the last is
left. What is left of a block when the broker stops is never used.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

#: Starts something that may wait for the disk in a worker thread.
Submit = Callable[[Callable[[], range]], "Future[range]"]


class ProducerIds:
    """Gives out producer ids, from `first` on. `reserve` makes the next block durable; it blocks."""

    def __init__(self, first: range, reserve: Callable[[], range], submit: Submit) -> None:
        self._next, self._end = first.start, first.stop
        self._low = len(first) // 2
        self._reserve = reserve
        self._submit = submit
        self._coming: Future[range] | None = None

    def next(self) -> int:
        """A new one. Waits only where a thousand are asked for faster than the disk can reserve a thousand."""
        if self._end - self._next <= self._low and self._coming is None:
            self._coming = self._submit(self._reserve)
        if self._next == self._end:
            self._take()
        producer_id = self._next
        self._next += 1
        return producer_id

    def _take(self) -> None:
        coming, self._coming = self._coming, None
        assert coming is not None
        block = coming.result()
        self._next, self._end = block.start, block.stop
