"""The slots of a table, in pages of their own."""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np
from numpy.typing import NDArray

from levada.broker.dedup import slots as compiled

Entries = NDArray[np.uint64]  #: rows of four: two hashes, time and place, offset

#: From so many slots on, large pages pay.
LARGE_FROM: Final = 1 << 20
SLOT_BYTES: Final = 32
_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_GIVE_BACK_BYTES: Final = 1 << 22


class Array:
    """Only those written to cost anything."""

    __slots__ = ("_pages", "capacity", "given_back", "slots")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        count = capacity + compiled.SPARE
        self._pages = mmap.mmap(-1, count * SLOT_BYTES, flags=_PRIVATE)
        if hasattr(mmap, "MADV_HUGEPAGE") and capacity > LARGE_FROM:
            self._pages.madvise(mmap.MADV_HUGEPAGE)
        self.slots: Entries = np.frombuffer(self._pages, np.uint64).reshape(count, 4)
        self.given_back = 0

    def give_back(self, done: int) -> None:
        """What lies before this slot is not needed any more."""
        size = done * SLOT_BYTES - self.given_back
        size -= size % _GIVE_BACK_BYTES
        if size > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._pages.madvise(mmap.MADV_DONTNEED, self.given_back, size)
            self.given_back += size
