"""What the log answers with. Appended, Aborted and Found are the engine port's too."""

from __future__ import annotations

from typing import NamedTuple


class Appended(NamedTuple):
    """Where an append landed. A repeat of a producer's batch has the first one's offsets and `duplicate`."""

    base_offset: int
    last_offset: int
    #: The broker's time where the topic stamps it (LogAppendTime), else −1.
    timestamp_ms: int = -1
    start_offset: int = 0
    duplicate: bool = False
    #: True once the batch is as durable as the topic's policy says; the log itself only writes.
    durable: bool = False


class Aborted(NamedTuple):
    """An aborted transaction in what was read: skip this producer's records from `first_offset` to its abort marker."""

    producer_id: int
    first_offset: int


class Found(NamedTuple):
    """The first record at or after a timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class Damage(NamedTuple):
    """Where a log is broken: the first byte and the first offset that cannot be read."""

    file: str
    position: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} is damaged at byte {self.position} (offset {self.offset}): {self.reason}"
