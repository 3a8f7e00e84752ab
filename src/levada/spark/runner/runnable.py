"""What a runner can keep: anything that has a name and a version, and starts as a streaming query.

Pipelines that operators declare are such (`Declared`), and so is whatever a part of Levada wants to have kept (`shelf.Managed`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from levada.spark.pipelines.checkpoint import Checkpoint
from levada.spark.pipelines.declaration import Pipeline
from levada.spark.pipelines.places import Places
from levada.spark.pipelines.progress import Progress
from levada.spark.pipelines.topics import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Query(Protocol):
    """Something that runs."""

    @property
    def active(self) -> bool: ...

    @property
    def failure(self) -> Exception | None:
        """Why it ended by itself; None while it runs, and after an end in order."""
        ...

    def progress(self) -> Progress: ...

    def stop(self) -> None:
        """End after the batch it is in. Whatever is not finished is begun anew by the next start."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What it does, for those who ask. Sources are {"topic": …, "starting": …}, sinks {"topic": …} or {"table": …}."""

    sources: list[dict[str, Any]] = field(default_factory=list)
    sinks: list[dict[str, Any]] = field(default_factory=list)
    trigger: str = ""
    checkpoint: str = ""
    about: str = ""
    #: Of its checkpoint and its sinks, as the checkpoint has it.
    epoch: int = 0


class Runnable(Protocol):
    """Something to keep running."""

    @property
    def name(self) -> str: ...

    def start(self, spark: SparkSession, places: Places, epoch: int) -> Query:
        """Begin, or go on where it was. A newer epoch than the last begins anew."""
        ...

    def described(self, places: Places) -> Described: ...


@dataclass(frozen=True, slots=True)
class Declared:
    """A pipeline of an operator's file."""

    pipeline: Pipeline

    @property
    def name(self) -> str:
        return self.pipeline.name

    def start(self, spark: SparkSession, places: Places, epoch: int) -> Query:
        from levada.spark.pipelines.running import Running

        return Running.start(spark, self.pipeline, places, epoch=epoch)

    def described(self, places: Places) -> Described:
        one = self.pipeline
        return Described(
            sources=[
                {"topic": source.id, "starting": source.starting or "earliest"} for source in one.sources.values()
            ],
            sinks=[
                {"topic": sink.id} if isinstance(sink, Topic) else {"table": places.table(sink.name)}
                for sink in one.sinks
            ],
            trigger=str(one.trigger),
            checkpoint=str(places.checkpoint(one.name)),
            about=one.about,
            epoch=Checkpoint(places.checkpoint(one.name)).epoch,
        )
