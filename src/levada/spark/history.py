"""Records of a topic that its log no longer holds and that lie elsewhere: the seam between the source and an archive.

The source asks for what is below the start of a log, and for nothing else; offsets alone say what belongs where.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from levada.spark.options.reading import WrongOption

if TYPE_CHECKING:
    import pyarrow

    from levada.spark.fetch import Range
    from levada.wire.answers import TopicPartition
    from levada.wire.blocking import BlockingClient


#: What the option `history` may say, besides where a table is.
AUTO: Final = "auto"
OFF: Final = "off"


class Held(NamedTuple):
    """The offsets from `start` up to, not including, `end`, without those that are lost for good."""

    start: int
    end: int
    #: In order, ends not included: what was deleted before it could be kept.
    lost: tuple[tuple[int, int], ...] = ()

    def stretches(self) -> Iterator[tuple[int, int]]:
        """What is kept, in order, ends not included."""
        position = self.start
        for first, last in self.lost:
            if position < first < self.end:
                yield position, first
            position = max(position, last)
        if position < self.end:
            yield position, self.end


class History(Protocol):
    """What is kept of some topics beside their logs. It can be pickled: executors read it."""

    def held(self, at: TopicPartition, up_to: int = 0) -> Held | None:
        """Which offsets of this partition are kept, from the first to the last; None where none are.

        It is looked again where what was known ends before `up_to`.
        """
        ...

    def at_time(self, at: TopicPartition, time_ms: int) -> int | None:
        """The first offset kept of this partition whose record is of this time or later; None where there is none."""
        ...

    def read(self, wanted: Range, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """The records of this range, which is kept, in order of their offsets, as `levada.spark.columns.decode` gives them."""
        ...


class NoHistory:
    """Nothing is kept: what a log has deleted is gone."""

    def held(self, at: TopicPartition, up_to: int = 0) -> Held | None:
        return None

    def at_time(self, at: TopicPartition, time_ms: int) -> int | None:
        return None

    def read(self, wanted: Range, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        raise LookupError(f"nothing is kept of {wanted.topic}-{wanted.partition}")


def history_of(client: BlockingClient, topics: Collection[str] | Mapping[str, str], wanted: str = AUTO) -> History:
    """What is kept of these topics: as `levada.archive` of each says, nothing, or what one table holds. WrongOption.

    With names go ids: of another topic that has such a name by now nothing is read.
    """
    if wanted == OFF or not topics:
        return NoHistory()
    if wanted == AUTO:
        from levada.spark.archive.discovery import archives

        places = {one.topic: one.place for one in archives(client, topics)}
    else:
        places = dict.fromkeys(topics, wanted)
    if not places:
        return NoHistory()
    if wanted != AUTO and len(topics) > 1:
        raise WrongOption("history", wanted, f"a table is of one topic, and {', '.join(sorted(topics))} are read")
    from levada.spark.archive.history import Tables
    from levada.spark.archive.table import Whose

    ids = (
        topics
        if isinstance(topics, Mapping)
        else {name: str(one.topic_id) for name, one in client.topics(list(places)).items()}
    )
    return Tables({Whose(name, ids[name]): place for name, place in places.items()})
