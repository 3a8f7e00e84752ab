"""How far each partition is known to be whole, so that a start after a crash looks only at what it must.

Two small files in the data directory, both in Kafka's checkpoint form (version, count, one line an entry):

    recovery-point-offset-checkpoint   topic partition offset      everything below is durable and was whole
    unrecovered-partitions             topic partition same_boot   not opened since a crash; its tail may be torn

Partitions are opened when they are first used, so one may sleep through several starts. The second file remembers
that its tail was never looked at, and whether the machine has been up all the time since it was written (1) or has
been down meanwhile (0), when unsynced pages may be missing anywhere above the recovery point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from levada.engine.port import At
from levada.errors import StorageFailed

POINTS_FILE: Final = "recovery-point-offset-checkpoint"
UNRECOVERED_FILE: Final = "unrecovered-partitions"
_VERSION: Final = 0


class Recovery(NamedTuple):
    """What is known of a partition that is about to be opened."""

    #: Everything below is durable and was whole; None: nothing is known.
    point: int | None
    #: The tail can be trusted: it was closed properly.
    clean: bool
    #: The machine has not been down since it was written to.
    same_boot: bool


def encode_checkpoint(entries: Mapping[At, int]) -> bytes:
    lines = [str(_VERSION), str(len(entries)), *(f"{at.topic} {at.partition} {entries[at]}" for at in sorted(entries))]
    return ("\n".join(lines) + "\n").encode()


def decode_checkpoint(data: bytes, file: str) -> dict[At, int]:
    """StorageFailed, naming the file, unless it is whole."""
    try:
        version, count, *lines = data.decode("ascii").splitlines()
        if int(version) != _VERSION:
            raise ValueError(f"version {version}, not {_VERSION}")
        if int(count) != len(lines):
            raise ValueError(f"{len(lines)} entries, not {count}")
        split = (line.split() for line in lines)
        return {At(topic, int(partition)): int(number) for topic, partition, number in split}
    except ValueError as reason:
        raise StorageFailed(f"{file} is not a checkpoint: {reason}") from reason


class RecoveryState:
    """The two files' contents, kept up to date while the broker runs.

    `previous` is what an earlier run left in the second file, `present` the partitions on disk.
    """

    def __init__(
        self,
        points: Mapping[At, int],
        previous: Mapping[At, int],
        present: Iterable[At],
        *,
        clean: bool,
        same_boot: bool,
    ) -> None:
        self.points = dict(points)
        self.unrecovered = {at: int(previous.get(at, 1) and same_boot) for at in present if not clean or at in previous}

    def of(self, at: At) -> Recovery:
        if at in self.unrecovered:
            return Recovery(self.points.get(at), clean=False, same_boot=bool(self.unrecovered[at]))
        return Recovery(self.points.get(at), clean=True, same_boot=True)

    def opened(self, at: At, point: int) -> None:
        """The partition was opened, its tail looked at and cut where torn; it is whole below `point`."""
        self.points[at] = point
        self.unrecovered.pop(at, None)

    def reached(self, at: At, point: int) -> None:
        self.points[at] = point

    def forget(self, at: At) -> None:
        """The partition is gone."""
        self.points.pop(at, None)
        self.unrecovered.pop(at, None)
