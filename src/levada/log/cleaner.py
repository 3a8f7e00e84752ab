"""What stays of a batch when a log is compacted, by Kafka's rules.

- Of each key the latest record stays, at its offset. Records without a key go; a batch whose records cannot be read stays.
- A tombstone (no value) stays for `delete.retention.ms` from the first time it was compacted, so that slow readers see it:
  that moment is written into its batch as the delete horizon.
- Records of aborted transactions go. A transaction's marker stays as long as any batch of the transaction is there, and then
  as long as a tombstone would.
- The last batch of a producer that is still remembered keeps its place, empty if need be: its sequence goes on from there.
  So does the last batch of every segment, though nobody's, so that its offsets tell what a segment was made of.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from levada.errors import RecordError
from levada.log.aborted import AbortedTransaction
from levada.log.producers import Producers
from levada.records.batch import Batch
from levada.records.read import Record, read, read_marker
from levada.records.rewrite import empty, with_records

#: Keys in memory at once, about 128 MB of them; a log with more is compacted in several rounds.
KEYS_MAX: Final = 1_000_000
_DIGEST_SIZE: Final = 16


class LastRecord(NamedTuple):
    """The last thing the log knows of a producer: its last data batch, or only the epoch of its last marker."""

    offset: int
    epoch: int


def last_records(producers: Producers) -> dict[int, LastRecord]:
    """By producer id, of all producers that are remembered."""
    return {producer.producer_id: LastRecord(producer.last_offset, producer.epoch) for producer in producers}


class LatestOffsets:
    """Key → the offset of its latest record, for the part of the log that was not compacted before."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def full(self) -> bool:
        return len(self._offsets) >= self._keys_max

    def add(self, key: bytes, offset: int) -> None:
        self._offsets[_short(key)] = offset

    def is_latest(self, key: bytes, offset: int) -> bool:
        """False when a later record of this key is known."""
        return self._offsets.get(_short(key), -1) <= offset


def _short(key: bytes) -> bytes:
    """The key itself or, where that is shorter, 128 bits that stand for it."""
    return key if len(key) < _DIGEST_SIZE else blake2b(key, digest_size=_DIGEST_SIZE).digest()


class TransactionsPassed:
    """Which transactions are under way as batches pass by in order. `aborted` are all that overlap what passes.

    `kept` collects those that still have a batch and whose marker has passed: the new index of aborted transactions.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = [(entry.first_offset, entry) for entry in aborted]
        heapq.heapify(self._ahead)
        #: Producer id → its transaction that will be aborted, and whether a batch of it has passed.
        self._aborting: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committing: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def passes(self, batch: Batch) -> bool:
        """True when nothing of this batch is needed: its transaction was aborted or, for a marker, has no batch left."""
        while self._ahead and self._ahead[0][0] <= batch.last_offset:
            entry = heapq.heappop(self._ahead)[1]
            self._drop_ended(entry.producer_id, entry.first_offset)
            self._aborting.setdefault(entry.producer_id, (entry, False))
        self._drop_ended(batch.producer_id, batch.base_offset)
        if batch.is_control:
            return self._marker_passes(batch)
        if not batch.is_transactional:
            return False
        aborting = self._aborting.get(batch.producer_id)
        if aborting is None:
            self._committing.add(batch.producer_id)
            return False
        self._aborting[batch.producer_id] = aborting[0], True
        return True

    def _drop_ended(self, producer_id: int, offset: int) -> None:
        """Forget an aborted transaction whose marker lies before this offset: it did not pass by, and will not."""
        aborting = self._aborting.get(producer_id)
        if aborting is not None and aborting[0].last_offset < offset:
            del self._aborting[producer_id]

    def _marker_passes(self, batch: Batch) -> bool:
        # One that is empty was kept for its producer's sake alone.
        marker = read_marker(batch) if batch.record_count else None
        if marker is None:
            return batch.record_count == 0
        if marker.commit:
            had_batches = batch.producer_id in self._committing
            self._committing.discard(batch.producer_id)
            return not had_batches
        entry, had_batches = self._aborting.pop(batch.producer_id, (None, False))
        if entry is not None and had_batches:
            self.kept.append(entry)
        return not had_batches


class Cleaner:
    """Decides, batch by batch and in order, what stays of a log.

    `latest` knows every key from the first dirty offset up to `mapped_to`; what lies from there on stays as it is.
    """

    def __init__(
        self,
        *,
        latest: LatestOffsets,
        mapped_to: int,
        transactions: TransactionsPassed,
        last_records: Mapping[int, LastRecord],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.transactions = transactions
        self._latest = latest
        self._mapped_to = mapped_to
        self._last_records = last_records
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms

    def clean(self, batch: Batch, *, keeps_place: bool = False) -> bytearray | memoryview | None:
        """The bytes to keep: all of the batch, fewer records of it, an empty one in its place, or nothing."""
        needless = self.transactions.passes(batch)
        if not batch.is_control and batch.base_offset >= self._mapped_to:
            return batch.view
        kept = self._clean_marker(batch, needless) if batch.is_control else self._clean_records(batch, needless)
        return self._placeholder(batch, keeps_place) if kept is None else kept

    def _placeholder(self, batch: Batch, keeps_place: bool) -> bytearray | memoryview | None:
        anonymous = not self._is_last_of_producer(batch)
        if anonymous and not keeps_place:
            return None
        if batch.record_count == 0 and anonymous != batch.has_producer:
            return batch.view
        return empty(batch, anonymous=anonymous)

    def _clean_marker(self, batch: Batch, needless: bool) -> bytearray | memoryview | None:
        horizon_ms = batch.delete_horizon_ms
        if batch.record_count == 0 or (needless and horizon_ms is not None and horizon_ms <= self._now_ms):
            return None
        if needless and horizon_ms is None and batch.base_offset < self._mapped_to:
            return with_records(batch, list(read(batch)), delete_horizon_ms=self._horizon_ms)
        return batch.view

    def _clean_records(self, batch: Batch, needless: bool) -> bytearray | memoryview | None:
        if needless:
            return None
        horizon_ms = batch.delete_horizon_ms
        tombstones_stay = horizon_ms is None or self._now_ms < horizon_ms
        try:
            records = [record for record in read(batch) if self._stays(record, tombstones_stay)]
        except RecordError:
            return batch.view
        if not records:
            return None
        sets_horizon = horizon_ms is None and any(record.value is None for record in records)
        if len(records) == batch.record_count and not sets_horizon:
            return batch.view
        return with_records(batch, records, delete_horizon_ms=self._horizon_ms if sets_horizon else None)

    def _stays(self, record: Record, tombstones_stay: bool) -> bool:
        if record.offset >= self._mapped_to:
            return True
        if record.key is None or not self._latest.is_latest(record.key, record.offset):
            return False
        return record.value is not None or tombstones_stay

    def _is_last_of_producer(self, batch: Batch) -> bool:
        last = self._last_records.get(batch.producer_id)
        if last is None:
            return False
        if last.offset >= 0:
            return batch.last_offset == last.offset
        # Nothing but a marker is left of it, and that one knows the epoch that fences older ones.
        return batch.is_control and batch.producer_epoch == last.epoch
