"""41: topic → Spark → topic, the driver or the broker killed −9 at random moments: each input exactly once. 42: two drivers, one sink.

LEVADA_KILL_ROUNDS says how often; LEVADA_KILL_SEED at which moments.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from levada.wire.answers import LATEST, READ_COMMITTED, READ_UNCOMMITTED
from levada.wire.blocking import BlockingClient
from support.brokers import Broker
from support.driver import Client, Driver, Sent
from support.kafka import KafkaBroker
from support.levada import LevadaBroker
from support.spark_process import SparkProcess
from support.wait import wait_until

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

ROUNDS = int(os.environ.get("LEVADA_KILL_ROUNDS", "2"))
SEED = int(os.environ.get("LEVADA_KILL_SEED", "0")) or random.randrange(1 << 30)
PARTITIONS = 4
#: Records a round, and how many of them a micro-batch takes: so that there is always a batch under way to be killed in.
ROUND_RECORDS, BATCH_RECORDS = 4_000, 400
SETTLE_S = 300.0

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def client(either: Broker, drivers: Callable[[str], Driver]) -> Client:
    return Client(drivers("librdkafka"), either.bootstrap)


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


def test_41_the_driver_killed_at_any_moment(either: Broker, client: Client, topic: str, tmp_path: Path) -> None:
    target, chance = f"{topic}-target", random.Random(SEED)
    client.create(topic, PARTITIONS)
    client.create(target, PARTITIONS)
    work = (either.bootstrap, topic, target, str(tmp_path / "checkpoint"), {})
    sent: list[bytes] = []
    for turn in range(ROUNDS):
        sent += feed(client, topic, len(sent), ROUND_RECORDS)
        before = ends(either.bootstrap, target, READ_UNCOMMITTED)
        with SparkProcess(tmp_path / f"driver-{turn}") as driver:
            driver.run(begin, *work, timeout_s=SETTLE_S)
            wait_until(lambda: ends(either.bootstrap, target, READ_UNCOMMITTED) > before, SETTLE_S, driver.text)  # noqa: B023
            time.sleep(chance.uniform(0, 1.5))  # anywhere in a batch
            signalled(tree(driver), signal.SIGKILL)
        assert not Counter(copied(client, target)) - Counter(sent), f"seed {SEED}, round {turn}"
    with SparkProcess(tmp_path / "last") as driver:
        driver.run(finish, *work, timeout_s=SETTLE_S)
    assert copied(client, target) == Counter(sent), f"seed {SEED}"


@pytest.fixture(params=["levada", "kafka"])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker that may be killed and started again."""
    running = LevadaBroker(tmp_path / "broker") if request.param == "levada" else KafkaBroker(tmp_path / "broker")
    with running:
        yield running


def test_41_the_broker_killed_at_any_moment(spark, mortal: Broker, drivers, topic: str, tmp_path: Path) -> None:
    """Where the sink waits for the broker the query goes on; where it cannot, it fails, and its restart goes on."""
    target, chance = f"{topic}-target", random.Random(SEED)
    client = Client(drivers("librdkafka"), mortal.bootstrap)
    client.create(topic, PARTITIONS)
    client.create(target, PARTITIONS)
    work = (mortal.bootstrap, topic, target, str(tmp_path / "checkpoint"), {})
    sent: list[bytes] = []
    query = start(spark, *work)
    for _ in range(ROUNDS):
        sent += feed(client, topic, len(sent), ROUND_RECORDS)
        before = ends(mortal.bootstrap, target, READ_UNCOMMITTED)
        wait_until(
            lambda: ends(mortal.bootstrap, target, READ_UNCOMMITTED) > before or not query.isActive,  # noqa: B023
            SETTLE_S,
            "a batch of this round",
        )
        time.sleep(chance.uniform(0, 1.5))  # anywhere in a batch
        mortal.kill()
        mortal.start()
        if not query.isActive:
            query = start(spark, *work)
    query.stop()
    finish(spark, *work)
    assert copied(client, target) == Counter(sent), f"seed {SEED}"


def test_42_the_older_of_two_drivers_is_fenced_and_nothing_of_its_open_batch_is_seen(
    spark, either: Broker, client: Client, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}-target"
    client.create(topic, PARTITIONS)
    client.create(target, PARTITIONS)
    sent = feed(client, topic, 0, 40 * BATCH_RECORDS)
    older, newer = tmp_path / "older", tmp_path / "newer"

    with SparkProcess(tmp_path / "driver") as driver, BlockingClient(either.bootstrap) as asking:
        places = dict.fromkeys(((target, index) for index in range(PARTITIONS)), LATEST)
        work = (either.bootstrap, topic, target, str(older), {"sinkId": target})
        driver.run(begin, *work, timeout_s=SETTLE_S)

        def is_open() -> bool:
            return asking.list_offsets(places) != asking.list_offsets(places, isolation=READ_COMMITTED)

        def stopped_within_a_batch() -> bool:
            everybody, until = tree(driver), time.monotonic() + 1
            while not is_open():
                if time.monotonic() > until:
                    return False
            signalled(everybody, signal.SIGSTOP)
            if is_open():
                return True
            signalled(everybody, signal.SIGCONT)
            return False

        wait_until(stopped_within_a_batch, SETTLE_S, "a moment within a transaction")
        shutil.copytree(older, newer)
        finish(spark, either.bootstrap, topic, target, str(newer), {"sinkId": target})
        assert copied(client, target) == Counter(sent)
        outcome = driver.submit(ending)
        signalled(tree(driver), signal.SIGCONT)
        said = outcome.result(SETTLE_S)
    assert "SinkFenced" in said
    assert "has taken over from this run" in said
    assert copied(client, target) == Counter(sent)


def test_t4_a_query_stopped_within_a_write_leaves_nothing_and_repeats_nothing(
    spark, either: Broker, client: Client, topic: str, tmp_path: Path
) -> None:
    target, chance = f"{topic}-target", random.Random(SEED)
    client.create(topic, PARTITIONS)
    client.create(target, PARTITIONS)
    work = (either.bootstrap, topic, target, str(tmp_path / "checkpoint"), {})
    sent: list[bytes] = []
    for _ in range(max(ROUNDS, 4)):
        sent += feed(client, topic, len(sent), ROUND_RECORDS // 2)
        before = ends(either.bootstrap, target, READ_UNCOMMITTED)
        query = start(spark, *work)
        wait_until(lambda: ends(either.bootstrap, target, READ_UNCOMMITTED) > before, SETTLE_S, "a batch")  # noqa: B023
        time.sleep(chance.uniform(0, 0.4))  # anywhere in a batch
        query.stop()
        assert not copied(client, target) - Counter(sent), f"seed {SEED}"
    finish(spark, *work)
    assert copied(client, target) == Counter(sent), f"seed {SEED}"
