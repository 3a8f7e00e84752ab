"""Ranges of real partitions as columns, beside what a consumer nobody here wrote reads of them: on Levada and on Apache Kafka."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from levada.records.compression import CODECS
from levada.spark.columns import COLUMNS, decode
from levada.spark.fetch import Range, RangeLost, fetched
from levada.testing import broker as levada_broker
from levada.wire.answers import LATEST, READ_COMMITTED
from levada.wire.blocking import BlockingClient
from support.batches import make_batch
from support.kafka import KafkaBroker
from support.levada import LevadaBroker

BROKERS = {"levada": LevadaBroker, "kafka": KafkaBroker}
#: Old timestamps would make Kafka roll segments, and delete them.
NOW_MS = time.time_ns() // 1_000_000
names = (f"decoded-{number}" for number in itertools.count())

#: topic, partition, offset, key, value, headers, (kind of timestamp, timestamp in ms)
Row = tuple[str, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], tuple[int, int]]


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with BROKERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


def make_topic(bootstrap: str, **configs: str) -> str:
    name = next(names)
    with BlockingClient(bootstrap) as client:
        client.create_topic(
            name, 1, replication_factor=1, configs={key.replace("_", "."): v for key, v in configs.items()}
        )
    return name


def fill(bootstrap: str, topic: str, seed: int) -> None:
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
                    produce(producer, topic, rng)
                producer.flush()
            for producer in both:
                (producer.commit_transaction if rng.random() < 0.5 else producer.abort_transaction)()


def produce(producer: Producer, topic: str, rng: random.Random) -> None:
    headers = [(rng.choice("abü"), rng.choice((None, b"", rng.randbytes(5)))) for _ in range(rng.choice((0, 0, 1, 3)))]
    key, value = (rng.choice((None, b"", rng.randbytes(rng.randint(1, 300)))) for _ in range(2))
    producer.produce(topic, value, key, 0, timestamp=NOW_MS + rng.randint(-5_000, 5_000), headers=headers)


def consumed(bootstrap: str, topic: str, end: int, isolation: str) -> list[Row]:
    """The rows that librdkafka reads below this offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "beside",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    rows: list[Row] = []
    try:
        while (message := consumer.poll(20)) is not None:
            if message.error():
                break
            kind, when = message.timestamp()
            headers = tuple((name, value) for name, value in message.headers() or ())
            rows.append((topic, 0, message.offset(), message.key(), message.value(), headers, (kind - 1, when)))
    finally:
        consumer.close()
    return [row for row in rows if row[2] < end]


def read(bootstrap: str, topic: str, start: int, end: int, *, committed: bool = False, **limits: int) -> list[Row]:
    """The rows of this range as they are decoded."""
    wanted = Range(topic, 0, start, end)
    rows: list[Row] = []
    for piece in fetched(settings(bootstrap), wanted, read_committed=committed, **limits):
        for batch in decode(piece, COLUMNS, topic=topic, rows_max=100):
            batch.validate(full=True)
            rows += [_row(row) for row in batch.to_pylist()]
    return rows


def settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap": bootstrap, "timeout_ms": 20_000, **more}


def _row(row: dict[str, Any]) -> Row:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    when = (row["timestampType"], round(row["timestamp"].timestamp() * 1000))
    return row["topic"], row["partition"], row["offset"], row["key"], row["value"], headers, when


def end_of(bootstrap: str, topic: str) -> int:
    with BlockingClient(bootstrap) as client:
        return client.list_offsets({(topic, 0): LATEST}, isolation=READ_COMMITTED)[topic, 0].offset


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "uncommitted"])
def test_any_range_is_what_a_consumer_reads_of_it(broker: Any, committed: bool) -> None:
    topic = make_topic(broker.bootstrap)
    fill(broker.bootstrap, topic, seed=3)
    end = end_of(broker.bootstrap, topic)
    expected = consumed(broker.bootstrap, topic, end, "read_committed" if committed else "read_uncommitted")
    assert len(expected) > 300
    assert read(broker.bootstrap, topic, 0, end, committed=committed) == expected
    rng = random.Random(5)
    for bytes_max in (1, 4_000, 30_000):
        start, stop = sorted(rng.sample(range(end + 1), 2))
        found = read(broker.bootstrap, topic, start, stop, committed=committed, bytes_max=bytes_max)
        assert found == [row for row in expected if start <= row[2] < stop]


def test_ranges_end_in_the_middle_of_a_transaction_and_at_its_marker(broker: Any) -> None:
    """A reader that begins after the first record of an aborted transaction leaves out the rest of it as well."""
    topic = make_topic(broker.bootstrap)
    with BlockingClient(broker.bootstrap) as client:
        producer = client.transactional_producer(f"{topic}-t")
        producer.init()
        for end in (producer.abort, producer.commit):
            for _ in range(2):
                producer.send({(topic, 0): make_batch(3, timestamp_ms=NOW_MS).view})
            end()
    # 0–5 aborted, 6 its marker, 7–12 committed, 13 its marker
    for start, stop in itertools.combinations(range(15), 2):
        found = [row[2] for row in read(broker.bootstrap, topic, start, stop, committed=True)]
        assert found == [offset for offset in range(7, 13) if start <= offset < stop]


def test_the_brokers_clock(broker: Any) -> None:
    topic = make_topic(broker.bootstrap, message_timestamp_type="LogAppendTime")
    with BlockingClient(broker.bootstrap) as client:
        client.produce((topic, 0), make_batch(3, timestamp_ms=NOW_MS - 9_000).view)
    expected = consumed(broker.bootstrap, topic, 3, "read_uncommitted")
    assert read(broker.bootstrap, topic, 0, 3) == expected
    assert [row[6][0] for row in expected] == [1, 1, 1]


def test_what_was_deleted_is_told_and_the_rest_can_be_read(broker: Any) -> None:
    topic = make_topic(broker.bootstrap)
    with BlockingClient(broker.bootstrap) as client:
        for _ in range(3):
            client.produce((topic, 0), make_batch(10, timestamp_ms=NOW_MS).view)
        client.delete_records({(topic, 0): 13})
    with pytest.raises(RangeLost) as lost:
        read(broker.bootstrap, topic, 4, 30)
    assert lost.value.lost == Range(topic, 0, 4, 13)
    assert [row[2] for row in read(broker.bootstrap, topic, 13, 30)] == list(range(13, 30))


def test_an_end_after_that_of_the_log_is_an_error_and_not_a_wait_for_ever(broker: Any) -> None:
    topic = make_topic(broker.bootstrap)
    with BlockingClient(broker.bootstrap) as client:
        client.produce((topic, 0), make_batch(10, timestamp_ms=NOW_MS).view)
    reading = fetched(settings(broker.bootstrap, timeout_ms=1_000), Range(topic, 0, 0, 12), read_committed=False)
    assert next(reading).to_offset == 10
    with pytest.raises(RangeLost, match=f"offsets 10 to 11 of {topic}-0"):
        next(reading)


def test_a_broker_that_is_started_again_is_read_on() -> None:
    with levada_broker() as levada:
        topic = make_topic(levada.bootstrap)
        with BlockingClient(levada.bootstrap) as client:
            for _ in range(6):
                client.produce((topic, 0), make_batch(10, timestamp_ms=NOW_MS).view)
        reading = fetched(settings(levada.bootstrap), Range(topic, 0, 0, 60), read_committed=True, bytes_max=100)
        found = [next(reading), next(reading)]
        levada.stop()
        levada.start()
        found += reading
    assert [(piece.from_offset, piece.to_offset) for piece in found] == [(i, i + 10) for i in range(0, 60, 10)]
    offsets = [
        offset
        for piece in found
        for batch in decode(piece, ("offset",), topic=topic)
        for offset in batch[0].to_pylist()
    ]
    assert offsets == list(range(60))


def test_compaction_leaves_holes_that_are_read_over(tmp_path: Any) -> None:
    """All but the newest of each key is gone, and a range may end where nothing is left."""
    quick = {"log.cleaner.backoff.ms": "100"}
    with levada_broker(quick, data=tmp_path / "data") as levada:
        topic = make_topic(
            levada.bootstrap,
            cleanup_policy="compact",
            segment_bytes="2000",
            min_cleanable_dirty_ratio="0.01",
        )
        with BlockingClient(levada.bootstrap) as client:
            for i in range(60):
                client.produce((topic, 0), make_batch(10, key=b"k", value=b"%d" % i, timestamp_ms=NOW_MS).view)
        deadline = time.monotonic() + 60
        while len(expected := consumed(levada.bootstrap, topic, 600, "read_uncommitted")) > 400:
            assert time.monotonic() < deadline, "the cleaner did not come"
        rows = read(levada.bootstrap, topic, 0, 600)
        # The cleaner may have gone on in between; what is read is then a part of what was there.
        assert set(rows) <= set(expected)
        assert rows[-10:] == expected[-10:]
        gone = sorted(set(range(600)) - {row[2] for row in rows})
        assert read(levada.bootstrap, topic, gone[0], gone[0] + 1) == []
