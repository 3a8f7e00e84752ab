"""The segments of a log in order, and reading across them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from levada.log.results import Damage
from levada.log.scan import Unreadable
from levada.log.segment import Data, Segment
from levada.log.snapshots import BrokenSegment
from levada.records.batch import LENGTH_END, Batch

_LENGTH: Final = Struct(">8xi")


class Tail(NamedTuple):
    """How far a log goes.

    The size is taken first. Both grow while another thread reads, the size after the end offset: one that was taken before
    an end offset that is not beyond ours is not beyond it either.
    """

    #: Of the last segment.
    size: int
    end_offset: int
    damage: Damage | None


class Layout:
    """Never changed, only replaced by another: readers in other threads keep the one they began with."""

    __slots__ = ("bases", "segments")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = list(segments)
        self.bases = [segment.base_offset for segment in segments]

    def find(self, offset: int) -> int:
        """The number of the segment that holds this offset, or would."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def with_segments(self, added: Sequence[Segment], removed: Sequence[Segment] = ()) -> Layout:
        gone = set(removed)
        kept = [segment for segment in self.segments if segment not in gone]
        return Layout(sorted([*kept, *added], key=lambda segment: segment.base_offset))

    def read(self, offset: int, max_bytes: int, end_offset: int, tail: Tail, *, nowait: bool) -> Data:
        """Whole batches of one segment, from the one that holds `offset` on and below `end_offset`; nothing if there are none.

        BrokenSegment, Retired, WouldBlock.
        """
        number = self.find(offset)
        while offset < end_offset:
            segment = self.segments[number]
            try:
                position = segment.locate(offset, nowait=nowait)
                limit = self._limit(number, end_offset, tail, nowait)
                if position < limit:
                    return segment.read(offset, position, limit, max_bytes, nowait=nowait)
            except Unreadable as where:
                raise BrokenSegment(segment, where) from None
            number += 1
            if number == len(self.segments):
                break
            # Nothing is left of that segment from the offset on: compaction leaves gaps.
            offset = max(offset, self.bases[number])
        return b""

    def _limit(self, number: int, end_offset: int, tail: Tail, nowait: bool) -> int:
        """Where in the segment the batches below `end_offset` end."""
        segment = self.segments[number]
        if number + 1 < len(self.segments):
            size, end = segment.size, self.bases[number + 1]
        else:
            size, end = tail.size, tail.end_offset
        damage = tail.damage
        if damage is not None and end_offset == damage.offset and segment.path == damage.file:
            return damage.position
        return size if end_offset >= end else min(size, segment.locate(end_offset, nowait=nowait))


def end_offset(data: Data) -> int:
    """The offset after the last of these whole batches. By their lengths alone: there may be thousands."""
    position, end = 0, len(data)
    while True:
        following = position + LENGTH_END + _LENGTH.unpack_from(data, position)[0]
        if following >= end:
            return Batch(memoryview(data)[position:]).next_offset
        position = following
