"""One pass over a topic, on the executors: each task reads a range, counts it, looks at its batches, and hands on its keys.

What is counted comes back beside the rows, by the number of the range: a task that is run twice counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam

from levada.spark.columns import decode
from levada.spark.fetch import Range, RangeLost, fetched
from levada.spark.history import History
from levada.spark.jobs.audit.figures import KINDS, Hole
from levada.spark.jobs.audit.holes import EXAMPLES, holes
from levada.spark.jobs.audit.tally import COLUMNS, Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from levada.spark.options.cluster import Cluster

#: So many records' keys are put together before they are handed on.
_ROWS: Final = 1 << 18
_SCHEMA: Final = pa.schema([("key", pa.binary()), ("partition", pa.int32()), ("records", pa.int64())])


class Part(NamedTuple):
    """What one task reads: from the log, or from the history below it."""

    range: Range
    archived: bool


@dataclass
class Seen:
    """What a task found."""

    partition: int
    archived: bool
    tally: Tally = field(default_factory=Tally)
    holes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: list[Hole] = field(default_factory=list)


class _BySeen(AccumulatorParam[dict[int, Seen]]):
    """What was found by the number of its range: the same twice is the same."""

    def zero(self, value: dict[int, Seen]) -> dict[int, Seen]:
        return {}

    def addInPlace(self, value1: dict[int, Seen], value2: dict[int, Seen]) -> dict[int, Seen]:  # noqa: N802
        return value1 | value2


class Scan:
    """The reading of these parts. `keys` is lazy; what it found beside them is in `seen` when it has been evaluated."""

    def __init__(self, spark: SparkSession, cluster: Cluster, history: History, parts: Sequence[Part]) -> None:
        self._spark = spark
        self._parts = list(parts)
        self._seen = spark.sparkContext.accumulator({}, _BySeen())
        self._read = _Read(cluster, history, self._parts, self._seen)

    def keys(self) -> DataFrame:
        """key, partition, records: of keys that are not empty, each key of a partition some times."""
        numbers = self._spark.range(0, len(self._parts), 1, max(1, len(self._parts)))
        return numbers.mapInArrow(self._read, "key BINARY, partition INT, records BIGINT")

    @property
    def seen(self) -> list[Seen]:
        """In the order of the parts."""
        found: dict[int, Seen] = self._seen.value
        return [found[number] for number in range(len(self._parts))]


class _Read:
    """What a task does. It can be pickled."""

    def __init__(self, cluster: Cluster, history: History, parts: list[Part], seen: Any) -> None:
        self._cluster, self._history, self._parts, self._seen = cluster, history, parts, seen

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                part = self._parts[number]
                seen = Seen(part.range.partition, part.archived)
                yield from _keys(self._records(part, seen), part.range.partition)
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


def _keys(batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
    """How often each key occurs, put together where there is enough of it to make fewer rows."""
    held: list[pa.Array] = []
    rows = 0
    for batch in batches:
        held.append(batch.column(0))
        rows += batch.num_rows
        if rows >= _ROWS:
            yield from _counted(held, partition)
            held, rows = [], 0
    if held:
        yield from _counted(held, partition)


def _counted(held: list[pa.Array], partition: int) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    table = pa.table({"key": pa.chunked_array(held, pa.binary())})
    keyed = table.filter(pc.greater(pc.fill_null(pc.binary_length(table.column(0)), 0), 0))
    counted = keyed.group_by("key").aggregate([([], "count_all")])
    keys, counts = counted.column("key").combine_chunks(), counted.column("count_all").combine_chunks()
    if len(keys):
        partitions = pa.array([partition], pa.int32()).take(pa.array([0] * len(keys), pa.int32()))
        yield pa.RecordBatch.from_arrays([keys, partitions, counts.cast(pa.int64())], schema=_SCHEMA)
