"""A job's frames: ranges of a topic in, batches of a topic out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

from levada.spark.jobs.extent import Ranges
from levada.spark.options.cluster import Cluster
from levada.spark.options.reading import Given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
#: A record, without the topic's name.
RECORD: Final = ("key", "value", "headers", "partition", "offset", "timestamp")
#: Where a record lies, and when it is from.
PLACE: Final = ("partition", "offset", "timestamp")
#: What the sink makes a record of.
WRITTEN: Final = ("key", "value", "headers", "partition", "timestamp")


class Connection(NamedTuple):
    """A cluster, as options of `format("levada")` and as the driver speaks to it."""

    options: Mapping[str, str]
    cluster: Cluster

    @classmethod
    def of(cls, bootstrap: str, further: Mapping[str, str] | None = None) -> Connection:
        """`further` are Kafka's own settings, under `kafka.`. WrongOption."""
        options = {"bootstrap": bootstrap, **(further or {})}
        given = Given(options)
        cluster = Cluster.of(given, client_id="levada-job")
        given.refuse_the_rest()
        return cls(options, cluster)


def schema(columns: Sequence[str]) -> str:
    """Of these columns, in DDL."""
    return ", ".join(f"{name} {_TYPES[name]}" for name in columns)


def history(
    spark: SparkSession,
    connection: Connection,
    topic: str,
    ranges: Ranges,
    columns: Sequence[str] = RECORD,
    *,
    whole: bool = True,
) -> DataFrame:
    """The committed records of these ranges, in order within each partition, from the log and the archive.

    What retention deletes meanwhile is an error, or with `whole=False` passed over.
    """
    held = {str(p): bounds for p, bounds in sorted(ranges.items()) if bounds[0] < bounds[1]}
    if not held:
        return spark.createDataFrame([], schema(columns))
    reader = spark.read.format("levada").options(**connection.options)
    return reader.options(
        assign=json.dumps({topic: [int(p) for p in held]}),
        startingOffsets=json.dumps({topic: {p: start for p, (start, _) in held.items()}}),
        endingOffsets=json.dumps({topic: {p: end for p, (_, end) in held.items()}}),
        columns=",".join(columns),
        failOnDataLoss=str(whole).lower(),
        minPartitions=str(spark.sparkContext.defaultParallelism),
    ).load()


def what_is_left(
    spark: SparkSession, connection: Connection, topic: str, ranges: Sequence[Ranges], columns: Sequence[str] = RECORD
) -> DataFrame:
    """As `history`, of all these ranges: each partition's are in its order."""
    frames = [history(spark, connection, topic, one, columns) for one in ranges or [{}]]
    return reduce(lambda one, other: one.union(other), frames)


def write(frame: DataFrame, connection: Connection, topic: str, *, sink: str, batch: int, epoch: int = 0) -> int:
    """Write records (`WRITTEN`, or some of them) exactly once under this number; how many there were."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    rows = frame.select(*(name for name in WRITTEN if name in frame.columns)).observe(seen, f.count("*").alias("rows"))
    rows.write.format("levada").mode("append").options(**connection.options).options(
        topic=topic,
        delivery="exactly_once",
        sinkId=sink,
        batchId=str(batch),
        sinkEpoch=str(epoch),
        includeTimestamp=str("timestamp" in frame.columns).lower(),
    ).save()
    return int(seen.get["rows"])
