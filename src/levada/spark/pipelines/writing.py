"""A micro-batch into all sinks of its pipeline, each exactly-once on its own.

Each sink remembers epoch and batch with what it was given, in one transaction, and writes nothing when it is given that batch
again. So when one of them fails, or the driver dies between two, the batch is replayed and those that have it pass it over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from levada.errors import LevadaError
from levada.spark.pipelines.checkpoint import Checkpoint
from levada.spark.pipelines.declaration import Pipeline, Sink
from levada.spark.pipelines.errors import PipelineError
from levada.spark.pipelines.failures import failed
from levada.spark.pipelines.frames import records
from levada.spark.pipelines.places import Places
from levada.spark.pipelines.tables import Table, evaluate
from levada.spark.pipelines.topics import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Stopped(LevadaError):
    """The pipeline is to end: this micro-batch is not begun."""


class Writer(Protocol):
    """One sink of a running pipeline."""

    def write(self, frame: DataFrame, batch: int) -> None:
        """All rows, once, however often it is called for a batch. The frame is evaluated whole."""
        ...


class TopicWriter:
    """Records into a topic, by the sink's writer."""

    def __init__(self, sink: Topic, sink_id: str, bootstrap: str, epoch: int) -> None:
        self._sink = sink
        self._options = {"bootstrap": bootstrap, "topic": sink.name or "", **sink.options}
        self._counted = sink.delivery != "at_least_once"
        if self._counted:
            self._options |= {"delivery": "exactly_once", "sinkId": sink_id, "sinkEpoch": str(epoch)}
        else:
            self._options["delivery"] = "at_least_once"

    def write(self, frame: DataFrame, batch: int) -> None:
        options = {**self._options, **({"batchId": str(batch)} if self._counted else {})}
        records(frame, self._sink).write.format("levada").mode("append").options(**options).save()


class TableWriter:
    """Rows into a Delta table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def write(self, frame: DataFrame, batch: int) -> None:
        self._table.append(frame, batch)


def writer_of(pipeline: Pipeline, sink: Sink, places: Places, checkpoint: Checkpoint) -> Writer:
    sink_id = pipeline.sink_id(sink)
    if isinstance(sink, Topic):
        return TopicWriter(sink, sink_id, places.bootstrap, checkpoint.epoch)
    return TableWriter(
        Table(places.table(sink.name), sink_id, checkpoint.epoch, sink.partition_by, owner=checkpoint.id)
    )


class Writing:
    """What `foreachBatch` calls. The checkpoint must be open."""

    def __init__(self, pipeline: Pipeline, places: Places, checkpoint: Checkpoint) -> None:
        self.pipeline = pipeline
        self.stopping = False
        #: What the last micro-batch failed with; Spark hands on only its text.
        self.error: Exception | None = None
        self._checkpoint = checkpoint
        self._writers = [(sink, writer_of(pipeline, sink, places, checkpoint)) for sink in pipeline.sinks]

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            if self.stopping:
                raise Stopped
            self._write(frame, batch)
        except Exception as error:
            self.error = error
            raise

    def _write(self, frame: DataFrame, batch: int) -> None:
        self._checkpoint.settle(batch)
        # Evaluated once, whoever asks: the function may be dear, and what it draws or looks up may differ the next time.
        shaped = any(sink.shape for sink, _ in self._writers)
        shared = shaped or len(self._writers) > 1
        if shared:
            frame.persist()
        try:
            for sink, writer in self._writers:
                self._write_to(sink, writer, frame, batch)
            if shaped:
                evaluate(frame)
        finally:
            if shared:
                frame.unpersist()

    def _write_to(self, sink: Sink, writer: Writer, frame: DataFrame, batch: int) -> None:
        try:
            shaped: Any = sink.shape(frame) if sink.shape else frame
            writer.write(shaped, batch)
        except PipelineError:
            raise
        except Exception as error:
            what = f"pipeline {self.pipeline.name!r}, batch {batch}, sink {sink.id!r}"
            raise failed(what, error, self.pipeline.file) from error
