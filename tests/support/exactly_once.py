"""Topic → Spark → topic, and what is needed to see whether each input arrived exactly once. `start`, `begin`, `finish` and `ending` run where the session is.

LEVADA_KILL_ROUNDS says how often a test kills; LEVADA_KILL_SEED at which moments.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil

from levada.wire.answers import LATEST
from levada.wire.blocking import BlockingClient
from support.driver import Client, Sent
from support.spark_process import SparkProcess

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

ROUNDS = int(os.environ.get("LEVADA_KILL_ROUNDS", "2"))
SEED = int(os.environ.get("LEVADA_KILL_SEED", "0")) or random.randrange(1 << 30)
PARTITIONS = 4
#: Records a round, and how many of them a micro-batch takes: so that there is always a batch under way to be killed in.
ROUND_RECORDS, BATCH_RECORDS = 4_000, 400
SETTLE_S = 300.0


def start(
    spark: Any, bootstrap: str, source: str, target: str, checkpoint: str, options: dict[str, str], once: bool = False
) -> StreamingQuery:
    rows = BATCH_RECORDS * (10 if once else 1)
    frame = spark.readStream.format("levada").options(
        bootstrap=bootstrap, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=str(rows)
    )
    writer = frame.load().select("key", "value").repartition(2).writeStream.format("levada")
    writer = writer.options(bootstrap=bootstrap, topic=target, **options).option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if once else writer).start()


def begin(spark: Any, *arguments: Any) -> None:
    spark.begun = start(spark, *arguments)


def finish(spark: Any, *arguments: Any) -> None:
    start(spark, *arguments, True).awaitTermination()


def ending(spark: Any) -> str:
    """Wait until the query that was begun ends; why it did."""
    try:
        spark.begun.awaitTermination()
    except Exception as error:
        return str(error)
    return "it ended by itself"


def feed(client: Client, topic: str, first: int, count: int) -> list[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    client.produce(topic, [Sent(value, value, number % PARTITIONS) for number, value in enumerate(values)])
    return values


def copied(client: Client, target: str) -> Counter[bytes | None]:
    return Counter(record.value for record in client.consume(target, committed=True))


def ends(bootstrap: str, topic: str, isolation: int) -> int:
    with BlockingClient(bootstrap) as asking:
        places = dict.fromkeys(((topic, index) for index in range(PARTITIONS)), LATEST)
        return sum(found.offset for found in asking.list_offsets(places, isolation=isolation).values())


def tree(process: SparkProcess) -> list[psutil.Process]:
    """The driver, its JVM, and their Python workers."""
    driver = psutil.Process(process.process.pid)
    return [driver, *driver.children(recursive=True)]


def signalled(processes: list[psutil.Process], what: signal.Signals) -> None:
    for one in processes:
        try:
            one.send_signal(what)
        except psutil.NoSuchProcess:
            pass
