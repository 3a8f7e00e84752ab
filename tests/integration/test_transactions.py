"""Read, process, write: exactly once, while the broker is killed −9 again and again.

What each call answers is in test_transaction_calls.py, what clients make of it in tests/acceptance/test_transactions.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError as AIOKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from support.levada import LevadaBroker
from support.transaction_calls import Wire
from support.wait import wait_until

PARTITIONS = 2
#: Records of one transaction.
STRIDE = 10
KILLS = int(os.environ.get("LEVADA_CRASH_ROUNDS", "3"))
PATIENCE_S = 90.0
#: A client that has found nothing for so long may have lost its place: it begins anew.
IDLE_S = 5.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LevadaBroker]:
    settings = {"group.min.session.timeout.ms": "1000"}
    with LevadaBroker(tmp_path / "broker", settings) as running:
        with Wire(running.bootstrap) as wire:
            wire.create("in", PARTITIONS)
            wire.create("out", PARTITIONS)
        yield running


class Confluent:
    """Moves records from `in` to `out`, some at a time, each time in one transaction with its place in `in`."""

    def __init__(self, bootstrap: str, stopping: threading.Event) -> None:
        self.bootstrap = bootstrap
        self.stopping = stopping

    def run(self) -> None:
        while not self.stopping.is_set():
            with contextlib.suppress(KafkaException):
                self.move()

    def move(self) -> None:
        # librdkafka 2.16, when it rebootstraps, may wait for ever for a coordinator it has thrown away.
        common: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        consumer = Consumer(
            {
                **common,
                "group.id": "mover",
                "session.timeout.ms": 6000,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        producer = Producer({**common, "transactional.id": "mover", "linger.ms": 0, "message.timeout.ms": 5000})
        try:
            producer.init_transactions(10)
            consumer.subscribe(["in"])
            moved_at = time.monotonic()
            while not self.stopping.is_set() and time.monotonic() < moved_at + IDLE_S:
                if self.move_some(consumer, producer):
                    moved_at = time.monotonic()
        finally:
            consumer.close()

    def move_some(self, consumer: Consumer, producer: Producer) -> bool:
        """One transaction. After an error everything begins anew, from the place that was committed."""
        messages = [message for message in consumer.consume(STRIDE, timeout=0.3) if not message.error()]
        if not messages:
            return False
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", message.value(), partition=message.partition())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 10
        )
        while True:
            try:
                producer.commit_transaction(10)
                return True
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if not reason.retriable() or self.stopping.is_set():
                    raise


class AIOKafka:
    """The same with aiokafka, which numbers its own partitions."""

    def __init__(self, bootstrap: str, stopping: threading.Event) -> None:
        self.bootstrap = bootstrap
        self.stopping = stopping

    def run(self) -> None:
        while not self.stopping.is_set():
            with contextlib.suppress(AIOKafkaError, TimeoutError, asyncio.TimeoutError, OSError):
                asyncio.run(self.move())

    async def move(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id="mover")
            await asyncio.wait_for(producer.start(), 10)
            stack.push_async_callback(self.close, producer)
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                group_id="mover",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            )
            consumer.assign([TopicPartition("in", index) for index in range(PARTITIONS)])
            await asyncio.wait_for(consumer.start(), 10)
            stack.push_async_callback(self.close, consumer)
            while not self.stopping.is_set():
                await asyncio.wait_for(self.move_some(consumer, producer), 15)

    async def close(self, client: Any) -> None:
        with contextlib.suppress(AIOKafkaError, TimeoutError):
            await asyncio.wait_for(client.stop(), 5)

    async def move_some(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
        found = await consumer.getmany(timeout_ms=300, max_records=STRIDE)
        if not found:
            return
        async with producer.transaction():
            for at, records in found.items():
                for record in records:
                    await producer.send("out", record.value, partition=at.partition)
            places = {at: records[-1].offset + 1 for at, records in found.items()}
            await producer.send_offsets_to_transaction(places, "mover")


def read_all(bootstrap: str, topic: str, isolation: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{time.monotonic()}",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    values, ended = [], set()
    try:
        while len(ended) < PARTITIONS:
            for message in consumer.consume(500, timeout=0.5):
                error = message.error()
                if error is None:
                    values.append(message.value())
                    ended.discard(message.partition())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return values


def feed(bootstrap: str, stopping: threading.Event) -> None:
    """Numbers, one after the other, as long as it goes on."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    number = 0
    while not stopping.is_set():
        producer.produce("in", b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
        number += 1
        time.sleep(0.005)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("mover", [Confluent, AIOKafka])
def test_every_record_arrives_exactly_once_though_the_broker_is_killed(
    broker: LevadaBroker, mover: Callable[[str, threading.Event], Any]
) -> None:
    fed, stopping = threading.Event(), threading.Event()
    feeder = threading.Thread(target=feed, args=(broker.bootstrap, fed))
    worker = threading.Thread(target=mover(broker.bootstrap, stopping).run)
    feeder.start()
    worker.start()
    try:
        rng = random.Random(7)
        for _ in range(KILLS):
            time.sleep(rng.uniform(1, 2.5))
            broker.kill()
            broker.start()
        time.sleep(1)
        fed.set()
        feeder.join(60)
        expected = Counter(read_all(broker.bootstrap, "in", "read_committed"))
        wait_until(
            lambda: len(read_all(broker.bootstrap, "out", "read_committed")) >= expected.total(),
            PATIENCE_S,
            lambda: f"{len(read_all(broker.bootstrap, 'out', 'read_committed'))} of {expected.total()}",
        )
    finally:
        fed.set()
        stopping.set()
        feeder.join(60)
        worker.join(60)
    assert not worker.is_alive()
    assert set(expected.values()) == {1} and expected.total() > 100
    arrived = read_all(broker.bootstrap, "out", "read_committed")
    assert Counter(arrived) == expected
    for index in range(PARTITIONS):
        numbers = [int(value) for value in arrived if int(value) % PARTITIONS == index]
        assert numbers == sorted(numbers)
    assert len(read_all(broker.bootstrap, "out", "read_uncommitted")) >= expected.total()
