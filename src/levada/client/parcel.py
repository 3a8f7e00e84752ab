"""One batch on its way to one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from levada.client.draft import Draft, Landed
from levada.errors import LevadaError
from levada.records.batch import NO_SEQUENCE
from levada.records.pack import Row, pack

_SEQUENCES: Final = 2**31
NOT_STAMPED: Final = -1


class Parcel:
    """Keeps its bytes until the broker has answered, so that it can be sent again as it was."""

    __slots__ = (
        "_number", "_rows", "alone", "codec", "count", "data", "draft", "partition", "sequence", "size", "stamped", "uncertain",
    )  # fmt: skip

    def __init__(self, draft: Draft, number: int, partition: int, rows: Sequence[Row], size: int, codec: int) -> None:
        self.draft = draft
        #: Which of the draft's parcels it is.
        self._number = number
        self.partition = partition
        self._rows: Sequence[Row] = rows
        self.count = len(rows)
        #: What it holds of the producer's buffer.
        self.size = size
        self.codec = codec
        self.sequence = NO_SEQUENCE
        #: Which of the lane's runs of sequences its own belongs to.
        self.stamped = NOT_STAMPED
        self.data: bytes = b""
        #: It was on its way when a connection was cut, or was refused after it was written: the broker may have stored it.
        self.uncertain = False
        #: It shared a request with another that was refused: next time it goes alone, to get an answer of its own.
        self.alone = False

    @property
    def topic(self) -> str:
        return self.draft.topic

    @property
    def deadline(self) -> float:
        return self.draft.deadline

    @property
    def may_be_stored(self) -> bool:
        """It was sent before, and what came of that is not known: an answer that it was there already is about itself."""
        return self.uncertain or self.alone

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.count) % _SEQUENCES

    def stamp(self, identity: tuple[int, int], sequence: int, run: int) -> None:
        """Give it its sequence, and make its bytes."""
        self.sequence = sequence
        self.stamped = run
        self.data = bytes(pack(self._rows, codec=self.codec, producer=(*identity, sequence)))

    def landed(self, outcome: Landed) -> bool:
        """It is stored. True when all of its draft is settled."""
        return self._settle(outcome)

    def failed(self, error: LevadaError) -> bool:
        return self._settle(error)

    def _settle(self, outcome: Landed | LevadaError) -> bool:
        self.data = b""
        self._rows = ()
        return self.draft.settle(self._number, outcome)


def parcels_of(draft: Draft, codec: int) -> list[Parcel]:
    """A draft whose partition is known, as one parcel."""
    draft.split(1)
    return [Parcel(draft, 0, draft.partition, draft.records, draft.size, codec)]


def spread_out(draft: Draft, first: int, partitions: int, codec: int) -> list[Parcel]:
    """A draft whose record i goes to partition (first + i) % partitions, as a parcel for each."""
    records = draft.records
    number = min(partitions, len(records))
    draft.split(number)
    share = draft.size // number
    made = [Parcel(draft, n, (first + n) % partitions, records[n::partitions], share, codec) for n in range(number)]
    made[0].size += draft.size - share * number
    return made
