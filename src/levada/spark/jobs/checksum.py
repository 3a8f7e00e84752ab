"""What a set of records is, in a few numbers: so many, these, in this order for each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HALF: Final = 0xFFFFFFFF


class Fingerprint(NamedTuple):
    """Two sets of records are the same where all three are: with 64 bits, but for a chance of one in 10¹⁹."""

    records: int
    #: Of what they are, in whatever order.
    content: int
    #: Of what each key's first, second, third … record is.
    order: int


def content(*columns: str) -> Column:
    """64 bits of what a record is. Null is told from empty, which the hash alone does not do."""
    return f.xxhash64(*(part for name in columns for part in (f.col(name).isNull(), f.col(name))))


RECORD: Final = ("key", "value", "headers", "timestamp")


def total(hashes: Column, name: str) -> list[Column]:
    """The sum of 64-bit numbers in two halves, which do not overflow: see `summed`."""
    upper = f.sum(f.shiftrightunsigned(hashes, 32)).alias(f"{name}_upper")
    lower = f.sum(hashes.bitwiseAND(f.lit(_HALF))).alias(f"{name}_lower")
    return [upper, lower]


def summed(upper: int | None, lower: int | None) -> int:
    """The sum modulo 2⁶⁴ out of its halves."""
    return ((upper or 0) * 2**32 + (lower or 0)) % 2**64


def fingerprint(records: DataFrame, order: Sequence[str], columns: Sequence[str] = RECORD) -> Fingerprint:
    """Of records that are, for each key, in the order of these columns. Records without a key have none."""
    narrow = records.select("key", content(*columns).alias("content"), *order)
    # Records without a key are not ranked among one another, which would bring them all into one task.
    alone = f.when(f.col("key").isNull(), f.col("content"))
    rank = f.row_number().over(Window.partitionBy("key", alone).orderBy(*order))
    ranked = narrow.withColumn("placed", f.when(f.col("key").isNotNull(), f.xxhash64(rank, "content")))
    found = ranked.agg(
        f.count("*").alias("records"), *total(f.col("content"), "content"), *total(f.col("placed"), "order")
    ).collect()[0]
    return Fingerprint(
        int(found["records"]),
        summed(found["content_upper"], found["content_lower"]),
        summed(found["order_upper"], found["order_lower"]),
    )
