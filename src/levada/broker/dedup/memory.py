"""What one topic, or all topics that share it, remembers of the messages it has seen.

A message counts as seen from the moment it is screened, or, where it is part of a transaction, from when that commits: until then
only its own transaction meets it. The window begins when it was appended, by the broker's clock. Everything here can be
found again by reading the log. The caller owns the clock and the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from levada.broker.dedup.array import Entries
from levada.broker.dedup.hashing import DELTA
from levada.broker.dedup.places import Place, Places
from levada.broker.dedup.screening import First, Keys, Screening
from levada.broker.dedup.table import Table, mark, place_of
from levada.errors import CorruptBatch, InvalidRecord
from levada.records.batch import Batch
from levada.records.compression import UNPACKED_BYTES_MAX
from levada.records.read import read_marker


class _Open:
    """What a producer's open transaction holds, and in which places."""

    __slots__ = ("numbers", "table")

    def __init__(self) -> None:
        self.table = Table()
        self.numbers: set[int] = set()


class Memory:
    """Messages seen, told by their id or by their payload."""

    def __init__(self, *, by_id: bool, seed: int | None = None) -> None:
        self.by_id = by_id
        #: Nobody outside can say which messages would crowd one corner of the table.
        self.seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self.places = Places()
        self.table = Table()
        self.swept = 0
        self._open: dict[int, _Open] = {}

    def __len__(self) -> int:
        return len(self.table)

    # Screening

    def screen(
        self,
        place: Place,
        batch: Batch,
        base_offset: int,
        now_ms: int,
        window_ms: int,
        *,
        dense: bool = False,
        unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
    ) -> Screening:
        """Which records of a batch were seen before, earlier ones of the same batch included. The others are remembered from now
        on, at their offsets; with `dense`, at those they have once the repeats are gone.

        InvalidRecord: the records cannot be read, and nothing has changed.
        """
        try:
            keys = Keys(batch, by_id=self.by_id, seed=np.uint64(self.seed), unpacked_bytes_max=unpacked_bytes_max)
        except CorruptBatch as reason:
            raise InvalidRecord(f"the batch does not hold the records it claims: {reason}") from None
        number = self.places.number(place)
        firsts = self._meet(keys, number, base_offset, now_ms, window_ms, dense=dense)
        table = self._open[batch.producer_id].table if batch.is_transactional else self.table

        def forget() -> None:
            table.drop(_entries(keys, firsts, mark(now_ms, number), base_offset, dense=dense))

        return Screening(keys, firsts, self._repeats(firsts), forget)

    def replay(self, place: Place, batch: Batch, time_ms: int, window_ms: int) -> None:
        """Remember a batch that was read back from the log, appended at that time. InvalidRecord, CorruptBatch."""
        if batch.is_control:
            self.observe(place, batch, time_ms, window_ms)
        elif batch.record_count:
            keys = Keys(batch, by_id=self.by_id, seed=np.uint64(self.seed))
            self._meet(keys, self.places.number(place), batch.base_offset, time_ms, window_ms)

    def observe(self, place: Place, batch: Batch, now_ms: int, window_ms: int) -> None:
        """The broker itself has written to the partition: the end of a transaction, or a part of one."""
        if not batch.is_control:
            self.replay(place, batch, now_ms, window_ms)
        elif batch.record_count and (end := read_marker(batch)) is not None:
            self._ended(place, batch.producer_id, commit=end.commit, now_ms=now_ms, window_ms=window_ms)

    def _meet(
        self, keys: Keys, number: int, base_offset: int, now_ms: int, window_ms: int, *, dense: bool = False
    ) -> NDArray[np.int64]:
        firsts = np.full((len(keys.records), 2), -1, np.int64)

        def meet(table: Table, *, insert: bool) -> None:
            table.meet(
                keys.hashes, keys.records, firsts, base_offset=base_offset, place=number, now_ms=now_ms,
                window_ms=window_ms, dead=self.places.dead, insert=insert, dense=dense,
            )  # fmt: skip

        if not keys.batch.is_transactional:
            meet(self.table, insert=True)
            return firsts
        meet(self.table, insert=False)
        transaction = self._open.setdefault(keys.batch.producer_id, _Open())
        transaction.numbers.add(number)
        meet(transaction.table, insert=True)
        return firsts

    def _repeats(self, firsts: NDArray[np.int64]) -> dict[int, First]:
        rows = np.flatnonzero(firsts[:, 0] >= 0)
        if not len(rows):
            return {}
        places = self.places.all
        found = firsts[rows].tolist()
        return {
            row: First(places[number].at, offset) for row, (number, offset) in zip(rows.tolist(), found, strict=True)
        }

    # Transactions

    def _ended(self, place: Place, producer_id: int, *, commit: bool, now_ms: int, window_ms: int) -> None:
        transaction = self._open.get(producer_id)
        number = self.places.number(place)
        if transaction is None or number not in transaction.numbers:
            return
        if commit:
            for entries in transaction.table.entries():
                here = np.ascontiguousarray(entries[place_of(entries) == number])
                self.table.merge(here, window_ms, now_ms - window_ms, self.places.dead)
        transaction.numbers.remove(number)
        if not transaction.numbers:
            del self._open[producer_id]

    @property
    def open_transactions(self) -> int:
        return len(self._open)

    # Forgetting

    def forget_topic(self, topic_id: UUID) -> None:
        """The topic is gone: its messages do not count any more. Their room is free after the next sweep."""
        gone = {number for number, place in enumerate(self.places.all) if place.topic_id == topic_id}
        self.places.forget(topic_id)
        for producer_id, transaction in list(self._open.items()):
            transaction.numbers -= gone
            if not transaction.numbers:
                del self._open[producer_id]

    def sweep(self, now_ms: int, window_ms: int) -> Iterator[int]:
        """Forget what is older than the window, a part of the table at each step. Gives how many went."""
        over = False
        while not over:
            removed, over = self.table.sweep_step(now_ms - window_ms, self.places.dead)
            self.swept += removed
            yield removed


def _entries(keys: Keys, firsts: NDArray[np.int64], seen: int, base_offset: int, *, dense: bool) -> Entries:
    """What screening remembered of a batch, as the table has it."""
    is_new = firsts[:, 0] < 0
    deltas = np.cumsum(is_new) - 1 if dense else keys.records[:, DELTA]
    rows = np.flatnonzero(is_new & (keys.hashes[:, 0] != 0))
    entries = np.empty((len(rows), 4), np.uint64)
    entries[:, :2] = keys.hashes[rows]
    entries[:, 2] = seen
    entries[:, 3] = (deltas[rows] + base_offset).astype(np.uint64)
    return entries
