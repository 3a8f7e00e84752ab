"""Which messages were seen, when, and where the first copy lies. Imported only where dedup is on: it needs numba.

Open addressing, 32 bytes a slot, see slots.py. Filled to 0.8 at most, 0.64 at least once it is large: ten million messages need 400
to 500 MB. It grows and shrinks a little with every call, so none takes long, and the memory of what has been moved is given back
on the way. With a limit, the oldest are forgotten when too many have come: a fifth of them at a time, a little with every call, so that
at least seven tenths of the limit are always remembered. Nothing here knows a clock or a topic: a place is a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from levada.broker.dedup import slots as compiled
from levada.broker.dedup.array import LARGE_FROM, SLOT_BYTES, Array, Entries

Rows = NDArray[np.int64]

CAPACITY_MIN: Final = 1024
FILLED_MAX: Final = 0.8
#: Up to so many slots it doubles, and up to so many it grows by half; beyond, memory counts for more than moving.
_SMALL: Final = LARGE_FROM
_LARGE: Final = 1 << 23
_GROWTH_SMALL: Final = 2.0
_GROWTH_MIDDLE: Final = 1.5
_GROWTH_LARGE: Final = 1.25
#: Less full than this after a sweep, it shrinks.
_FILLED_MIN: Final = 0.3
#: How many old slots are moved for each message that comes, and at least.
_MOVED_PER_MESSAGE: Final = 16
_MOVED_MIN: Final = 1024
#: Slots for one turn of a sweep or a copy: about a millisecond.
STEP: Final = 1 << 15
#: As full as this part of its limit, it begins to forget this part of its messages, so that there is room when it is full.
_EVICT_FROM: Final = 0.9
_EVICTED: Final = 0.2
#: So many slots are looked at to say which are the oldest.
_SAMPLE: Final = 4096
_NEVER_MS: Final = -(1 << 62)


_NOTHING: Final[Entries] = np.zeros((0, 4), np.uint64)


class Table:
    """Messages by their hashes."""

    def __init__(self, capacity: int = 0) -> None:
        self._array = Array(max(capacity, CAPACITY_MIN))
        self._old: Array | None = None
        self._done = 0
        self._sweep_from = 0
        self._scratch = np.zeros(1, np.uint64)
        self._removed = np.zeros(1, np.int64)
        self.count = 0
        #: How many slots were ever taken.
        self.arrivals = 0
        #: Grows whenever something may stand where it did not stand before, other than by coming.
        self.shifts = 0
        #: Most messages it remembers; None for as many as come.
        self.limit: int | None = None
        #: What was first seen at or before this time is forgotten, because too many have come.
        self.floor_ms = _NEVER_MS
        #: Forgotten so although their window had not passed.
        self.evicted = 0
        self._evicting = False
        self._evict_from = 0
        self._latest_ms = _NEVER_MS

    def __len__(self) -> int:
        return self.count

    @property
    def capacity(self) -> int:
        return self._array.capacity

    @property
    def is_moving(self) -> bool:
        return self._old is not None

    @property
    def size_bytes(self) -> int:
        """What the slots take, at most."""
        moving = 0 if self._old is None else len(self._old.slots) * SLOT_BYTES - self._old.given_back
        return len(self._array.slots) * SLOT_BYTES + moving

    def meet(
        self,
        hashes: Entries,
        records: Rows,
        firsts: Rows,
        *,
        base_offset: int,
        place: int,
        now_ms: int,
        window_ms: int,
        dead: NDArray[np.uint8],
        insert: bool = True,
        dense: bool = False,
    ) -> None:
        """Look messages up and, with `insert`, remember those that are new: see `slots.meet`."""
        if insert:
            self._latest_ms = max(self._latest_ms, now_ms)
            self.make_room(len(firsts), now_ms - window_ms, dead)
        window_ms = min(window_ms, now_ms - self.floor_ms)
        self._came(
            compiled.meet(
                *self._arrays(), hashes, records, base_offset, place, now_ms, window_ms, insert, dense, dead, firsts,
                self._scratch,
            )
        )  # fmt: skip

    def merge(self, entries: Entries, window_ms: int, cutoff_ms: int, dead: NDArray[np.uint8]) -> None:
        """Remember entries as they are. The one that is there already stays where it covers the other."""
        for start in range(0, len(entries), STEP):
            part = entries[start : start + STEP]
            self.make_room(len(part), cutoff_ms, dead)
            self._came(compiled.merge(*self._arrays(), part, window_ms, dead))

    def _came(self, added: int) -> None:
        self.count += added
        self.arrivals += added

    def drop(self, entries: Entries) -> None:
        """Forget exactly these."""
        self.shifts += 1
        self.count -= compiled.drop(*self._arrays(), entries)

    def _arrays(self) -> tuple[Entries, int, Entries, int, int]:
        array, old = self._array, self._old
        if old is None:
            return array.slots, array.capacity, _NOTHING, 0, 0
        return array.slots, array.capacity, old.slots, old.capacity, self._done

    # Growing and shrinking

    def make_room(self, coming: int, cutoff_ms: int, dead: NDArray[np.uint8]) -> None:
        """Have room for so many more; a part of what is to be moved is moved, and a part of what is to be forgotten is."""
        if self.limit is not None:
            self._keep_within(self.limit, coming, cutoff_ms, dead)
            cutoff_ms = max(cutoff_ms, self.floor_ms)
        if self._old is not None:
            self._move(max(coming * _MOVED_PER_MESSAGE, _MOVED_MIN), cutoff_ms, dead)
        needed = self.count + coming
        if needed > FILLED_MAX * self._array.capacity:
            while self._old is not None:
                self._move(STEP, cutoff_ms, dead)
            self._resize(max(int(self._array.capacity * self._growth()), int(needed / FILLED_MAX) + 1))
            self._move(max(coming * _MOVED_PER_MESSAGE, _MOVED_MIN), cutoff_ms, dead)

    def _growth(self) -> float:
        capacity = self._array.capacity
        return _GROWTH_SMALL if capacity < _SMALL else _GROWTH_MIDDLE if capacity < _LARGE else _GROWTH_LARGE

    def _resize(self, capacity: int) -> None:
        self._old, self._array = self._array, Array(capacity)
        self._done = self._sweep_from = self._evict_from = 0
        self.shifts += 1

    def _move(self, limit: int, cutoff_ms: int, dead: NDArray[np.uint8]) -> int:
        """Move a part; returns how many were over and left out."""
        old = self._old
        assert old is not None
        self._removed[0] = 0
        array = self._array
        self._done = compiled.move(
            array.slots, array.capacity, old.slots, self._done, limit, cutoff_ms, dead, self._removed
        )
        removed = int(self._removed[0])
        self.count -= removed
        if self._done >= len(old.slots):
            self._old = None
        else:
            old.give_back(self._done)
        return removed

    # Forgetting

    def _keep_within(self, limit: int, coming: int, cutoff_ms: int, dead: NDArray[np.uint8]) -> None:
        if not self._evicting:
            if self.count + coming <= _EVICT_FROM * limit:
                return
            self._raise_floor()
        if self._old is not None:
            return  # what is moved leaves out what is forgotten
        self._evict_from, removed = self._sweep(
            self._evict_from, max(coming * _MOVED_PER_MESSAGE, _MOVED_MIN), self.floor_ms, dead
        )
        self.evicted += removed if self.floor_ms > cutoff_ms else 0
        self._evicting = self._evict_from > 0

    def _raise_floor(self) -> None:
        """Forget the oldest part. The newest stay, whatever their number: they may be of the batch that comes."""
        slots = self._array.slots
        some = slots[:: max(1, len(slots) // _SAMPLE)]
        times = time_of(some[some[:, 0] != 0])
        if len(times):
            oldest = int(np.quantile(times, _EVICTED, method="lower"))
            self.floor_ms = max(self.floor_ms, min(oldest, self._latest_ms - 1))
            self._evicting = True

    def _sweep(self, start: int, limit: int, cutoff_ms: int, dead: NDArray[np.uint8]) -> tuple[int, int]:
        """Empty slots that are over, from one on; where to go on, 0 at the end, and how many went."""
        self._removed[0] = 0
        end = compiled.sweep(self._array.slots, self._array.capacity, start, limit, cutoff_ms, dead, self._removed)
        removed = int(self._removed[0])
        if removed:
            self.shifts += 1
            self.count -= removed
        return end, removed

    def sweep_step(self, cutoff_ms: int, dead: NDArray[np.uint8]) -> tuple[int, bool]:
        """Forget, in a part of the table, what was first seen at or before `cutoff_ms` or is in a dead place.

        Returns how many went, and whether the end was reached: the next step begins at the front.
        """
        if self._old is not None:
            return self._move(STEP, cutoff_ms, dead), False
        array = self._array
        self._sweep_from, removed = self._sweep(self._sweep_from, STEP, cutoff_ms, dead)
        if self._sweep_from:
            return removed, False
        if array.capacity > CAPACITY_MIN and self.count < _FILLED_MIN * array.capacity:
            self._resize(max(CAPACITY_MIN, int(self.count / FILLED_MAX * _GROWTH_LARGE) + 1))
        return removed, True

    # Copying

    def entries(self) -> Iterator[Entries]:
        """All that is remembered, a part at a time. Right as a whole only if `shifts` is the same at the end as at the start."""
        for array, start in ((self._old, self._done), (self._array, 0)):
            if array is None:
                continue
            for at in range(start, len(array.slots), STEP):
                stop = min(at + STEP, len(array.slots))
                room = np.empty((stop - at, 4), np.uint64)
                yield room[: compiled.collect(array.slots, at, stop, room)]


def time_of(entries: Entries) -> Any:
    """When each was first seen, in ms."""
    return entries[:, 2] >> np.uint64(compiled.PLACE_BITS)


def place_of(entries: Entries) -> Any:
    return entries[:, 2] & np.uint64(compiled.PLACES_MAX - 1)


def mark(time_ms: int, place: int) -> int:
    """Time and place as a slot holds them."""
    return time_ms << compiled.PLACE_BITS | place
