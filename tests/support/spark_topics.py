"""Topics with everything in them that a record can be, what a consumer nobody here wrote reads of them, and the same from Spark."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from levada.records.build import build
from levada.records.compression import CODECS
from levada.wire.answers import LATEST, READ_COMMITTED
from levada.wire.blocking import BlockingClient

#: Old timestamps would make Kafka roll segments, and delete them.
NOW_MS = time.time_ns() // 1_000_000
names = (f"spark-{number}" for number in itertools.count())

#: topic, partition, offset, key, value, headers, (kind of timestamp, timestamp in ms)
Row = tuple[str, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], tuple[int, int]]


def make_topic(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    name = next(names)
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with BlockingClient(bootstrap) as client:
        client.create_topic(name, partitions, replication_factor=1, configs=settings)
    return name


def put(bootstrap: str, topic: str, values: Sequence[bytes | None], *, partition: int = 0, step_ms: int = 0) -> int:
    """Write these values in one batch, the first with NOW_MS and the next `step_ms` later each; the offset of the first."""
    records = [(b"%d" % number, value) for number, value in enumerate(values)]
    with BlockingClient(bootstrap) as client:
        if not step_ms:
            return client.produce((topic, partition), build(records, timestamp_ms=NOW_MS)).base_offset
        offsets = [
            client.produce((topic, partition), build([record], timestamp_ms=NOW_MS + number * step_ms)).base_offset
            for number, record in enumerate(records)
        ]
        return offsets[0]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def fill(bootstrap: str, topic: str, seed: int, partitions: int = 1) -> None:
    """Every codec, nulls, headers, transactions that end either way, and some that write while others are open."""
    rng = random.Random(seed)
    for codec in CODECS:
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, "batch.size": 2_000}
        plain = Producer(settings)
        both = [Producer({**settings, "transactional.id": f"{topic}-{codec}-{i}"}) for i in range(2)]
        for producer in both:
            producer.init_transactions()
        for _ in range(2):
            for producer in both:
                producer.begin_transaction()
            for producer in (plain, *both, plain, *both):
                for _ in range(rng.randint(1, 60)):
                    _produce(producer, topic, rng, rng.randrange(partitions))
                producer.flush()
            for producer in both:
                (producer.commit_transaction if rng.random() < 0.5 else producer.abort_transaction)()


def _produce(producer: Producer, topic: str, rng: random.Random, partition: int) -> None:
    headers = [(rng.choice("abü"), rng.choice((None, b"", rng.randbytes(5)))) for _ in range(rng.choice((0, 0, 1, 3)))]
    key, value = (rng.choice((None, b"", rng.randbytes(rng.randint(1, 300)))) for _ in range(2))
    producer.produce(topic, value, key, partition, timestamp=NOW_MS + rng.randint(-5_000, 5_000), headers=headers)


def ends(bootstrap: str, topic: str, partitions: int = 1) -> list[int]:
    """Up to where each partition can be read."""
    with BlockingClient(bootstrap) as client:
        found = client.list_offsets({(topic, p): LATEST for p in range(partitions)}, isolation=READ_COMMITTED)
    return [found[topic, p].offset for p in range(partitions)]  # type: ignore[index]


def consumed(bootstrap: str, topic: str, isolation: str = "read_committed", partitions: int = 1) -> list[Row]:
    """All that librdkafka reads, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "beside",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    rows: list[Row] = []
    try:
        for partition in range(partitions):
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            while (message := consumer.poll(20)) is not None:
                if message.error():
                    break
                kind, when = message.timestamp()
                headers = tuple((name, value) for name, value in message.headers() or ())
                place = topic, partition, message.offset()
                rows.append((*place, message.key(), message.value(), headers, (kind - 1, when)))
    finally:
        consumer.close()
    return rows


def row_of(row: Mapping[str, Any]) -> Row:
    """A row of all columns, as Arrow gives it."""
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    when = (row["timestampType"], round(row["timestamp"].timestamp() * 1000))
    return row["topic"], row["partition"], row["offset"], row["key"], row["value"], headers, when


def in_order(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    return sorted(map(row_of, rows), key=lambda row: row[:3])
