"""Records counted as they are decoded, a batch at a time, with no Python for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from levada.spark.jobs.audit.figures import SIZES

if TYPE_CHECKING:
    import pyarrow as pa

#: What a batch must have, in this order.
COLUMNS: Final = ("key", "value", "headers", "offset", "timestamp")
#: Slots of time are as short as a second, and longer where there would be more of them than this.
_SLOTS_MAX: Final = 5_000
_LONGER: Final = (1_000, 60_000, 3_600_000, 86_400_000, 30 * 86_400_000)
_64_BITS: Final = 2**64


@dataclass
class Times:
    """How many records there are in each slot of time. Slots grow with the time that is covered."""

    slot_ms: int = _LONGER[0]
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, counts: Mapping[int, int], slot_ms: int) -> None:
        """Counts of slots by their beginning in ms."""
        self._grow_to(slot_ms)
        for begin, count in counts.items():
            at = begin // self.slot_ms * self.slot_ms
            self.counts[at] = self.counts.get(at, 0) + count
        while len(self.counts) > _SLOTS_MAX and self.slot_ms < _LONGER[-1]:
            self._grow_to(next(longer for longer in _LONGER if longer > self.slot_ms))

    def _grow_to(self, slot_ms: int) -> None:
        if slot_ms > self.slot_ms:
            before, self.counts, self.slot_ms = self.counts, {}, slot_ms
            self.add(before, slot_ms)


@dataclass
class Tally:
    """What was counted of a stretch of a partition. Two of them are added."""

    records: int = 0
    bytes: int = 0
    keyless: int = 0
    tombstones: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    checksum: int = 0
    sizes: list[int] = field(default_factory=lambda: [0] * (len(SIZES) + 1))
    times: Times = field(default_factory=Times)

    def add(self, batch: pa.RecordBatch) -> None:
        """The rows of a batch with `COLUMNS`."""
        import numpy as np

        from levada.spark.jobs.audit.hashing import record_hashes
        from levada.spark.sink.places import places_of

        if not batch.num_rows:
            return
        key, value = places_of(batch.column(0)), places_of(batch.column(1))
        offsets = np.ascontiguousarray(batch.column(3).to_numpy(), np.int64)
        times_us = np.ascontiguousarray(batch.column(4).cast("int64").to_numpy(), np.int64)
        size = np.maximum(key.size, 0) + np.maximum(value.size, 0)
        self.records += batch.num_rows
        self.bytes += int(size.sum())
        self.keyless += int((key.size <= 0).sum())
        self.tombstones += int((value.size < 0).sum())
        classes = np.bincount(np.searchsorted(SIZES, size, side="right"), minlength=len(self.sizes))
        self.sizes = [have + int(more) for have, more in zip(self.sizes, classes, strict=True)]
        hashes = record_hashes(offsets, times_us, key, value, batch.column(2))
        self.checksum = (self.checksum + int(hashes.sum())) % _64_BITS
        self._add_times(times_us // 1000)

    def _add_times(self, times_ms: Any) -> None:
        import numpy as np

        first, last = int(times_ms.min()), int(times_ms.max())
        self.first_ms = first if self.first_ms is None else min(first, self.first_ms)
        self.last_ms = last if self.last_ms is None else max(last, self.last_ms)
        slots, counts = np.unique(times_ms // self.times.slot_ms, return_counts=True)
        begins = (slots * self.times.slot_ms).tolist()
        self.times.add(dict(zip(begins, counts.tolist(), strict=True)), self.times.slot_ms)

    def merge(self, other: Tally) -> None:
        """Both together."""
        self.records += other.records
        self.bytes += other.bytes
        self.keyless += other.keyless
        self.tombstones += other.tombstones
        self.checksum = (self.checksum + other.checksum) % _64_BITS
        self.sizes = [one + two for one, two in zip(self.sizes, other.sizes, strict=True)]
        self.first_ms = min((one for one in (self.first_ms, other.first_ms) if one is not None), default=None)
        self.last_ms = max((one for one in (self.last_ms, other.last_ms) if one is not None), default=None)
        self.times.add(other.times.counts, other.times.slot_ms)
