"""Why there is no record at an offset: the batches of the log tell, which a consumer never sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from levada.records.batch import CONTROL
from levada.spark.fetch import Fetched, Range, fetched
from levada.spark.jobs.audit.figures import ABORTED, BETWEEN, EMPTIED, KINDS, MARKERS, WITHIN, Hole

if TYPE_CHECKING:
    import numpy as np
    from pyspark.sql import SparkSession

    from levada.spark.options.cluster import Cluster

    Ints = np.ndarray[Any, np.dtype[np.int64]]

#: Of each kind, in each piece, so many are told by their offsets.
_EXAMPLES: Final = 3


class Found(NamedTuple):
    """What was found in one piece of a partition: how many offsets of each kind, and some of them."""

    partition: int
    counts: dict[str, int]
    examples: list[Hole]


def holes(piece: Fetched, visible: Ints) -> Found:
    """Out of whole batches, and the offsets at which a consumer sees a record, in order."""
    import numpy as np

    from levada.spark.columns.batches import ATTRIBUTES, BASE, COUNT, LAST, batch_table

    table = batch_table(np.frombuffer(piece.data, np.uint8))
    first = np.maximum(table[:, BASE], piece.from_offset)
    end = np.maximum(first, np.minimum(table[:, LAST] + 1, piece.to_offset))
    seen = np.searchsorted(visible, end) - np.searchsorted(visible, first)
    missing = end - first - seen
    control = table[:, ATTRIBUTES] & CONTROL != 0
    unseen = (seen == 0) & ~control & (missing > 0)
    kinds = {
        MARKERS: control,
        EMPTIED: unseen & (table[:, COUNT] == 0),
        ABORTED: unseen & (table[:, COUNT] > 0),
        WITHIN: ~control & ~unseen,
    }
    counts = {kind: int(missing[rows].sum()) for kind, rows in kinds.items()}
    found = Found(piece.partition, counts, [])
    for kind, rows in kinds.items():
        for row in np.flatnonzero(rows & (missing > 0))[:_EXAMPLES].tolist():
            found.examples.append(_hole(kind, piece.partition, int(first[row]), int(end[row]), visible))
    _between(found, piece, first, end)
    return found


def _hole(kind: str, partition: int, first: int, end: int, visible: Ints) -> Hole:
    """The first stretch in these offsets that is not visible."""
    import numpy as np

    here = visible[np.searchsorted(visible, first) : np.searchsorted(visible, end)]
    edges = np.concatenate(([first - 1], here, [end]))
    at = int(np.flatnonzero(np.diff(edges) > 1)[0])
    return Hole(kind, partition, int(edges[at]) + 1, int(edges[at + 1]))


def _between(found: Found, piece: Fetched, first: Ints, end: Ints) -> None:
    """Offsets that no batch holds. Batches are in order, so the end of each and the beginning of the next have them between them."""
    import numpy as np

    begins = np.concatenate(([piece.from_offset], end))
    ends = np.concatenate((first, [piece.to_offset]))
    gaps = np.maximum(ends - begins, 0)
    found.counts[BETWEEN] = int(gaps.sum())
    for at in np.flatnonzero(gaps)[:_EXAMPLES].tolist():
        found.examples.append(Hole(BETWEEN, piece.partition, int(begins[at]), int(ends[at])))


def scanned(cluster: Cluster, wanted: Range) -> Iterator[Found]:
    """The holes of one range of a log, piece by piece, on an executor."""
    import numpy as np

    from levada.spark.columns import decode

    for piece in fetched(cluster.settings, wanted, read_committed=True):
        offsets = [batch.column(0).to_numpy() for batch in decode(piece, ("offset",), topic=wanted.topic)]
        yield holes(piece, np.concatenate(offsets) if offsets else np.empty(0, np.int64))


def scan(spark: SparkSession, cluster: Cluster, ranges: Sequence[Range]) -> list[Found]:
    """The holes of these ranges, a task each; one summary for each range."""
    if not ranges:
        return []

    def of(batches: Iterator[Any]) -> Iterator[Any]:
        import json

        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                partition, counts = ranges[number].partition, dict.fromkeys(KINDS, 0)
                examples: list[Hole] = []
                for found in scanned(cluster, ranges[number]):
                    counts = {kind: count + found.counts.get(kind, 0) for kind, count in counts.items()}
                    full = {kind for kind in KINDS if sum(one.kind == kind for one in examples) >= _EXAMPLES}
                    examples += [one for one in found.examples if one.kind not in full]
                told = json.dumps([partition, counts, [list(one) for one in examples]])
                yield pa.RecordBatch.from_arrays([pa.array([told])], names=["found"])

    numbers = spark.range(0, len(ranges), 1, len(ranges))
    return [_read(row[0]) for row in numbers.mapInArrow(of, "found string").collect()]


def _read(told: str) -> Found:
    import json

    partition, counts, examples = json.loads(told)
    return Found(partition, counts, [Hole(*one) for one in examples])
