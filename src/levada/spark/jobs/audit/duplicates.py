"""Records that have an earlier one of the same identity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from levada.spark.jobs.audit.figures import Copies, Duplicates
from levada.spark.jobs.first import Identity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: So many identities are told, those with the most records.
_EXAMPLES: Final = 10


def duplicates(records: DataFrame, by: Identity, window_ms: int | None) -> Duplicates:
    """Counted by 128 bits of what tells them. Of `window_ms`, see `Duplicates`."""
    told = by.column()
    hashed = records.where(told.isNotNull()).select(
        f.xxhash64(told).alias("one"),
        f.xxhash64(f.lit(1), told).alias("other"),
        "partition",
        "offset",
        f.unix_millis("timestamp").alias("time"),
    )
    near = f.lit(False)
    if window_ms is not None:
        # Only here must all records of an identity come together: most often each is alone, and only its count is sent on.
        before = f.lag("time").over(Window.partitionBy("one", "other").orderBy("time"))
        hashed = hashed.withColumn("since", f.col("time") - before)
        near = f.col("since") <= window_ms
    counted = hashed.groupBy("one", "other").agg(f.count("*").alias("records"), f.count_if(near).alias("near"))
    several = f.col("records") > 1
    row = counted.agg(
        f.sum("records"), f.count_if(several), f.sum(f.when(several, f.col("records") - 1)), f.sum("near")
    ).collect()[0]
    told_records, identities, repeats, within = (int(one or 0) for one in row)
    found = Duplicates(by.what, told_records, identities, repeats, within)
    return found._replace(examples=_examples(hashed, counted)) if found.identities else found


def _examples(hashed: DataFrame, counted: DataFrame) -> list[Copies]:
    most = counted.where(f.col("records") > 1).orderBy(f.desc("records"), "one").limit(_EXAMPLES).select("one", "other")
    place = f.struct("partition", "offset")
    rows = (
        hashed.join(f.broadcast(most), ["one", "other"])
        .groupBy("one", "other")
        .agg(f.count("*").alias("records"), f.min(place).alias("first"), f.max(place).alias("last"))
        .orderBy(f.desc("records"), "one")
        .collect()
    )
    return [Copies(row["records"], tuple(row["first"]), tuple(row["last"])) for row in rows]
