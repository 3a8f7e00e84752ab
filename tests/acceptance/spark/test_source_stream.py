"""Streams of `format("levada")` in a Spark session."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from levada.spark.losses import DELETED, Lost, lost_in
from levada.wire.blocking import BlockingClient
from support.brokers import Broker
from support.levada import LevadaBroker
from support.ports import free_port
from support.spark_topics import make_topic, numbered, put
from support.wait import wait_until

PATIENCE_S = 60.0


class Collected:
    """What the batches of a query brought: values, by batch. The first `failing` batches fail instead."""

    def __init__(self, failing: int = 0) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.failing = failing

    def __call__(self, frame: DataFrame, batch: int) -> None:
        values = [bytes(row.value) for row in frame.select("value").collect()]
        if self.failing:
            self.failing -= 1
            raise RuntimeError("the sink is not there")
        self.batches[batch] = values

    @property
    def values(self) -> list[bytes]:
        return sorted((value for held in self.batches.values() for value in held), key=int)


class Stream:
    """A query that can be started again from its checkpoint."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, checkpoint: Path, **options: str) -> None:
        self._reader = (
            spark.readStream.format("levada").option("bootstrap", broker.bootstrap).option("subscribe", topic)
        )
        self._reader = self._reader.options(**options)
        self._checkpoint = str(checkpoint)

    def start(self, into: Callable[[DataFrame, int], None], **trigger: Any) -> StreamingQuery:
        writer = self._reader.load().writeStream.foreachBatch(into).option("checkpointLocation", self._checkpoint)
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    def run_available(self, into: Callable[[DataFrame, int], None]) -> StreamingQuery:
        query = self.start(into, availableNow=True)
        assert query.awaitTermination(int(PATIENCE_S)), "availableNow did not end"
        return query


@pytest.fixture
def stream(spark: SparkSession, levada: LevadaBroker, tmp_path: Path) -> Callable[..., Stream]:
    return lambda topic, **options: Stream(spark, levada, topic, tmp_path / "checkpoint", **options)


def until(look: Callable[[], Any], query: StreamingQuery, message: str) -> None:
    def looked() -> Any:
        failure = query.exception()
        assert failure is None, str(failure)
        return look()

    wait_until(looked, PATIENCE_S, message)


def test_40_t1_batch_0_fails_and_every_record_arrives_once(stream: Callable[..., Stream], levada: LevadaBroker) -> None:
    """Scenario 40: "latest" is resolved, batch 0 fails, the topic grows, the query restarts."""
    topic = make_topic(levada.bootstrap)
    put(levada.bootstrap, topic, numbered(100))
    query = stream(topic)
    broken = query.start(Collected(failing=1))
    with pytest.raises(Exception, match="the sink is not there"):
        broken.awaitTermination(int(PATIENCE_S))
    put(levada.bootstrap, topic, numbered(800, 100))
    into = Collected()
    query.run_available(into)
    assert into.values == numbered(800, 100)


def test_40_t1_a_first_batch_with_records_fails(stream: Callable[..., Stream], levada: LevadaBroker) -> None:
    """The same where batch 0 has records, and what it began at is deleted and grown past before the restart."""
    topic = make_topic(levada.bootstrap)
    put(levada.bootstrap, topic, numbered(105))
    with BlockingClient(levada.bootstrap) as client:
        client.offset_commit(f"{topic}-g", {(topic, 0): 100})
    query = stream(topic, startingOffsets="group", groupId=f"{topic}-g", maxOffsetsPerTrigger="5")
    with pytest.raises(Exception, match="the sink is not there"):
        query.start(Collected(failing=1)).awaitTermination(int(PATIENCE_S))
    with BlockingClient(levada.bootstrap) as client:
        client.offset_commit(f"{topic}-g", {(topic, 0): 900})
    put(levada.bootstrap, topic, numbered(20, 105))
    into = Collected()
    query.run_available(into)
    assert into.batches[0] == numbered(5, 100)
    assert into.values == numbered(25, 100)


def test_43_new_partitions_arrive_without_a_restart(stream: Callable[..., Stream], levada: LevadaBroker) -> None:
    """Scenario 43: from 4 to 6 partitions while the query runs."""
    topic = make_topic(levada.bootstrap, 4)
    put(levada.bootstrap, topic, numbered(4))
    into = Collected()
    query = stream(topic, startingOffsets="earliest").start(into)
    until(lambda: into.values == numbered(4), query, "the first records")
    with BlockingClient(levada.bootstrap) as client:
        client.create_partitions(topic, 6)
    for partition in (4, 5):
        put(levada.bootstrap, topic, numbered(3, 4 + 3 * (partition - 4)), partition=partition)
    until(lambda: into.values == numbered(10), query, "records of partitions 4 and 5")
    query.stop()


def test_available_now_in_limited_batches_commits_and_ends(spark: SparkSession, either: Broker, tmp_path: Path) -> None:
    """T2: after the run the group's lag is 0, although Spark never calls commit for the last batch."""
    topic = make_topic(either.bootstrap)
    put(either.bootstrap, topic, numbered(25))
    into = Collected()
    options = {"startingOffsets": "earliest", "groupId": f"{topic}-g", "maxOffsetsPerTrigger": "10"}
    query = Stream(spark, either, topic, tmp_path, **options)
    query.run_available(into)
    assert [len(values) for values in into.batches.values()] == [10, 10, 5]
    assert into.values == numbered(25)
    assert committed(either, topic) == 25
    put(either.bootstrap, topic, numbered(5, 25))
    query.run_available(into)
    assert into.values == numbered(30)
    assert committed(either, topic) == 30


def test_t2_lag_goes_down_while_the_query_runs(stream: Callable[..., Stream], levada: LevadaBroker) -> None:
    topic = make_topic(levada.bootstrap)
    into = Collected()
    query = stream(topic, startingOffsets="earliest", groupId=f"{topic}-g").start(into)
    for start in (0, 10):
        put(levada.bootstrap, topic, numbered(10, start))
        until(lambda: committed(levada, topic) == start + 10, query, "the group's offset")  # noqa: B023
    query.stop()
    progress = [one for one in query.recentProgress if one["numInputRows"]][-1]["sources"][0]
    assert _json(progress["endOffset"])["to"] == {topic: {"0": 20}}
    assert _json(progress["latestOffset"])["to"] == {topic: {"0": 20}}


def committed(broker: Broker, topic: str) -> int | None:
    with BlockingClient(broker.bootstrap) as client:
        found = client.offset_fetch(f"{topic}-g", [(topic, 0)])
    return next(iter(found.values())).offset if found else None


def _json(told: Any) -> Any:
    return json.loads(told) if isinstance(told, str) else told


def test_45_what_retention_took_fails_the_query_or_is_in_its_progress(
    spark: SparkSession, levada: LevadaBroker, tmp_path: Path
) -> None:
    """Scenario 45."""
    topic = make_topic(levada.bootstrap)
    put(levada.bootstrap, topic, numbered(5))
    queries = {}
    for loss in ("true", "false"):
        options = {"startingOffsets": "earliest", "failOnDataLoss": loss}
        queries[loss] = Stream(spark, levada, topic, tmp_path / loss, **options)
        queries[loss].run_available(Collected())
    put(levada.bootstrap, topic, numbered(10, 5))
    with BlockingClient(levada.bootstrap) as client:
        client.delete_records({(topic, 0): 9})
    with pytest.raises(Exception, match=f"lost: offsets 5 to 8 of {topic}-0: they were deleted before they were read"):
        queries["true"].run_available(Collected())
    into = Collected()
    query = queries["false"].run_available(into)
    assert into.values == numbered(6, 9)
    told = [lost for one in query.recentProgress for lost in lost_in(one["sources"][0]["endOffset"])]
    assert told == [Lost(topic, 0, 5, 9, DELETED)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startngOffsets": "earliest"}, "startngoffsets: there is no such option; did you mean startingOffsets?"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"startingOffsets": '{"TOPIC": {"0": 1}}'}, "startingOffsets: 'TOPIC-0: 1' is not allowed; 0 to 0 are there"),
        ({"subscribe": "nothing-like-it"}, "subscribe: 'nothing-like-it' is not allowed; topics of the broker at"),
        ({"bootstrap": "127.0.0.1:PORT"}, "127.0.0.1:PORT cannot be reached"),
    ],
    ids=["unknown", "end", "place", "topic", "broker"],
)
def test_48_what_is_wrong_is_told_before_any_job(
    spark: SparkSession, levada: LevadaBroker, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    """Scenario 48, of a stream."""
    topic, port = make_topic(levada.bootstrap), str(free_port())
    given = {"bootstrap": levada.bootstrap, "subscribe": topic, **options}
    given = {name: value.replace("PORT", port).replace("TOPIC", topic) for name, value in given.items()}
    before = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
    with pytest.raises(Exception) as error:
        loaded = spark.readStream.format("levada").options(**given).load()
        writer = loaded.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        writer.start().awaitTermination(int(PATIENCE_S))
    assert told.replace("PORT", port).replace("TOPIC", topic) in str(error.value)
    assert spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs() == before


def test_t3_nothing_is_left_of_a_stopped_query(stream: Callable[..., Stream], levada: LevadaBroker) -> None:
    """T3: Spark never calls `stop` on the reader; its process and its connection go all the same."""
    topic = make_topic(levada.bootstrap)
    before, processes = connections(levada), set(runners())
    into = Collected()
    query = stream(topic, startingOffsets="earliest").start(into)
    put(levada.bootstrap, topic, numbered(3))
    until(lambda: into.values == numbered(3), query, "the records")
    assert set(runners()) - processes, "a process asks for offsets"
    query.stop()
    wait_until(lambda: not set(runners()) - processes, PATIENCE_S, "the end of the process that asks for offsets")
    wait_until(lambda: connections(levada) <= before, PATIENCE_S, "the end of its connection")


def connections(broker: LevadaBroker) -> int:
    """How many are connected to the broker's Kafka port."""
    found = psutil.Process(broker.pid).net_connections("tcp")
    return sum(one.laddr.port == broker.port and one.status == psutil.CONN_ESTABLISHED for one in found)


def runners() -> Iterator[int]:
    """The processes that plan streams: below this one's JVM, connected to a broker or not."""
    for process in psutil.Process().children(recursive=True):
        with_runner = False
        try:
            with_runner = any("python_streaming_source_runner" in part for part in process.cmdline())
        except psutil.Error:
            continue
        if with_runner:
            yield process.pid


def test_too_little_waits_for_more_and_not_for_ever(stream: Callable[..., Stream], levada: LevadaBroker) -> None:
    """minOffsetsPerTrigger with maxTriggerDelay, for which Spark has no limit of its own."""
    topic = make_topic(levada.bootstrap)
    into = Collected()
    query = stream(
        topic, startingOffsets="earliest", minOffsetsPerTrigger="10", maxOffsetsPerTrigger="15", maxTriggerDelay="1h"
    ).start(into)
    until(lambda: into.batches == {0: []}, query, "the first batch, which waits for nothing")
    put(levada.bootstrap, topic, numbered(9))
    query.processAllAvailable()
    assert into.values == []
    put(levada.bootstrap, topic, numbered(20, 9))
    until(lambda: 1 in into.batches and len(into.batches[1]) == 15, query, "as many as one batch may have")
    query.stop()


def test_t7_state_and_available_now_come_to_an_end(spark: SparkSession, levada: LevadaBroker, tmp_path: Path) -> None:
    """T7: transformWithState by processing time never ends with availableNow; without a clock it does, on this source too."""
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Count(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._seen = handle.getValueState("seen", "n BIGINT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            seen = (self._seen.get()[0] if self._seen.exists() else 0) + sum(len(frame) for frame in rows)
            self._seen.update((seen,))
            yield pd.DataFrame({"partition": [key[0]], "n": [seen]})

        def close(self) -> None:
            pass

    topic = make_topic(levada.bootstrap, 2)
    for partition in range(2):
        put(levada.bootstrap, topic, numbered(7), partition=partition)
    reader = spark.readStream.format("levada").option("bootstrap", levada.bootstrap).option("subscribe", topic)
    source = reader.option("startingOffsets", "earliest").option("columns", "partition,offset").load()
    counted = source.groupBy("partition").transformWithStateInPandas(
        Count(), outputStructType="partition INT, n BIGINT", outputMode="update", timeMode="none"
    )
    found: dict[int, int] = {}
    lock = threading.Lock()

    def keep(frame: DataFrame, _batch: int) -> None:
        with lock:
            found.update({row.partition: row.n for row in frame.collect()})

    query = counted.writeStream.foreachBatch(keep).outputMode("update").trigger(availableNow=True)
    running = query.option("checkpointLocation", str(tmp_path)).start()
    assert running.awaitTermination(int(2 * PATIENCE_S))
    assert found == {0: 7, 1: 7}
