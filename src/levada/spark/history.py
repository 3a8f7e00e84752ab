"""Records of a topic that its log no longer holds and that lie elsewhere: the seam between the source and an archive.

The source asks for what is below the start of a log, and for nothing else; offsets alone say what belongs where.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow

    from levada.spark.fetch import Range
    from levada.wire.answers import TopicPartition
    from levada.wire.blocking import BlockingClient


class Held(NamedTuple):
    """The offsets from `start` up to, not including, `end`."""

    start: int
    end: int


class History(Protocol):
    """What is kept of some topics beside their logs. It can be pickled: executors read it."""

    def held(self, at: TopicPartition) -> Held | None:
        """Which offsets of this partition are kept, from the first to the last; None where none are."""
        ...

    def at_time(self, at: TopicPartition, time_ms: int) -> int | None:
        """The first offset kept of this partition whose record is of this time or later; None where there is none."""
        ...

    def read(self, wanted: Range, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """The records of this range, which is kept, in order of their offsets, as `levada.spark.columns.decode` gives them."""
        ...


class NoHistory:
    """Nothing is kept: what a log has deleted is gone."""

    def held(self, at: TopicPartition) -> Held | None:
        return None

    def at_time(self, at: TopicPartition, time_ms: int) -> int | None:
        return None

    def read(self, wanted: Range, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        raise LookupError(f"nothing is kept of {wanted.topic}-{wanted.partition}")


def history_of(client: BlockingClient, topics: Collection[str]) -> History:
    """What is kept of these topics."""
    return NoHistory()
