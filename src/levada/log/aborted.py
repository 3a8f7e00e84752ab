"""Which transactions of a segment were aborted, so that read_committed readers can skip them.

An index belongs to the segment that holds the abort marker; the transaction itself may have begun segments before.

File (`<base offset>.txnindex`, Kafka's), one entry per transaction, in the order of the markers, big-endian:
int16 version, 0 | int64 producer id | int64 first offset | int64 offset of the marker | int64 last stable offset at that time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from levada.errors import DamagedIndex
from levada.log.producers import Completed
from levada.log.results import Aborted

_VERSION: Final = 0
_ENTRY: Final = Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """One aborted transaction: its producer's records from `first_offset` up to the marker at `last_offset` are not to be read.

    `stable_offset` is the last stable offset once the marker was written: every transaction that overlaps what lies below
    it has its marker at or before this one.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int

    def encode(self) -> bytes:
        return _ENTRY.pack(_VERSION, *self)

    @classmethod
    def of(cls, completed: Completed) -> AbortedTransaction:
        """The entry for a transaction that a marker just aborted."""
        return cls(completed.producer_id, completed.first_offset, completed.last_offset, completed.stable_offset)


class AbortedIndex:
    """The aborted transactions whose markers lie in one segment. The segment writes `encode()` of each where it keeps them."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._entries = list(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self._entries)

    @classmethod
    def decode(cls, data: bytes) -> AbortedIndex:
        """Read the file back. DamagedIndex when it is cut, of another version, or out of order."""
        if len(data) % ENTRY_SIZE:
            raise DamagedIndex(f"the index of aborted transactions has {len(data)} bytes, an entry {ENTRY_SIZE}")
        index = cls()
        for version, *fields in _ENTRY.iter_unpack(data):
            if version != _VERSION:
                raise DamagedIndex(f"an entry of the index of aborted transactions has version {version}")
            index.append(AbortedTransaction(*fields))
        return index

    def encode(self) -> bytes:
        return b"".join(entry.encode() for entry in self._entries)

    def append(self, entry: AbortedTransaction) -> None:
        """Add the next one. DamagedIndex unless its marker comes after those before."""
        if (
            self._entries and entry.last_offset <= self._entries[-1].last_offset
        ) or entry.first_offset > entry.last_offset:
            raise DamagedIndex(f"{entry} does not follow in the index of aborted transactions")
        self._entries.append(entry)

    def truncate(self, to: int) -> int:
        """Forget those whose marker is at or after this offset; returns how many bytes of the file are left."""
        kept = bisect_left(self._entries, to, key=lambda entry: entry.last_offset)
        del self._entries[kept:]
        return kept * ENTRY_SIZE

    def overlapping(self, offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those with records in [offset, end_offset), and whether later segments cannot hold any more of them."""
        found = []
        for position in range(bisect_left(self._entries, offset, key=lambda entry: entry.last_offset), len(self)):
            entry = self._entries[position]
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.stable_offset >= end_offset:
                return found, True
        return found, False


def aborted(indexes: Iterable[AbortedIndex], offset: int, end_offset: int) -> list[Aborted]:
    """What a reader of [offset, end_offset) must skip, by first offset.

    `indexes` are those of the segment that holds `offset` and of all after it; they are looked at one by one, and no
    further than needed.
    """
    found: list[AbortedTransaction] = []
    for index in indexes:
        entries, complete = index.overlapping(offset, end_offset)
        found += entries
        if complete:
            break
    return sorted(
        (Aborted(entry.producer_id, entry.first_offset) for entry in found), key=lambda entry: entry.first_offset
    )
