"""One pipeline as a streaming query.

    running = Running.start(spark, pipeline, Places(bootstrap="127.0.0.1:9092", home=Path("home")))
    ...
    running.stop()

Several may run in one Spark application: each has a session of its own, with its own settings.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from levada.spark.pipelines import preflight
from levada.spark.pipelines.checkpoint import Checkpoint, what_to_do
from levada.spark.pipelines.declaration import Pipeline
from levada.spark.pipelines.errors import PipelineError, WrongCheckpoint, WrongDeclaration
from levada.spark.pipelines.failures import cause, failed
from levada.spark.pipelines.frames import source_frame
from levada.spark.pipelines.lag import Lag
from levada.spark.pipelines.modes import is_aggregate, never_ends, output_mode, plan_of, refused
from levada.spark.pipelines.places import Places
from levada.spark.pipelines.progress import Progress, Progresses
from levada.spark.pipelines.writing import Stopped, Writing
from levada.spark.session import STATE_STORES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: How long `stop` waits for the end of the micro-batch.
STOP_TIMEOUT_S: Final = 60.0
_LOOK_S: Final = 0.02


class Running:
    """A pipeline that was started. For one thread at a time, but for `stop`."""

    def __init__(self, pipeline: Pipeline, query: StreamingQuery, writing: Writing, lag: Lag) -> None:
        self.pipeline = pipeline
        self.query = query
        self._writing = writing
        self._lag = lag
        self._progresses = Progresses()

    @classmethod
    def start(
        cls,
        spark: SparkSession,
        pipeline: Pipeline,
        places: Places,
        *,
        once: bool = False,
        epoch: int | None = None,
    ) -> Running:
        """Begin, or go on where it was. With `once`, it ends when all is read that is there now.

        A newer `epoch` than the checkpoint's begins anew. WrongDeclaration, WrongCheckpoint, and what the source says of
        a broker or topic that is not there; nothing has been read or written then.
        """
        now = preflight.check(pipeline, places, epoch)
        own = _session(spark, pipeline)
        result = _result(own, pipeline, places)
        plan = plan_of(result)
        every_ms = None if once else pipeline.trigger.every_ms
        if every_ms is None and never_ends(plan):
            raise WrongDeclaration(
                f"pipeline {pipeline.name!r}: timers by processing time would have it run for ever, and it is to end when all is "
                'read; trigger it by time, or give transformWithState another timeMode ("EventTime", "None")'
            )
        mode = output_mode(pipeline.mode, pipeline.sinks, aggregated=is_aggregate(plan))
        checkpoint = Checkpoint(places.checkpoint(pipeline.name))
        checkpoint.open(pipeline, now)
        writing = Writing(pipeline, places, checkpoint)
        writer = (
            result.writeStream.queryName(pipeline.name)
            .outputMode(mode)
            .option("checkpointLocation", str(checkpoint.location))
            .foreachBatch(writing)
        )
        if every_ms is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{every_ms} milliseconds")
        from pyspark.errors import AnalysisException

        try:
            query = writer.start()
        except AnalysisException as error:
            raise refused(pipeline, mode, cause(error)) from error
        return cls(pipeline, query, writing, Lag(places.bootstrap))

    @property
    def active(self) -> bool:
        return self.query.isActive

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended by then, well or not."""
        deadline = time.monotonic() + timeout_s
        while self.query.isActive:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(0.1, left))
        return True

    def progress(self) -> Progress:
        """How it is doing now; where the broker does not answer, without lag."""
        self._progresses.add(self._reports())
        at = self._progresses.positions
        return self._progresses.progress(lag=self._lag.of(at) if at else None)

    def _reports(self) -> list[dict[str, Any]]:
        """What Spark says of the last micro-batch; where one was missed, of all that it remembers.

        As JSON: pyspark would ask Java for every field of every report on its own, some thousand questions at a time.
        """
        jvm: Any = self.query._jsq
        last = jvm.lastProgress()
        if last is None:
            return []
        report = json.loads(last.json())
        if report["batchId"] <= self._progresses.batch + 1:
            return [report]
        return [json.loads(one.json()) for one in jvm.recentProgress()]

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End after the micro-batch it is in; after this time at once, which loses nothing either: the batch is begun anew."""
        self._writing.stopping = True
        deadline = time.monotonic() + timeout_s
        while self.query.isActive and self.query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        self.query.stop()
        self._lag.close()

    @property
    def failure(self) -> PipelineError | None:
        """Why it ended by itself; None while it runs, and after an end in order."""
        if self.query.isActive or isinstance(self._writing.error, Stopped):
            return None
        error = self.query.exception()
        if error is None:
            return None
        return _failure(self.pipeline, self._writing.error or error)


def _session(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """A session with settings of its own, in the same application."""
    own = spark.newSession()
    own.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORES[pipeline.state])
    if pipeline.partitions is not None:
        own.conf.set("spark.sql.shuffle.partitions", str(pipeline.partitions))
    for name, value in pipeline.conf.items():
        own.conf.set(name, value)
    return own


def _result(spark: SparkSession, pipeline: Pipeline, places: Places) -> DataFrame:
    """What its function makes of its sources."""
    frames = {
        name: source_frame(spark, source, bootstrap=places.bootstrap, group=pipeline.name)
        for name, source in pipeline.sources.items()
    }
    try:
        result: Any = pipeline.function(**frames)
    except Exception as error:
        raise failed(f"pipeline {pipeline.name!r}", error, pipeline.file) from error
    from pyspark.sql import DataFrame

    if not isinstance(result, DataFrame):
        raise WrongDeclaration(
            f"pipeline {pipeline.name!r}: its function returned {result!r}; it must return a DataFrame"
        )
    if not result.isStreaming:
        raise WrongDeclaration(
            f"pipeline {pipeline.name!r}: its function returned a static DataFrame; it must be made of its sources"
        )
    return result


#: Of Spark's errors, those that say that the state is another query's.
_OTHER_STATE: Final = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_EVOLUTION",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "STATEFUL_OPERATOR",
    "StateSchemaNotCompatible",
    "Provided schema doesn't match to the schema for existing state",
)


def _failure(pipeline: Pipeline, error: BaseException) -> PipelineError:
    if any(word in str(error) for word in _OTHER_STATE):
        why: PipelineError = WrongCheckpoint(
            f"pipeline {pipeline.name!r} keeps other state than its checkpoint has ({cause(error)}): "
            f"{what_to_do(pipeline.name)}"
        )
    elif isinstance(error, PipelineError):
        return error
    else:
        why = failed(f"pipeline {pipeline.name!r}", error, pipeline.file)
    why.__cause__ = error
    return why
