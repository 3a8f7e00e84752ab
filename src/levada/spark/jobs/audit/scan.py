"""One pass over a topic, on the executors: each task reads a range, counts it, looks at its batches, and hands on its keys and identities.

What is counted comes back beside the rows, by the number of the range: a task that is run twice counts once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam

from levada.spark.columns import decode
from levada.spark.fetch import Range, RangeLost, fetched
from levada.spark.history import History
from levada.spark.jobs.audit.figures import KINDS, Duplicates, Hole, Keys
from levada.spark.jobs.audit.holes import EXAMPLES, holes
from levada.spark.jobs.audit.tally import COLUMNS, Tally
from levada.spark.jobs.first import Identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.spark.options.cluster import Cluster


class Part(NamedTuple):
    """What one task reads: from the log, or from the history below it."""

    range: Range
    archived: bool


class Wanted(NamedTuple):
    """What is looked at. Without `by`, repeats are not."""

    parts: Sequence[Part]
    router: str
    partitions: int
    by: Identity | None
    window_ms: int | None
    buckets: int


@dataclass
class Seen:
    """What a task found."""

    partition: int
    archived: bool
    tally: Tally = field(default_factory=Tally)
    holes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: list[Hole] = field(default_factory=list)


class Scanned(NamedTuple):
    """What all found."""

    seen: list[Seen]
    keys: Keys
    duplicates: Duplicates


class _BySeen(AccumulatorParam[dict[int, Seen]]):
    """What was found by the number of its range: the same twice is the same."""

    def zero(self, value: dict[int, Seen]) -> dict[int, Seen]:
        return {}

    def addInPlace(self, value1: dict[int, Seen], value2: dict[int, Seen]) -> dict[int, Seen]:  # noqa: N802
        return value1 | value2


def scan(spark: SparkSession, cluster: Cluster, history: History, wanted: Wanted) -> Scanned:
    """Read it all, once."""
    from levada.spark.jobs.audit import identities, keys
    from levada.spark.jobs.audit.parcels import DDL

    seen = spark.sparkContext.accumulator({}, _BySeen())
    numbers = spark.range(0, len(wanted.parts), 1, max(1, len(wanted.parts)))
    parcels = numbers.mapInArrow(_Read(cluster, history, wanted, seen), DDL)
    together = parcels.repartition(spark.sparkContext.defaultParallelism, "bucket").sortWithinPartitions("bucket")
    rows = [json.loads(row[0]) for row in together.mapInArrow(_Summarise(wanted), "told STRING").collect()]
    return Scanned(
        [seen.value[number] for number in range(len(wanted.parts))],
        keys.merged(row[0] for row in rows),
        identities.merged(wanted.by.what if wanted.by else "", (row[1] for row in rows)),
    )


class _Read:
    """What a task does. It can be pickled."""

    def __init__(self, cluster: Cluster, history: History, wanted: Wanted, seen: Any) -> None:
        self._cluster, self._history, self._wanted, self._seen = cluster, history, wanted, seen

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from levada.spark.jobs.audit.parcels import Packing

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                part = self._wanted.parts[number]
                seen = Seen(part.range.partition, part.archived)
                packing = Packing(part.range.partition, self._wanted.buckets, self._wanted.by)
                for records in self._records(part, seen):
                    yield from packing.add(records)
                yield from packing.rest()
                self._seen.add({number: seen})

    def _records(self, part: Part, seen: Seen) -> Iterator[pa.RecordBatch]:
        wanted = part.range
        if part.archived:
            for batch in self._history.read(wanted, COLUMNS):
                seen.tally.add(batch)
                yield batch
            return
        while wanted.start < wanted.end:
            try:
                yield from self._logged(wanted, seen)
                return
            except RangeLost as error:
                if error.lost.start >= error.start:  # not deleted: it cannot be read
                    raise
                wanted = wanted._replace(start=error.lost.end)

    def _logged(self, wanted: Range, seen: Seen) -> Iterator[pa.RecordBatch]:
        import numpy as np

        for piece in fetched(self._cluster.settings, wanted, read_committed=True):
            visible = []
            for batch in decode(piece, COLUMNS, topic=wanted.topic):
                seen.tally.add(batch)
                visible.append(batch.column(3).to_numpy())
                yield batch
            found = holes(piece, np.concatenate(visible) if visible else np.empty(0, np.int64))
            for kind, count in found.counts.items():
                seen.holes[kind] += count
            full = {kind for kind in KINDS if sum(one.kind == kind for one in seen.examples) >= EXAMPLES}
            seen.examples += [one for one in found.examples if one.kind not in full]


class _Summarise:
    """What becomes of parcels, which come sorted by bucket: [keys, duplicates] of each bucket. It can be pickled."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted._replace(parts=())

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        now = -1
        held: list[Any] = []
        for batch in batches:
            for bucket, *row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if bucket != now and held:
                    yield self._told(held)
                    held = []
                now = bucket
                held.append(tuple(row))
        if held:
            yield self._told(held)

    def _told(self, rows: list[Any]) -> pa.RecordBatch:
        from levada.spark.jobs.audit import identities, keys
        from levada.spark.jobs.audit.parcels import opened

        wanted, bucket = self._wanted, opened(rows)
        summaries = [
            keys.summary(bucket.keys, wanted.router, wanted.partitions),
            identities.summary(bucket.identities, wanted.window_ms),
        ]
        return pa.RecordBatch.from_arrays([pa.array([json.dumps(summaries)])], names=["told"])
