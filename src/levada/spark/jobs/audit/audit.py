"""The audit of a topic: what is measured, and in which order."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from levada.spark.fetch import Range
from levada.spark.jobs.audit.figures import KINDS, Figures
from levada.spark.jobs.extent import History, Offsets, Where, between, size
from levada.spark.jobs.frames import RECORD, Connection, history
from levada.spark.jobs.running import Teller
from levada.spark.jobs.topics import Topic, need
from levada.spark.split import split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.spark.jobs.audit.holes import Found
    from levada.spark.jobs.first import Identity
    from levada.wire.blocking import BlockingClient

#: Of each kind of hole, so many are told.
_HOLES: Final = 5


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What is wanted. Without `by`, repeats are told as the topic's own dedup tells them, and by the message's id where it has none."""

    topic: str
    start: Where = "earliest"
    end: Where = "latest"
    by: str | None = None


class Ready(NamedTuple):
    """An audit that can begin."""

    source: Topic
    by: Identity
    #: How near in time repeats must lie to have been seen by the topic's dedup; None where it has none of this kind.
    window_ms: int | None
    starts: Offsets
    log_starts: Offsets
    ends: Offsets


def prepare(client: BlockingClient, wanted: Audit) -> Ready:
    """Look at everything."""
    from levada.spark.jobs.first import identity

    source = need(client, wanted.topic)
    own = source.setting("levada.dedup")
    said = wanted.by or (own if own != "off" else "id")
    window_ms = int(source.setting("levada.dedup.window.ms")) if said == own else None
    found = History(client, source.name, source.partitions)
    starts, ends = found.resolve(wanted.start, "--from"), found.resolve(wanted.end, "--to")
    ends = {p: max(starts[p], ends[p]) for p in starts}
    return Ready(source, identity(said), window_ms, starts, found.log_starts, ends)


def audit(spark: SparkSession, connection: Connection, ready: Ready, teller: Teller) -> Figures:
    """Measure everything."""
    from levada.spark.jobs.audit import measures
    from levada.spark.jobs.first import needed

    began = time.monotonic()
    source, ranges = ready.source, between(ready.starts, ready.ends)
    offsets = size(ranges)
    teller.doing("records, sizes, checksums", offsets)
    minutes = measures.by_minute(history(spark, connection, source.name, ranges, RECORD), ready.log_starts).cache()
    try:
        partitions = measures.partitions(minutes, ready.starts, ready.log_starts, ready.ends)
        slot_ms, timeline = measures.timeline(minutes)
    finally:
        minutes.unpersist()
    teller.doing("gaps", offsets)
    holes = _holes(spark, connection, ready)
    teller.doing("keys and where they lie", offsets)
    placed = history(spark, connection, source.name, ranges, ("key", "partition"))
    keys = measures.keys(placed, source.router, source.partitions)
    teller.doing(f"repeats by {ready.by.what}", offsets)
    told = history(spark, connection, source.name, ranges, needed(ready.by, ("partition", "offset", "timestamp")))
    duplicates = measures.duplicates(told, ready.by, ready.window_ms)
    figures = Figures(
        topic=source.name,
        bootstrap=connection.cluster.bootstrap,
        at_ms=round(time.time() * 1000),
        router=source.router,
        keyless=source.keyless,
        cleanup=source.setting("cleanup.policy"),
        dedup=source.setting("levada.dedup"),
        partitions=partitions,
        holes=[],
        keys=keys,
        duplicates=duplicates,
        slot_ms=slot_ms,
        timeline=timeline,
        seconds=time.monotonic() - began,
    )
    return with_holes(figures, holes)


def _holes(spark: SparkSession, connection: Connection, ready: Ready) -> list[Found]:
    from levada.spark.jobs.audit.holes import scan

    ranges = [
        Range(ready.source.name, p, max(start, ready.log_starts[p]), end)
        for p, (start, end) in between(ready.starts, ready.ends).items()
        if max(start, ready.log_starts[p]) < end
    ]
    parts = split(ranges, parts_min=spark.sparkContext.defaultParallelism)
    return scan(spark, connection.cluster, parts)


def with_holes(figures: Figures, found: list[Found]) -> Figures:
    """The figures with what the batches tell of each partition."""
    by_partition = {one.partition: dict.fromkeys(KINDS, 0) for one in figures.partitions}
    for one in found:
        for kind, count in one.counts.items():
            by_partition[one.partition][kind] += count
    examples = sorted((hole for one in found for hole in one.examples), key=lambda hole: hole[1:])
    kept = [hole for kind in KINDS for hole in [one for one in examples if one.kind == kind][:_HOLES]]
    partitions = [one._replace(holes=by_partition[one.partition]) for one in figures.partitions]
    return replace(figures, partitions=partitions, holes=kept)
