"""What Spark calls: `write` on the executors, once for each task; `commit` and `abort` on the driver."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from levada.errors import LevadaError
from levada.spark.options.reading import WrongOption
from levada.spark.options.sink import SinkOptions
from levada.spark.sink.claims import Asking
from levada.spark.sink.commit import Commit
from levada.spark.sink.freeing import sweep
from levada.spark.sink.rows import Columns, columns_of
from levada.spark.sink.sinks import Sinks
from levada.spark.sink.stage import Source, hold
from levada.spark.sink.staged import ONE_OFF, StageKey
from levada.spark.sink.targets import Target, Targets, look_up

if TYPE_CHECKING:
    import pyarrow

    from levada.spark.sink.encode import Encoded

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
#: Spark names a query's jobs after its run.
_RUN_ID: Final = "spark.jobGroup.id"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """Where a task staged its batches, and for whom."""

    source: Source
    query: str | None
    run: str | None


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """A task wrote straight to the topics."""

    rows: int


class _Task:
    """Who this task is."""

    def __init__(self) -> None:
        context = TaskContext.get()
        assert context is not None, "a task has a context"
        self.number = context.partitionId()
        #: Attempts of one application are numbered; the rest tells applications apart.
        self.attempt = f"{context.taskAttemptId()}-{uuid.uuid4().hex[:12]}"
        self.query = context.getLocalProperty(_QUERY_ID)
        self.run = context.getLocalProperty(_RUN_ID) if self.query is not None else None
        batch = context.getLocalProperty(_BATCH_ID)
        self.batch = int(batch) if batch is not None else None


class _Writing:
    """What both writers do."""

    def __init__(self, options: SinkOptions, columns: Columns, target: Target | None) -> None:
        self._options = options
        self._columns = columns
        #: Where all rows go, as it was when the writing was planned; None where each says its own topic.
        self._target = target

    def write_rows(
        self, rows: Iterator[pyarrow.RecordBatch], sink: str | None, batch: int | None
    ) -> WriterCommitMessage:
        from levada.spark.sink.encode import Encoder

        task, options = _Task(), self._options
        # It connects when there is a first row to write, which in a shuffle's many tasks there may not be.
        with contextlib.closing(options.cluster.client()) as client:
            encoder = Encoder(
                self._columns,
                Targets(client, self._target).of,
                topic=options.topic,
                codec=options.codec,
                keyless_from=task.number,
            )
            encoded = _encoded(encoder, rows)
            if options.delivery == "at_least_once":
                from levada.spark.sink.straight import write

                return Written(write(client, encoded))
            sink = sink or task.query
            batch = task.batch if batch is None else batch
            if sink is None or batch is None:
                raise LevadaError("Spark says neither which query this is nor which of its batches")
            key = StageKey(sink, options.sink_epoch, batch, task.number, task.attempt, 0)
            return Staged(hold(client, key, encoded), task.query, task.run)

    def make_visible(self, messages: Sequence[WriterCommitMessage | None], *, counted: bool) -> None:
        staged = [message for message in messages if isinstance(message, Staged)]
        if not staged:
            return
        first = staged[0]
        key = first.source.key
        asking = Asking(key.sink, key.epoch, key.batch, first.query, first.run)
        Commit(self._options.cluster, asking, [one.source for one in staged], counted=counted).run()


def _encoded(encoder: Any, rows: Iterator[pyarrow.RecordBatch]) -> Iterator[Encoded]:
    for batch in rows:
        yield from encoder.add(batch)
    yield from encoder.rest()


class BatchWriter(_Writing, DataSourceArrowWriter):
    """`df.write`: all or nothing; with a sinkId and a batchId, once however often it is done."""

    def __init__(self, options: SinkOptions, columns: Columns, target: Target | None) -> None:
        super().__init__(options, columns, target)
        #: Made on the driver, and the same in all tasks.
        self._sink = options.sink_id or f"{ONE_OFF}{uuid.uuid4()}"

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return self.write_rows(iterator, self._sink, self._options.batch_id or 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.make_visible(messages, counted=self._options.sink_id is not None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is visible, and no transaction open. What was staged is deleted where that can be, else by the stage's retention."""
        if self._options.delivery == "exactly_once" and self._options.sink_id is None:
            with contextlib.suppress(LevadaError), self._options.cluster.client() as client:
                sweep(client, Sinks(client), Asking(self._sink, 0, 0))


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream`: each batch once, under the query's id or the sinkId."""

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return self.write_rows(iterator, self._options.sink_id, None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.make_visible(messages, counted=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is visible, and no transaction open. What was staged goes when the batch is written anew."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `df.write`. WrongOption, WrongColumns, UnknownTopic, ClientError: before any job."""
    if overwrite:
        raise WrongOption("mode", "overwrite", "records are never replaced: append is")
    return BatchWriter(*_planned(SinkOptions.of(options, streaming=False), schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `df.writeStream`. In complete mode, where Spark would overwrite, each batch is appended whole."""
    return StreamWriter(*_planned(SinkOptions.of(options, streaming=True), schema))


def _planned(options: SinkOptions, schema: StructType) -> tuple[SinkOptions, Columns, Target | None]:
    columns = columns_of(schema, topic=options.topic, include_timestamp=options.include_timestamp)
    with options.cluster.client() as client:
        return options, columns, look_up(client, options.topic) if options.topic is not None else None
