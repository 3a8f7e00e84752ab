"""Is a copy what its source is? So many records, the same ones, and for each key in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from levada.spark.jobs.checksum import RECORD, Fingerprint, content, fingerprint, summed, total
from levada.spark.jobs.latest import snapshot
from levada.spark.jobs.order import ORDER, in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def same(
    source: DataFrame, target: DataFrame, passes: Mapping[int, Sequence[int]], *, compacts: bool = False
) -> tuple[Fingerprint, str]:
    """(what the source is, how the target differs from it; empty where it does not).

    A source that is compacted loses records while it is copied; what it promises to keep, each key's latest, is compared. For a source
    that has lost more than that, see `within`.
    """
    if compacts:
        source, target = snapshot(source), snapshot(target)
    ours = fingerprint(in_order(source, passes), ORDER)
    theirs = fingerprint(target, ("partition", "offset"))
    return ours, difference(ours, theirs) or _apart(target)


def within(source: DataFrame, target: DataFrame) -> tuple[Fingerprint, str]:
    """The same for a source that has lost records since it was copied, to retention or compaction: all that it still has must be in the
    target, and what each of its partitions has of a key in the same order. Of records that are the same in everything the last are left.
    """
    ours = source.select("key", "partition", "offset", content(*RECORD).alias("content")).persist()
    theirs = target.select("key", "partition", "offset", content(*RECORD).alias("content"))
    try:
        found = ours.agg(f.count("*").alias("records"), *total(f.col("content"), "content")).collect()[0]
        held = Fingerprint(int(found["records"]), summed(found["content_upper"], found["content_lower"]), 0)
        return held, _missing(ours, theirs) or _otherwise(ours, theirs) or _apart(target)
    finally:
        ours.unpersist()


def _missing(ours: DataFrame, theirs: DataFrame) -> str:
    here = ours.groupBy("content").agg(f.count("*").alias("here"))
    there = theirs.groupBy("content").agg(f.count("*").alias("there"))
    lacks = f.col("here") - f.coalesce(f.col("there"), f.lit(0))
    missing = here.join(there, "content", "left").agg(f.sum(f.when(lacks > 0, lacks))).collect()[0][0]
    return f"{missing:,} records are not in it" if missing else ""


def _otherwise(ours: DataFrame, theirs: DataFrame) -> str:
    here = _from_the_end(ours).where(f.col("key").isNotNull())
    there = _from_the_end(theirs).select("content", "rank", f.col("offset").alias("there"))
    before = f.lag("there").over(Window.partitionBy("key", "partition").orderBy("offset"))
    met = here.join(there, ["content", "rank"]).withColumn("before", before)
    keys = met.where("there < before").select("key").distinct().count()
    return f"the records of {keys:,} keys are not in the same order" if keys else ""


def _from_the_end(records: DataFrame) -> DataFrame:
    last_first = Window.partitionBy("content").orderBy(f.desc("partition"), f.desc("offset"))
    return records.withColumn("rank", f.row_number().over(last_first))


def difference(ours: Fingerprint, theirs: Fingerprint) -> str:
    """For a person; empty where there is none."""
    if ours.records != theirs.records:
        return f"{ours.records:,} records against {theirs.records:,}"
    if ours.content != theirs.content:
        return f"as many records, {ours.records:,}, but not the same ones"
    if ours.order != theirs.order:
        return f"the same {ours.records:,} records, but not in the same order for each key"
    return ""


def _apart(target: DataFrame) -> str:
    """Whether a key has come to lie in several partitions."""
    by_key = (
        target.where(f.col("key").isNotNull())
        .groupBy("key")
        .agg((f.min("partition") != f.max("partition")).alias("apart"))
    )
    apart = by_key.where("apart").count()
    return f"{apart:,} keys lie in several of its partitions" if apart else ""
