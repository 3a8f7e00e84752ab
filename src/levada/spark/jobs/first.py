"""Which records are repeats of earlier ones, exactly, over all partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as f

from levada.errors import InvalidRequest
from levada.spark.jobs.extent import Offsets
from levada.spark.jobs.order import by_partition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SAYS: Final = "id (the header message_id), payload, key, header:NAME, or a path into JSON such as $.order.id"
#: The header that `levada.dedup=id` goes by.
MESSAGE_ID: Final = "message_id"


class Identity(NamedTuple):
    """What a record is told by: `what` for a person, the columns of a record it is made of."""

    what: str
    columns: tuple[str, ...]
    name: str = ""

    @property
    def is_bytes(self) -> bool:
        """Whether it is a part of the record as it lies there, and not a field of its JSON."""
        return self.columns != ("value",) or not self.name

    def column(self) -> Column:
        """Null where a record has nothing to be told by: it is no repeat of anything."""
        if self.columns == ("headers",):
            return _header(self.name)
        if self.name:
            return f.get_json_object(f.col("value").cast("string"), self.name)
        return f.col(self.columns[0])


def identity(text: str, option: str = "--by") -> Identity:
    """As a person says it. InvalidRequest, naming what can be said."""
    match text.partition(":"):
        case ("id", "", ""):
            return Identity(f"header {MESSAGE_ID}", ("headers",), MESSAGE_ID)
        case ("payload", "", ""):
            return Identity("payload", ("value",))
        case ("key", "", ""):
            return Identity("key", ("key",))
        case ("header", ":", name) if name:
            return Identity(f"header {name}", ("headers",), name)
    if text.startswith("$.") and len(text) > 2:
        return Identity(f"JSON {text}", ("value",), text)
    raise InvalidRequest(f"{option} {text!r}: must be {_SAYS}")


def _header(name: str) -> Column:
    """The last header of this name, as the broker's dedup has it; an empty one says nothing."""
    named = f.filter("headers", lambda one: one["key"] == name)
    value = f.try_element_at(f.transform(named, lambda one: one["value"]), f.lit(-1))
    return f.when(f.length(value) > 0, value)


def repeats(
    records: DataFrame, by: Identity, done: Offsets | None = None, copied: DataFrame | None = None
) -> DataFrame:
    """Partition and offset of every record that has an earlier one of the same identity. The first stays, whatever is asked.

    In one partition the smaller offset is the earlier; between partitions the earlier timestamp, then the smaller partition. Records
    before `done` have been dealt with by an earlier pass, and come before all others. What is `copied` is first whatever there is; it
    lies elsewhere, and its places are told as if in partitions below 0.
    """
    late = f.when(f.col("offset") >= by_partition(done or {}, -1), 1).otherwise(0) if done else f.lit(0)
    told = _told(records, by, late)
    if copied is not None:
        told = told.union(_told(copied.withColumn("partition", -1 - f.col("partition")), by, f.lit(-1)))
    first_there = told.groupBy("identity", "partition").agg(
        f.min("offset").alias("offset"),
        f.count("*").alias("copies"),
        f.min_by("time", "offset").alias("time"),
        f.min("late").alias("late"),
    )
    first = first_there.groupBy("identity").agg(
        f.sum("copies").alias("copies"), f.min(f.struct("late", "time", "partition", "offset")).alias("first")
    )
    several = first.where(f.col("copies") > 1).select(
        "identity", f.col("first.partition").alias("first_partition"), f.col("first.offset").alias("first_offset")
    )
    is_first = (f.col("partition") == f.col("first_partition")) & (f.col("offset") == f.col("first_offset"))
    return told.join(several, "identity").where(~is_first).select("partition", "offset")


def _told(records: DataFrame, by: Identity, late: Column) -> DataFrame:
    """Those that have something to be told by."""
    return records.select(
        by.column().alias("identity"),
        "partition",
        "offset",
        f.unix_millis("timestamp").alias("time"),
        late.alias("late"),
    ).where(f.col("identity").isNotNull())


def without(records: DataFrame, places: DataFrame) -> DataFrame:
    """The records that are not at these places."""
    return records.join(places, ["partition", "offset"], "left_anti")


def told(records: DataFrame, by: Identity) -> tuple[int, int]:
    """(how many records there are, how many of them have something to be told by)."""
    row = records.agg(f.count("*"), f.count(by.column())).collect()[0]
    return int(row[0]), int(row[1])


def needed(by: Identity, columns: Sequence[str]) -> tuple[str, ...]:
    """These columns, and what the identity is made of."""
    return tuple(dict.fromkeys((*columns, *by.columns)))
