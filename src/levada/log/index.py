"""The two sparse indexes beside a segment, in Kafka's layout. They hold nothing the segment cannot tell us.

Both live in memory while a segment is written and become files when it is closed; a file that does not fit its segment
is dropped and built again from the batch headers. Offsets are stored relative to the segment's base offset.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from struct import Struct
from typing import Final

#: Kafka's relative offsets are int32, and a segment is rolled before one does not fit.
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_TIME_ENTRY: Final = Struct(">qI")
_SWAP: Final = sys.byteorder == "little"


class OffsetIndex:
    """Where in the segment a batch begins. About one entry per `index.interval.bytes` of log.

    Entry: uint32 last offset of the batch − base offset | uint32 position where the batch begins. Sorted by both, so
    lookup is a bisection.
    """

    ENTRY_SIZE: Final = 8

    __slots__ = ("base_offset", "offsets", "positions")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")

    @classmethod
    def parse(cls, base_offset: int, data: bytes) -> OffsetIndex | None:
        """From the bytes of a file; None if they cannot be one. Whether it fits the segment is not known yet."""
        if len(data) % cls.ENTRY_SIZE:
            return None
        entries = array("I", data)
        if _SWAP:
            entries.byteswap()
        index = cls(base_offset)
        index.offsets, index.positions = entries[0::2], entries[1::2]
        return index

    def pack(self) -> bytes:
        entries = array("I", bytes(self.ENTRY_SIZE * len(self.offsets)))
        entries[0::2], entries[1::2] = self.offsets, self.positions
        if _SWAP:
            entries.byteswap()
        return entries.tobytes()

    def __len__(self) -> int:
        return len(self.offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetIndex) and self.pack() == other.pack() and self.base_offset == other.base_offset

    __hash__ = None  # type: ignore[assignment]  # it grows

    def add(self, last_offset: int, position: int) -> None:
        # In this order: a reader in another thread takes the length from the offsets.
        self.positions.append(position)
        self.offsets.append(last_offset - self.base_offset)

    def floor(self, offset: int) -> tuple[int, int]:
        """(last offset, position) of the last batch known to end at or before this offset; (−1, 0) for none."""
        slot = bisect_right(self.offsets, max(0, offset - self.base_offset)) - 1
        if slot < 0 or offset < self.base_offset:
            return -1, 0
        return self.base_offset + self.offsets[slot], self.positions[slot]

    def boundary(self, position: int) -> tuple[int, int]:
        """(last offset, position) of a batch known to end at or before this byte, a late one; (−1, 0) for none."""
        # The entry before the last one that begins here or earlier: its batch has ended where that one begins.
        slot = bisect_right(self.positions, position, 0, len(self.offsets)) - 2
        if slot < 0:
            return -1, 0
        return self.base_offset + self.offsets[slot], self.positions[slot]

    def last(self) -> tuple[int, int]:
        """(last offset, position) of the last entry; (−1, 0) for none."""
        if not self.offsets:
            return -1, 0
        return self.base_offset + self.offsets[-1], self.positions[-1]


class TimeIndex:
    """The largest timestamp up to a batch. An entry is added beside one of the offset index if the timestamp has grown.

    Entry: int64 timestamp | uint32 last offset of the batch that has it − base offset. Every record with a larger
    timestamp comes after that batch, so lookup is a bisection and a short walk.
    """

    ENTRY_SIZE: Final = 12

    __slots__ = ("base_offset", "offsets", "timestamps")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("I")

    @classmethod
    def parse(cls, base_offset: int, data: bytes) -> TimeIndex | None:
        """From the bytes of a file; None if they cannot be one."""
        if len(data) % cls.ENTRY_SIZE:
            return None
        index = cls(base_offset)
        for timestamp, relative in _TIME_ENTRY.iter_unpack(data):
            index.timestamps.append(timestamp)
            index.offsets.append(relative)
        return index

    def pack(self) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps, self.offsets))

    def __len__(self) -> int:
        return len(self.timestamps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeIndex) and self.pack() == other.pack() and self.base_offset == other.base_offset

    __hash__ = None  # type: ignore[assignment]  # it grows

    def add(self, timestamp: int, last_offset: int) -> None:
        """Nothing happens unless the timestamp is larger than every one before."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(last_offset - self.base_offset)

    def floor(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry that is not later; (−1, base offset) for none.

        No record before the batch that ends at that offset has the timestamp asked for, or a later one.
        """
        slot = bisect_right(self.timestamps, timestamp, 0, len(self.offsets)) - 1
        if slot < 0:
            return -1, self.base_offset
        return self.timestamps[slot], self.base_offset + self.offsets[slot]

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (−1, base offset) for none."""
        if not self.timestamps:
            return -1, self.base_offset
        return self.timestamps[-1], self.base_offset + self.offsets[-1]


class Indexes:
    """Both indexes of a segment, and the rule by which they grow; the same for a batch written and one found again."""

    __slots__ = ("interval_bytes", "max_timestamp", "max_timestamp_offset", "offsets", "since_entry", "times")

    def __init__(self, offsets: OffsetIndex, times: TimeIndex, *, size: int, interval_bytes: int) -> None:
        self.offsets = offsets
        self.times = times
        self.interval_bytes = interval_bytes
        #: Bytes of the segment from the last entry's batch on.
        self.since_entry = size - offsets.last()[1]
        self.max_timestamp, self.max_timestamp_offset = times.last()

    @classmethod
    def empty(cls, base_offset: int, interval_bytes: int) -> Indexes:
        return cls(OffsetIndex(base_offset), TimeIndex(base_offset), size=0, interval_bytes=interval_bytes)

    def add(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """The next batch of the segment."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
        if self.since_entry > self.interval_bytes:
            self.offsets.add(last_offset, position)
            self.times.add(self.max_timestamp, self.max_timestamp_offset)
            self.since_entry = 0
        self.since_entry += size

    def seal(self) -> None:
        """Nothing follows for now: the last entry of the time index is the largest timestamp of all."""
        self.times.add(self.max_timestamp, self.max_timestamp_offset)
