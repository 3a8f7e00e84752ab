"""When a partition had come how far: what tells, after a crash, how long ago its records were appended.

A record's own timestamp is the producer's to choose; the window goes by the broker's clock. So every sweep notes the end of each
partition and the time. Between two notes, and where there are none, the timestamps are believed as far as the notes allow.

Encoded as text: "1 <CRC-32C of the rest>\\n", then for each note "<partition> <offset> <time in ms>\\n".
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from crc32c import crc32c

from levada.errors import DamagedIndex

_VERSION: Final = b"1"
#: Notes kept of one partition; beyond it every second one goes, since older times need not be known as well.
_NOTES_MAX: Final = 256


class Mark(NamedTuple):
    """Everything below the offset had been appended by this time, and nothing else."""

    offset: int
    time_ms: int


class Marks:
    """Of one topic, by partition."""

    def __init__(self) -> None:
        self._of: dict[int, list[Mark]] = {}

    def note(self, partition: int, end_offset: int, now_ms: int) -> None:
        notes = self._of.setdefault(partition, [])
        while notes and notes[-1].offset > end_offset:
            del notes[-1]  # a power cut took what it spoke of
        if len(notes) > 1 and notes[-1].offset == notes[-2].offset == end_offset:
            # Nothing came for a while: only when that began and when it ends is of interest.
            del notes[-1]
        notes.append(Mark(end_offset, now_ms))
        if len(notes) > _NOTES_MAX:
            del notes[1:-1:2]

    def forget_before(self, cutoff_ms: int) -> None:
        """Keep one note from before this time, which says where to begin."""
        for notes in self._of.values():
            while len(notes) > 1 and notes[1].time_ms <= cutoff_ms:
                del notes[0]

    def start(self, partition: int, cutoff_ms: int) -> int | None:
        """From which offset on records may have been appended after this time; None where nothing is known."""
        known = None
        for mark in self._of.get(partition, ()):
            if mark.time_ms <= cutoff_ms:
                known = mark.offset
        return known

    def first(self, partition: int) -> int | None:
        """From which offset on the notes can tell."""
        notes = self._of.get(partition)
        return notes[0].offset if notes else None

    def time(self, partition: int, offset: int, timestamp_ms: int, now_ms: int) -> int:
        """When the record at this offset was appended, as well as can be told."""
        notes = self._of.get(partition, [])
        number = bisect_right(notes, offset, key=lambda mark: mark.offset)
        earliest = notes[number - 1].time_ms if number else 0
        latest = notes[number].time_ms if number < len(notes) else now_ms
        return max(min(timestamp_ms, latest, now_ms), min(earliest, now_ms))

    def encode(self) -> bytes:
        lines = [
            f"{partition} {mark.offset} {mark.time_ms}\n" for partition, notes in self._of.items() for mark in notes
        ]
        body = "".join(lines).encode()
        return b"%s %d\n%s" % (_VERSION, crc32c(body), body)

    @classmethod
    def decode(cls, encoded: bytes) -> Marks:
        """DamagedIndex."""
        head, _, body = encoded.partition(b"\n")
        if head != b"%s %d" % (_VERSION, crc32c(body)):
            raise DamagedIndex("the notes of dedup times do not match their checksum")
        marks = cls()
        for line in body.decode().splitlines():
            partition, offset, time_ms = map(int, line.split())
            marks._of.setdefault(partition, []).append(Mark(offset, time_ms))
        return marks
