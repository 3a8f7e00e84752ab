"""One order for the records of all partitions of a topic: that of their timestamps, without ever leaving the order of a partition.

A partition's records are in the order of their offsets whatever their timestamps say. So what counts for a record is the latest
timestamp up to it in its partition, `since`: it never goes back. Records of several partitions are merged by it, and where it is the
same, by partition. A key that lies in several partitions, as after an expansion, so comes out in the order in which it was written.

Copying takes several passes where the source grows meanwhile: what came in a later pass comes later, whatever its timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from levada.spark.jobs.copying import Cut, Pass
from levada.spark.jobs.ledger import NEVER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What `in_order` sorts by, and adds where it is not there.
ORDER: Final = ("pass", "since", "partition", "offset")


def in_order(
    records: DataFrame, passes: Mapping[int, Sequence[int]] | None = None, since_ms: Mapping[int, int] | None = None
) -> DataFrame:
    """With `pass` and `since`, by which the records of all partitions can be sorted (`ORDER`).

    `passes` are as a `Step` has them; without them there is one. `since_ms` are the latest timestamps before these records, for those
    that are only a part of a pass.
    """
    up_to_here = Window.partitionBy("pass", "partition").orderBy("offset")
    latest = f.max(f.unix_millis("timestamp")).over(up_to_here)
    return records.withColumn("pass", _pass(passes or {})).withColumn(
        "since", f.greatest(latest, by_partition(since_ms or {}, NEVER))
    )


def _pass(passes: Mapping[int, Sequence[int]]) -> Column:
    """How many passes ended at or before this offset. Each partition's list has where the job began, then as many ends as the others'."""
    found = f.lit(0)
    for number in range(1, max(map(len, passes.values()), default=0) - 1):
        ends = by_partition({partition: held[number] for partition, held in passes.items()}, 2**63 - 1)
        found = found + f.when(f.col("offset") >= ends, 1).otherwise(0)
    return found


def by_partition(values: Mapping[int, int], otherwise: int) -> Column:
    """The value of the row's partition. A tree of comparisons, since a chain of thousands would be too deep to compile."""
    items = sorted(values.items())
    if not items:
        return f.lit(otherwise).cast("long")
    if len(items) == 1:
        return f.when(f.col("partition") == items[0][0], items[0][1]).otherwise(f.lit(otherwise)).cast("long")
    middle = len(items) // 2
    lower, upper = by_partition(dict(items[:middle]), otherwise), by_partition(dict(items[middle:]), otherwise)
    return f.when(f.col("partition") < items[middle][0], lower).otherwise(upper)


def cuts(places: DataFrame, what: Pass, rows_max: int) -> Iterator[Cut]:
    """The pass in batches of about so many rows, each wholly before the next in this order.

    `places` are partition, offset and timestamp of all records of the pass from its start on.
    """
    since = _before(places, what.positions) if what.positions != what.starts else {}
    rows = sum(what.ends[p] - position for p, position in what.positions.items())
    left = in_order(places).where(f.col("offset") >= by_partition(what.positions, 0))
    batches = 1 if rows <= rows_max else -(-left.count() // rows_max)
    if batches <= 1:
        yield Cut(what.ends, since)
        return
    order = [f.col(name) for name in ORDER[1:]]
    ranged = left.repartitionByRange(batches, *order).withColumn("batch", f.spark_partition_id())
    found = ranged.groupBy("batch", "partition").agg((f.max("offset") + 1).alias("end"), f.max("since").alias("since"))
    yield from _cuts(what, sorted(found.collect()), since)


def _before(places: DataFrame, positions: Mapping[int, int]) -> dict[int, int]:
    """The latest timestamp of each partition before these offsets."""
    before = places.where(f.col("offset") < by_partition(positions, 0))
    found = before.groupBy("partition").agg(f.max(f.unix_millis("timestamp"))).collect()
    return {int(row[0]): int(row[1]) for row in found}


def _cuts(what: Pass, rows: Sequence[tuple[int, int, int, int]], since_ms: Mapping[int, int]) -> Iterator[Cut]:
    """From (batch, partition, end, latest timestamp), sorted. The last batch takes what has no record, too."""
    ends, since = dict(what.positions), dict(since_ms)
    batches = sorted({row[0] for row in rows})
    for batch in batches:
        here = [row for row in rows if row[0] == batch]
        ends.update({partition: end for _, partition, end, _ in here})
        yield Cut(dict(what.ends if batch == batches[-1] else ends), dict(since))
        since.update({partition: latest for _, partition, _, latest in here})
