"""Revenue per minute and user, out of a stream of orders that come late and more than once.

    levada pipeline run examples/orders.py

    orders ──▶ one of each id ──▶ sum by minute and user ──┬──▶ topic revenue, keyed by user
                                                           └──▶ Delta table lake/revenue

Shops send an order again when they are not sure that it arrived, and phones send theirs when they are online again. So an order
counts once, however often it comes within half an hour; one that is up to half an hour late still counts in its own minute; and a
minute's revenue is told once, when it can no longer change.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from levada.spark import deduplicated, lake, pipeline, topic

#: What an order looks like: {"id": "o-17", "user": "ada", "amount": 12.5, "at": "2026-03-01T12:00:07Z"}
ORDER = "id STRING, user STRING, amount DOUBLE, at TIMESTAMP"


@pipeline(
    source=topic("orders", format="json", schema=ORDER, on_error="deadLetter", watermark=("at", "30 minutes")),
    sink=[topic("revenue", key="user"), lake("revenue")],
    trigger="5 seconds",
)
def revenue(orders: DataFrame) -> DataFrame:
    """What each user spent in each minute."""
    is_order = F.col("id").isNotNull() & (F.col("amount") > 0)
    by_minute = F.window("at", "1 minute")
    return (
        deduplicated(orders.where(is_order), "id")
        .groupBy(by_minute, "user")
        .agg(F.count("*").alias("orders"), F.round(F.sum("amount"), 2).alias("revenue"))
        .select(F.col("window.start").alias("minute"), "user", "orders", "revenue")
    )
