"""Ranges of real partitions as columns, beside what a consumer nobody here wrote reads of them: on Levada and on Apache Kafka."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from levada.spark.columns import COLUMNS, decode
from levada.spark.fetch import Range, RangeLost, fetched
from levada.testing import broker as levada_broker
from levada.wire.blocking import BlockingClient
from support.batches import make_batch
from support.kafka import KafkaBroker
from support.levada import LevadaBroker
from support.spark_topics import NOW_MS, Row, consumed, ends, fill, make_topic, row_of

BROKERS = {"levada": LevadaBroker, "kafka": KafkaBroker}


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with BROKERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


def read(bootstrap: str, topic: str, start: int, end: int, *, committed: bool = False, **limits: int) -> list[Row]:
    """The rows of this range as they are decoded."""
    wanted = Range(topic, 0, start, end)
    rows: list[Row] = []
    for piece in fetched(settings(bootstrap), wanted, read_committed=committed, **limits):
        for batch in decode(piece, COLUMNS, topic=topic, rows_max=100):
            batch.validate(full=True)
            rows += [row_of(row) for row in batch.to_pylist()]
    return rows


def settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap": bootstrap, "timeout_ms": 20_000, **more}


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "uncommitted"])
def test_any_range_is_what_a_consumer_reads_of_it(broker: Any, committed: bool) -> None:
    topic = make_topic(broker.bootstrap)
    fill(broker.bootstrap, topic, seed=3)
    (end,) = ends(broker.bootstrap, topic)
    expected = consumed(broker.bootstrap, topic, "read_committed" if committed else "read_uncommitted")
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
    expected = consumed(broker.bootstrap, topic, "read_uncommitted")
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
        while len(expected := consumed(levada.bootstrap, topic, "read_uncommitted")) > 400:
            assert time.monotonic() < deadline, "the cleaner did not come"
        rows = read(levada.bootstrap, topic, 0, 600)
        # The cleaner may have gone on in between; what is read is then a part of what was there.
        assert set(rows) <= set(expected)
        assert rows[-10:] == expected[-10:]
        gone = sorted(set(range(600)) - {row[2] for row in rows})
        assert read(levada.bootstrap, topic, gone[0], gone[0] + 1) == []
