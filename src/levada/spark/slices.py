"""What one task reads: a range of a partition, from its log and, where that no longer holds it, from its history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from levada.spark.columns import decode
from levada.spark.dead_letters import DeadLetters
from levada.spark.fetch import Range, RangeLost, fetched
from levada.spark.history import History, NoHistory
from levada.spark.losses import Lost, below, tell
from levada.spark.notes import leave
from levada.wire.answers import TopicPartition
from levada.wire.memory import keep_freed_memory

if TYPE_CHECKING:
    import pyarrow

    from levada.spark.options.source import SourceOptions
    from levada.wire.blocking import BlockingClient


@dataclass
class Slice(InputPartition):
    """A part of a read."""

    range: Range
    history: History = field(default_factory=NoHistory)
    #: Under which name to tell the driver what is lost; see `notes`.
    note: str | None = None

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.range.topic, self.range.partition)


def rows_of(part: Slice, options: SourceOptions) -> Iterator[pyarrow.RecordBatch]:
    """The rows of this slice in the schema of the options. DataLost, BadRecord, CorruptBatch, ClientError."""
    keep_freed_memory()
    with closing(options.cluster.client()) as client:  # connects only if there is something to say
        letters = DeadLetters(client, part.at, options.group)
        for batch in _Reading(part, options, client).records():
            rows, dead = options.formatter.apply(batch, topic=part.at.topic, partition=part.at.partition)
            if dead is not None:
                letters.send(dead)
            if rows.num_rows:
                yield rows


class _Reading:
    """The reading of one slice."""

    def __init__(self, part: Slice, options: SourceOptions, client: BlockingClient) -> None:
        self._part = part
        self._options = options
        self._client = client
        self._lost: list[Lost] = []

    def records(self) -> Iterator[pyarrow.RecordBatch]:
        """The records as they were written, with the columns that the formatter needs."""
        wanted, options = self._part.range, self._options
        settings = options.cluster.settings
        while wanted.start < wanted.end:
            try:
                for piece in fetched(
                    settings, wanted, read_committed=options.read_committed, bytes_max=options.fetch_bytes_max
                ):
                    yield from decode(piece, options.formatter.needed, topic=wanted.topic)
                return
            except RangeLost as error:
                missing = error
            yield from self._elsewhere(missing)
            wanted = wanted._replace(start=missing.lost.end)

    def _elsewhere(self, error: RangeLost) -> Iterator[pyarrow.RecordBatch]:
        """What the history holds of what the log does not; the rest is lost."""
        missing, at = error.lost, self._part.at
        if missing.start >= error.start:  # not below the log: no history has it
            self._lose([Lost(*at, missing.start, missing.end, error.why)])
            return
        held = self._part.history.held(at, up_to=missing.end)
        self._lose(below(at, missing.start, missing.end, error.start, held))
        if held is not None:
            start, end = max(missing.start, held.start), min(missing.end, held.end)
            if start < end:
                yield from self._part.history.read(
                    missing._replace(start=start, end=end), self._options.formatter.needed
                )

    def _lose(self, lost: list[Lost]) -> None:
        tell(lost, fail=self._options.fail_on_data_loss)
        self._lost += lost
        if lost and self._part.note is not None:
            leave(self._client, self._part.note, self._part.at, self._lost)
