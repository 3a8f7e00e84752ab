"""Where records belong, as columns: by the topic's router, exactly as the broker has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f

from levada.routing import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column


def homes(keys: pa.Array, router: str, partitions: int) -> pa.Array:
    """The partition of each key of an Arrow column; null for null and for the empty key, which a router does not place."""
    import numpy as np

    from levada.spark.sink.places import places_of
    from levada.spark.sink.routers import NOT_CHOSEN, NUMBERS, PARTITIONS, ROUTER, WIDTH, route

    topic = np.zeros((1, WIDTH), np.int64)
    topic[0, PARTITIONS], topic[0, ROUTER] = partitions, NUMBERS[router]
    data, at, size = places_of(keys)
    slots = np.empty(len(keys), np.int64)
    route(data, at, size, np.zeros(len(keys), np.int32), np.full(len(keys), NOT_CHOSEN, np.int32), topic, slots)
    return pa.array(slots.astype(np.int32), mask=size <= 0)


def home(router: str, partitions: int) -> Column:
    """The partition that the router gives the key; null for a record that has none."""

    def of(keys: pa.Array) -> pa.Array:
        return homes(keys, router, partitions)

    routed: Callable[[Column], Column] = f.arrow_udf(of, "int")  # type: ignore[attr-defined]  # pyspark's hints leave it out
    return routed(f.col("key"))


def place(router: str, partitions: int, keyless: str) -> Column:
    """Where a record is put: by its key; without one, spread by its offset, so that it is the same place whenever it is asked for.

    An empty key is none to the router, but one to compaction: all of its records stay together.
    """
    spread = f.pmod(f.col("offset") + f.col("partition"), f.lit(partitions)).cast("int")
    otherwise = f.lit(0) if keyless == "zero" else spread
    empty = f.lit(partition_for(b"", router, partitions))
    return f.coalesce(home(router, partitions), f.when(f.col("key").isNull(), otherwise).otherwise(empty))
