"""Which rows of a result a micro-batch has: those that are final, those that changed, or all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from levada.spark.pipelines.declaration import Mode, Pipeline, Sink
from levada.spark.pipelines.errors import WrongDeclaration
from levada.spark.pipelines.lakes import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def output_mode(declared: Mode | None, sinks: Iterable[Sink], *, aggregated: bool) -> Mode:
    """What was declared. Else append, which every sink can take; where rows of an aggregate go to topics alone, update: whoever
    reads a topic wants the newest value of a key early, whoever reads a table wants a row once."""
    if declared is not None:
        return declared
    return "update" if aggregated and not any(isinstance(sink, Lake) for sink in sinks) else "append"


def plan_of(frame: DataFrame) -> str:
    """What Spark is to do, as it prints it: with a ~ before steps of a stream."""
    jvm: Any = frame._jdf
    return str(jvm.queryExecution().analyzed().toString())


def is_aggregate(plan: str) -> bool:
    """Whether Spark keeps an aggregate as state for it."""
    return re.search(r"(?m)^[\s:+|~-]*Aggregate\b", plan) is not None


def never_ends(plan: str) -> bool:
    """Whether micro-batches go on when nothing is left to read: timers by the clock keep Spark making them."""
    return re.search(r"(?m)^[\s:+|~-]*TransformWithState.*\bProcessingTime\b", plan) is not None


def refused(pipeline: Pipeline, mode: Mode, said: str) -> WrongDeclaration:
    """Spark does not run this result in this mode: what it said, and what can be done."""
    hints = {
        "append": 'rows of an aggregate are final once a watermark has passed them: topic(…, watermark=("at", "10 minutes")) '
        'and a window over that column; or mode="update" with topics as the only sinks',
        "update": 'mode="append" is what joins and several stateful steps need',
        "complete": 'only aggregates have a complete result; mode="append" or mode="update" is for all else',
    }
    return WrongDeclaration(
        f"pipeline {pipeline.name!r}: Spark refuses mode={mode!r}: {said.rstrip('.')}. Perhaps: {hints[mode]}"
    )
