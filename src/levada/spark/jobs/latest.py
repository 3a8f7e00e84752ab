"""The latest record of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def latest(places: DataFrame) -> DataFrame:
    """Partition and offset of each key's latest record, out of key, partition, offset and timestamp.

    In one partition the larger offset is the later. For a key in several partitions it is the one with the later timestamp, then the
    larger partition. Records without a key have no latest one.
    """
    keyed = places.where(f.col("key").isNotNull())
    last_there = keyed.groupBy("key", "partition").agg(
        f.max("offset").alias("offset"), f.max_by(f.unix_millis("timestamp"), "offset").alias("time")
    )
    last = last_there.groupBy("key").agg(f.max(f.struct("time", "partition", "offset")).alias("last"))
    return last.select("last.partition", "last.offset")


def snapshot(records: DataFrame) -> DataFrame:
    """The latest record of each key, where that is no tombstone."""
    last = latest(records.select("key", "partition", "offset", "timestamp"))
    return records.join(last, ["partition", "offset"], "left_semi").where(f.col("value").isNotNull())
