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
from levada.wire.answers import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from levada.spark.options.source import SourceOptions


@dataclass
class Slice(InputPartition):
    """A part of a read."""

    range: Range
    history: History = field(default_factory=NoHistory)

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.range.topic, self.range.partition)


def rows_of(part: Slice, options: SourceOptions) -> Iterator[pyarrow.RecordBatch]:
    """The rows of this slice in the schema of the options. DataLost, BadRecord, CorruptBatch, ClientError."""
    formatter = options.formatter
    with closing(options.cluster.client()) as client:  # connects only if a dead letter is to be sent
        letters = DeadLetters(client, part.at, options.group)
        for batch in _records(part, options):
            rows, dead = formatter.apply(batch, topic=part.at.topic, partition=part.at.partition)
            if dead is not None:
                letters.send(dead)
            if rows.num_rows:
                yield rows


def _records(part: Slice, options: SourceOptions) -> Iterator[pyarrow.RecordBatch]:
    """The records as they were written, with the columns that the formatter needs."""
    wanted, columns = part.range, options.formatter.needed
    settings = options.cluster.settings
    while wanted.start < wanted.end:
        pieces = fetched(settings, wanted, read_committed=options.read_committed, bytes_max=options.fetch_bytes_max)
        try:
            for piece in pieces:
                yield from decode(piece, columns, topic=wanted.topic)
            return
        except RangeLost as error:
            lost = error.lost
            yield from _elsewhere(part, error, options)
            wanted = wanted._replace(start=lost.end)


def _elsewhere(part: Slice, error: RangeLost, options: SourceOptions) -> Iterator[pyarrow.RecordBatch]:
    """What the history holds of what the log does not; the rest is told as lost."""
    missing = error.lost
    if missing.start >= error.start:  # not below the log: no history has it
        lost = [Lost(missing.topic, missing.partition, missing.start, missing.end, error.why)]
        tell(lost, fail=options.fail_on_data_loss)
        return
    held = part.history.held(part.at)
    tell(below(part.at, missing.start, missing.end, error.start, held), fail=options.fail_on_data_loss)
    if held is not None:
        start, end = max(missing.start, held.start), min(missing.end, held.end)
        if start < end:
            yield from part.history.read(missing._replace(start=start, end=end), options.formatter.needed)
