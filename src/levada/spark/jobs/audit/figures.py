"""What an audit has measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

#: Why an offset has no record, as the batches around it tell.
MARKERS: Final = "markers"  #: ends of transactions
ABORTED: Final = "aborted"  #: records of transactions that were aborted
WITHIN: Final = "within"  #: left out of a batch that is there
EMPTIED: Final = "emptied"  #: all of a batch's records, its header is there
BETWEEN: Final = "between"  #: no batch holds it
UNARCHIVED: Final = "unarchived"  #: deleted from the log before it was archived
KINDS: Final = (MARKERS, ABORTED, WITHIN, EMPTIED, BETWEEN, UNARCHIVED)

#: Records are counted by size in classes that end below these, in bytes of key and value; the last has no end.
SIZES: Final = (16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)


class Partition(NamedTuple):
    """One partition. Offsets from `start` up to, not including, `end` were read; those from `log_start` on from its log."""

    partition: int
    start: int
    log_start: int
    end: int
    records: int = 0
    #: Of those, how many are below `log_start`: in the archive.
    archived: int = 0
    bytes: int = 0
    keyless: int = 0
    tombstones: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    checksum: int = 0
    #: By class of SIZES.
    sizes: tuple[int, ...] = (0,) * (len(SIZES) + 1)
    #: Offsets without a record, by kind.
    holes: Mapping[str, int] = {}
    #: Offsets before the first that there is, in the log or the archive.
    deleted: int = 0

    @property
    def missing_in_archive(self) -> int:
        """Offsets of which the archive does not say why it has no record."""
        covered = max(0, min(self.log_start, self.end) - self.start)
        return covered - self.archived - self.holes.get(UNARCHIVED, 0)

    @property
    def checksum_hex(self) -> str:
        return f"{self.checksum:016x}"


class Hole(NamedTuple):
    """Offsets from `start` up to, not including, `end` without a record."""

    kind: str
    partition: int
    start: int
    end: int


class Key(NamedTuple):
    """A key: how many records it has, in which partitions (the smallest and the largest), and where its router puts it."""

    key: bytes
    records: int
    lowest: int
    highest: int
    home: int | None


class Keys(NamedTuple):
    """All keys together, and some by name."""

    distinct: int = 0
    #: In more than one partition.
    split: int = 0
    split_records: int = 0
    #: Keys with records where their router does not put them, and how many records lie so.
    misplaced: int = 0
    misplaced_records: int = 0
    largest: Sequence[Key] = ()
    split_examples: Sequence[Key] = ()
    misplaced_examples: Sequence[Key] = ()


class Copies(NamedTuple):
    """Several records of one identity: where the first and the last one lie."""

    records: int
    first: tuple[int, int]
    last: tuple[int, int]


class Duplicates(NamedTuple):
    """Records that have an earlier one of the same identity."""

    by: str
    #: Records that have something to be told by.
    told: int = 0
    identities: int = 0
    repeats: int = 0
    #: Of those, how many come so soon after the copy before them that the topic's dedup should have seen them; 0 where it has none.
    within_window: int = 0
    examples: Sequence[Copies] = ()


class Slot(NamedTuple):
    """Records of one stretch of time."""

    start_ms: int
    records: int


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All of it."""

    topic: str
    bootstrap: str
    at_ms: int
    router: str
    keyless: str
    cleanup: str
    dedup: str
    partitions: Sequence[Partition]
    holes: Sequence[Hole]
    keys: Keys
    duplicates: Duplicates
    #: How long a slot of the timeline is, and those that have records.
    slot_ms: int = 60_000
    timeline: Sequence[Slot] = ()
    seconds: float = 0.0
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.partitions)

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup

    def missing(self, kind: str) -> int:
        return sum(one.holes.get(kind, 0) for one in self.partitions)
