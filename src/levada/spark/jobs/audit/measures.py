"""Frames of records → figures. All heavy work is Spark's own; the router runs compiled, over distinct keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from levada.spark.jobs.audit.figures import SIZES, Copies, Duplicates, Key, Keys, Partition, Slot
from levada.spark.jobs.checksum import content, summed, total
from levada.spark.jobs.extent import Offsets
from levada.spark.jobs.first import Identity
from levada.spark.jobs.order import by_partition
from levada.spark.jobs.routing import home

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE_MS: Final = 60_000
#: A timeline has at most so many slots.
_SLOTS: Final = 120
#: A slot is one of these, in minutes.
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440, 2880, 10080, 43200)
#: Keys and repeats of which so many are told by name.
_EXAMPLES: Final = 10
#: What the checksum of a partition is made of.
CHECKED: Final = ("offset", "key", "value", "headers", "timestamp")


def by_minute(records: DataFrame, log_starts: Offsets) -> DataFrame:
    """A row for each partition and minute: small enough to be asked several times."""
    size = f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))
    time = f.unix_millis("timestamp")
    figures: list[Column] = [
        f.count("*").alias("records"),
        f.count_if(f.col("offset") < by_partition(log_starts, 0)).alias("archived"),
        f.sum(size).alias("bytes"),
        f.count_if(f.coalesce(f.length("key"), f.lit(0)) == 0).alias("keyless"),
        f.count_if(f.col("value").isNull()).alias("tombstones"),
        f.min(time).alias("first_ms"),
        f.max(time).alias("last_ms"),
        *total(content(*CHECKED), "checksum"),
    ]
    for number, (low, high) in enumerate(zip((0, *SIZES), (*SIZES, 2**62), strict=True)):
        figures.append(f.count_if((size >= low) & (size < high)).alias(f"size_{number}"))
    return records.groupBy("partition", f.floor(time / MINUTE_MS).alias("minute")).agg(*figures)


def partitions(minutes: DataFrame, starts: Offsets, log_starts: Offsets, ends: Offsets) -> list[Partition]:
    """Of `by_minute`; with those that are empty."""
    added = ("records", "archived", "bytes", "keyless", "tombstones", "checksum_upper", "checksum_lower")
    classes = [f"size_{number}" for number in range(len(SIZES) + 1)]
    figures = [f.sum(name).alias(name) for name in (*added, *classes)]
    found = minutes.groupBy("partition").agg(
        *figures, f.min("first_ms").alias("first_ms"), f.max("last_ms").alias("last_ms")
    )
    rows = {row["partition"]: row for row in found.collect()}
    empty = {p: Partition(p, starts[p], log_starts[p], ends[p]) for p in sorted(ends)}
    return [_partition(one, rows[p], classes) if p in rows else one for p, one in empty.items()]


def _partition(empty: Partition, row: Any, classes: list[str]) -> Partition:
    return empty._replace(
        records=row["records"],
        archived=row["archived"],
        bytes=row["bytes"],
        keyless=row["keyless"],
        tombstones=row["tombstones"],
        first_ms=row["first_ms"],
        last_ms=row["last_ms"],
        checksum=summed(row["checksum_upper"], row["checksum_lower"]),
        sizes=tuple(row[name] for name in classes),
    )


def timeline(minutes: DataFrame) -> tuple[int, list[Slot]]:
    """(how long a slot is, the slots with records, in order)."""
    first, last = minutes.agg(f.min("minute"), f.max("minute")).collect()[0]
    if first is None:
        return MINUTE_MS, []
    step = next((one for one in _STEPS if (last - first) // one < _SLOTS), (last - first) // _SLOTS + 1)
    slot = (f.floor(f.col("minute") / step) * step).alias("slot")
    rows = minutes.groupBy(slot).agg(f.sum("records").alias("records")).orderBy("slot").collect()
    return step * MINUTE_MS, [Slot(row["slot"] * MINUTE_MS, row["records"]) for row in rows]


def keys(records: DataFrame, router: str, count: int) -> Keys:
    """Where keys lie, and where the router puts them. One row for each key is all that the router is asked for."""
    keyed = records.where(f.length("key") > 0)
    by_key = keyed.groupBy("key").agg(
        f.count("*").alias("records"), f.min("partition").alias("lowest"), f.max("partition").alias("highest")
    )
    is_split = f.col("lowest") != f.col("highest")
    # A key in one partition is right or wrong as a whole; those in several are few, and looked at record by record below.
    is_misplaced = ~is_split & (f.col("lowest") != f.col("home"))
    placed = by_key.withColumn("home", home(router, count)).cache()
    try:
        row = placed.agg(
            f.count("*"),
            f.count_if(is_split),
            f.sum(f.when(is_split, f.col("records"))),
            f.count_if(is_misplaced),
            f.sum(f.when(is_misplaced, f.col("records"))),
        ).collect()[0]
        distinct, split, split_records, misplaced, misplaced_records = (int(one or 0) for one in row)
        largest = _examples(placed)
        split_examples = _examples(placed.where(is_split)) if split else []
        misplaced_examples = _examples(placed.where(is_misplaced)) if misplaced else []
        if split:
            apart = placed.where(is_split).select("key", "home")
            away = keyed.join(apart, "key").where(f.col("partition") != f.col("home"))
            more, more_records = away.agg(f.count_distinct("key"), f.count("*")).collect()[0]
            misplaced, misplaced_records = misplaced + more, misplaced_records + more_records
    finally:
        placed.unpersist()
    return Keys(
        distinct, split, split_records, misplaced, misplaced_records, largest, split_examples, misplaced_examples
    )


def _examples(placed: DataFrame) -> list[Key]:
    """Those with the most records."""
    rows = placed.orderBy(f.desc("records"), "key").limit(_EXAMPLES).collect()
    return [Key(bytes(row["key"]), row["records"], row["lowest"], row["highest"], row["home"]) for row in rows]


def duplicates(records: DataFrame, by: Identity, window_ms: int | None) -> Duplicates:
    """Records that have an earlier one of the same identity, which is told by 128 bits of it."""
    told = by.column()
    time = f.unix_millis("timestamp")
    place = f.struct("partition", "offset")
    hashed = records.where(told.isNotNull()).select(
        f.xxhash64(told).alias("one"),
        f.xxhash64(f.lit(1), told).alias("other"),
        "partition",
        "offset",
        time.alias("time"),
    )
    several = (
        hashed.groupBy("one", "other").agg(
            f.count("*").alias("records"), f.min("time").alias("first_ms"), f.max("time").alias("last_ms")
        )
    ).cache()
    try:
        is_several = f.col("records") > 1
        near = is_several & (f.col("last_ms") - f.col("first_ms") <= (window_ms if window_ms is not None else -1))
        row = several.agg(
            f.sum("records"),
            f.count_if(is_several),
            f.sum(f.when(is_several, f.col("records") - 1)),
            f.sum(f.when(near, f.col("records") - 1)),
        ).collect()[0]
        records_told, identities, repeats, within = (int(one or 0) for one in row)
        examples: list[Copies] = []
        if identities:
            most = several.where(is_several).orderBy(f.desc("records"), "one").limit(_EXAMPLES).select("one", "other")
            rows = (
                hashed.join(f.broadcast(most), ["one", "other"])
                .groupBy("one", "other")
                .agg(f.count("*").alias("records"), f.min(place).alias("first"), f.max(place).alias("last"))
                .orderBy(f.desc("records"), "one")
                .collect()
            )
            examples = [Copies(row["records"], tuple(row["first"]), tuple(row["last"])) for row in rows]
    finally:
        several.unpersist()
    return Duplicates(by.what, records_told, identities, repeats, within, examples)
