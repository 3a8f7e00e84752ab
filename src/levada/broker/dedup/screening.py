"""What of a batch was seen before, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from levada.broker.dedup import cut
from levada.broker.dedup.hashing import COLUMNS, START, TIME, read_keys
from levada.engine.port import At
from levada.errors import InvalidRecord
from levada.records.batch import Batch
from levada.records.compression import UNPACKED_BYTES_MAX, decompress
from levada.records.rewrite import empty


class First(NamedTuple):
    """Where the first copy of a message lies."""

    at: At
    offset: int


class Keys:
    """What the records of a batch are told by: where each is, and its two hashes."""

    __slots__ = ("batch", "data", "hashes", "records")

    def __init__(
        self, batch: Batch, *, by_id: bool, seed: np.uint64, unpacked_bytes_max: int = UNPACKED_BYTES_MAX
    ) -> None:
        """InvalidRecord for bytes that are not the records the batch says it has; CorruptBatch where they cannot be unpacked."""
        count = batch.record_count
        self.batch = batch
        self.data = decompress(batch.codec, batch.payload, limit=unpacked_bytes_max)
        self.records: NDArray[np.int64] = np.empty((count, COLUMNS), np.int64)
        self.hashes: NDArray[np.uint64] = np.zeros((count, 2), np.uint64)
        data = np.frombuffer(self.data.toreadonly(), np.uint8)
        found = read_keys(data, count, batch.last_offset_delta, by_id, seed, self.records, self.hashes)
        if found != count:
            index = -1 - found
            raise InvalidRecord(
                f"record {index} of {batch!r} is not what its length says", index=index if index < count else None
            )

    def kept(self, firsts: NDArray[np.int64]) -> tuple[bytes, int, int]:
        """The bytes of the records that are no repeats, how many they are, and the latest timestamp among them."""
        is_new = firsts[:, 0] < 0
        starts = self.records[:, START]
        ends = np.append(starts[1:], len(self.data))
        # Neighbours are copied as one piece.
        edges = np.flatnonzero(np.diff(np.concatenate(([False], is_new, [False])).astype(np.int8)))
        pieces = [self.data[starts[a] : ends[b - 1]] for a, b in zip(edges[::2], edges[1::2], strict=True)]
        latest = int(self.records[is_new, TIME].max())
        return b"".join(pieces), int(is_new.sum()), self.batch.base_timestamp + latest


class Screening:
    """What a memory said about a batch. What is new in it is remembered, until `forget` takes that back."""

    __slots__ = ("_forget", "_keys", "firsts", "repeats")

    def __init__(
        self, keys: Keys, firsts: NDArray[np.int64], repeats: Mapping[int, First], forget: Callable[[], None]
    ) -> None:
        self._keys = keys
        self._forget = forget
        self.firsts = firsts
        #: Place in the batch → where the first copy lies, in the order of the places.
        self.repeats = repeats

    @property
    def all_repeats(self) -> bool:
        return len(self.repeats) == self._keys.batch.record_count

    def with_holes(self) -> Batch:
        """The batch without its repeats, every other record at its offset; without any record if all are repeats."""
        batch = self._keys.batch
        if not self.repeats:
            return batch
        if self.all_repeats:
            return Batch(memoryview(empty(batch)))
        kept, count, latest = self._keys.kept(self.firsts)
        if batch.log_append_time:
            latest = batch.max_timestamp
        return Batch(memoryview(cut.with_holes(batch, kept, count, latest)))

    def dense(self) -> Batch:
        """The batch without its repeats, its records one after the other; at least one must be left."""
        batch = self._keys.batch
        return Batch(memoryview(cut.dense(batch, self.repeats))) if self.repeats else batch

    def forget(self) -> None:
        """The batch was not stored after all."""
        self._forget()
