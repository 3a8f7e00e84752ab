"""How much a consumer may be handed before it asks for more.

A consumer has at most `records_max` records that were delivered and not granted anew, a group 10,000 over all its consumers.
Batches stay whole: one is delivered while there is room for a single record, so what is out may pass the limit by at most
one batch less one record, and a batch larger than the limit still arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from levada.errors import InvalidRequest

GROUP_RECORDS_MAX: Final = 10_000


class Pool:
    """What all consumers of a group have out together, and who waits for room."""

    def __init__(self, records_max: int = GROUP_RECORDS_MAX) -> None:
        self._records_max = records_max
        self._line: dict[Callable[[], None], None] = {}
        self.out = 0

    @property
    def room(self) -> int:
        return self._records_max - self.out

    def wait(self, wake: Callable[[], None]) -> None:
        """Be called, once, when there is room again; in the order of asking."""
        self._line[wake] = None

    def forget(self, wake: Callable[[], None]) -> None:
        self._line.pop(wake, None)

    def take(self, count: int) -> None:
        self.out += count

    def give(self, count: int) -> None:
        self.out -= count
        if self._line and self.room > 0:
            line, self._line = self._line, {}
            for wake in line:
                wake()


class Credit:
    """One consumer's."""

    def __init__(self, records_max: int, pool: Pool | None = None) -> None:
        self._records_max = records_max
        self._pool = pool
        self.out = 0
        #: Called when there is room after there was none.
        self.wake: Callable[[], None] = lambda: None

    def room(self) -> int:
        """How many records may be delivered now. If none: `wake` will be called."""
        own = self._records_max - self.out
        if self._pool is None or own <= 0:
            return max(own, 0)
        shared = self._pool.room
        if shared <= 0:
            self._pool.wait(self.wake)
            return 0
        return min(own, shared)

    def take(self, count: int) -> None:
        """These were delivered."""
        self.out += count
        if self._pool is not None:
            self._pool.take(count)

    def grant(self, count: int) -> None:
        """So many of those delivered are done with. More than were delivered count for no more than those."""
        if count < 0:
            raise InvalidRequest(f"{count} records were granted; it cannot be fewer than none")
        count = min(count, self.out)
        was_full = self.out >= self._records_max
        self.out -= count
        if self._pool is not None:
            self._pool.give(count)
        if was_full and self.out < self._records_max:
            self.wake()

    def close(self) -> None:
        """The consumer is gone, and what it held with it."""
        if self._pool is not None:
            self._pool.forget(self.wake)
            self._pool.give(self.out)
        self.out = 0
