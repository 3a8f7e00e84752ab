"""Topics through Spark, by either connector, as a Kafka consumer would have seen them. These functions run where the session is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.driver import Seen


def rows(frame: Any) -> list[Seen]:
    """A frame with Kafka's columns, headers among them, in order."""
    from pyspark.sql import functions as f

    time_ms = f.unix_millis("timestamp").alias("timestamp_ms")
    found = frame.select("partition", "offset", time_ms, "key", "value", "headers").collect()
    return in_order([_seen(row) for row in found])


def in_order(found: list[Seen]) -> list[Seen]:
    return sorted(found, key=lambda record: (record.partition, record.offset))


def flat(batches: list[list[Seen]]) -> list[Seen]:
    return in_order([record for found in batches for record in found])


def _seen(row: Any) -> Seen:
    headers = tuple((header.key, _data(header.value)) for header in row.headers or ())
    return Seen(row.partition, row.offset, row.timestamp_ms, _data(row.key), _data(row.value), headers)


def _data(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def configured(edge: Any, connector: str, bootstrap: str, options: Mapping[str, str]) -> Any:
    """A reader or a writer of this connector, with Kafka's names for what both of them know."""
    return edge.format(connector).options(**{"kafka.bootstrap.servers": bootstrap, **options})


def read(edge: Any, connector: str, bootstrap: str, options: Mapping[str, str]) -> Any:
    return configured(edge, connector, bootstrap, {"includeHeaders": "true", **options}).load()


def batch(spark: Any, connector: str, bootstrap: str, options: Mapping[str, str]) -> list[Seen]:
    return rows(read(spark.read, connector, bootstrap, options))


def available(
    spark: Any, connector: str, bootstrap: str, options: Mapping[str, str], checkpoint: str
) -> list[list[Seen]]:
    """All there is now, one list a micro-batch."""
    found: list[list[Seen]] = []
    frame = read(spark.readStream, connector, bootstrap, options)
    writer = frame.writeStream.foreachBatch(lambda part, _number: found.append(rows(part)))
    finish(writer, checkpoint)
    return found


def copy(spark: Any, connector: str, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    """From topic to topic, as far as there is anything now."""
    frame = read(spark.readStream, connector, bootstrap, {"subscribe": source, "startingOffsets": "earliest"})
    copied = frame.select("key", "value", "headers").writeStream
    finish(configured(copied, connector, bootstrap, {"topic": target}), checkpoint)


def finish(writer: Any, checkpoint: str) -> None:
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
