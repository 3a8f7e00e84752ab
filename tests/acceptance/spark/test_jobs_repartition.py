"""Scenario 49: `repartition` 4 → 6: per-key order kept, counts equal, groups' offsets translated so that nothing is skipped; run again: no change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from levada.routing import partition_for
from levada.spark.jobs import repartition as job
from levada.spark.jobs.frames import Connection
from levada.spark.jobs.running import Silent
from levada.wire.answers import LATEST, TopicPartition
from support.histories import FIRST_MS, Told, by_key, client_of, consume, contents, produce, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.records.read import Record
    from levada.wire.blocking import BlockingClient
    from support.brokers import Broker
    from support.levada import LevadaBroker

Held = Mapping[int, list["Record"]]

#: A run is a dozen Spark jobs, which on a busy machine take their time.
pytestmark = pytest.mark.timeout(900)


def run(spark: SparkSession, client: BlockingClient, broker: Broker, wanted: job.Repartition) -> job.Repartitioned:
    ready = job.prepare(client, wanted)
    return job.repartition(spark, client, Connection.of(broker.bootstrap), ready, Silent())


def make_history(client: BlockingClient, topic: str, partitions: int = 4) -> None:
    """With null and empty keys, tombstones, headers, a transaction that was aborted and one that was not."""
    client.create_topic(topic, partitions, configs={"retention.ms": "-1", "segment.bytes": "100000"})
    produce(client, topic, told(300), partitions=partitions)
    produce(client, topic, told(60, 2, first=300), partitions=partitions, transactional_id=topic, abort=True)
    produce(client, topic, told(60, 3, first=360), partitions=partitions, transactional_id=topic)


def what(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.headers, record.timestamp_ms


def assert_nothing_is_skipped(
    source: Held, target: Held, committed: Mapping[int, int], place: Mapping[int, int]
) -> None:
    """What the group did in the source and what it will be given in the target is everything; and it stands no further back than it must."""
    done = [what(record) for p, held in source.items() for record in held if record.offset < committed.get(p, 0)]
    given = [what(record) for p, held in target.items() for record in held if record.offset >= place[p]]
    every = {what(record) for held in source.values() for record in held}
    assert set(done) | set(given) == every
    for partition, held in target.items():
        first = next((record for record in held if record.offset >= place[partition]), None)
        assert first is None or what(first) not in done


def places(client: BlockingClient, group: str, topic: str) -> dict[int, int]:
    return {at.partition: place.offset for at, place in client.offset_fetch(group).items() if at.topic == topic}


def ends(client: BlockingClient, topic: str, partitions: int) -> dict[int, int]:
    at = dict.fromkeys([TopicPartition(topic, partition) for partition in range(partitions)], LATEST)
    return {one.partition: place.offset for one, place in client.list_offsets(at).items()}


def test_49_repartition_from_4_to_6(spark: SparkSession, levada: LevadaBroker, topic: str) -> None:
    with client_of(levada.bootstrap) as client:
        make_history(client, topic)
        source = consume(client, topic)
        committed = {
            "half": {p: held[len(held) // 2].offset for p, held in source.items()},
            "done": ends(client, topic, 4),
            "two": {1: source[1][10].offset, 3: source[3][-1].offset},
        }
        for group, offsets in committed.items():
            client.offset_commit(f"{topic}-{group}", {(topic, p): offset for p, offset in offsets.items()})
        wanted = job.Repartition(topic=topic, partitions=6, batch_rows=150)
        done = run(spark, client, levada, wanted)

        target = consume(client, done.target)
        assert len(target) == 6
        assert done.batches > 1
        assert done.records == sum(map(len, target.values())) == sum(map(len, source.values())) == 360
        assert contents(target) == contents(source)
        assert by_key(target) == by_key(source)
        for partition, held in target.items():
            assert all(partition_for(record.key, "murmur2", 6) == partition for record in held if record.key)
        assert done.fingerprint is not None and done.fingerprint.records == 360
        for group, offsets in committed.items():
            at = places(client, f"{topic}-{group}", done.target)
            assert_nothing_is_skipped(source, target, offsets, at)
        assert places(client, f"{topic}-done", done.target) == {
            p: held[-1].offset + 1 if held else 0 for p, held in target.items()
        }
        own = {name: one.value for name, one in client.describe_configs(done.target).items() if one.source == 1}
        assert own == {"retention.ms": "-1", "segment.bytes": "100000", "levada.router": "murmur2"}

        before = (
            ends(client, done.target, 6),
            {group: places(client, f"{topic}-{group}", done.target) for group in committed},
        )
        again = run(spark, client, levada, wanted)
        assert (again.batches, again.records, again.moved, again.left) == (0, 0, {}, [])
        after = (
            ends(client, done.target, 6),
            {group: places(client, f"{topic}-{group}", done.target) for group in committed},
        )
        assert after == before

        # What comes later follows, with times that go back; and a group that went on in the source goes on in the target.
        produce(
            client,
            topic,
            [one._replace(timestamp_ms=one.timestamp_ms - 20_000) for one in told(40, 9, first=400)],
            partitions=4,
        )
        client.offset_commit(f"{topic}-half", {(topic, p): held[-1].offset for p, held in source.items()})
        later = run(spark, client, levada, wanted)
        source, target = consume(client, topic), consume(client, done.target)
        assert later.records == 40
        assert contents(target) == contents(source)
        assert by_key(target) == by_key(source)
        at = places(client, f"{topic}-half", done.target)
        assert_nothing_is_skipped(source, target, places(client, f"{topic}-half", topic), at)
        assert sum(at.values()) > sum(before[1]["half"].values())


def test_fewer_partitions_on_a_real_kafka_and_a_key_that_lay_in_two(
    spark: SparkSession, kafka: Broker, topic: str
) -> None:
    """The topic was expanded after its first records: each key comes out in the order in which it was written."""
    with client_of(kafka.bootstrap) as client:
        client.create_topic(topic, 2)
        early = [Told(b"key-%d" % (at % 9), b"%d" % at, (), FIRST_MS + at) for at in range(100)]
        produce(client, topic, early, partitions=2)
        client.create_partitions(topic, 4)
        late = [Told(b"key-%d" % (at % 9), b"%d" % at, (), FIRST_MS + at) for at in range(100, 200)]
        produce(client, topic, late, partitions=4)
        done = run(spark, client, kafka, job.Repartition(topic=topic, partitions=3, into=f"{topic}-small"))
        target = consume(client, f"{topic}-small")
        assert done.records == 200
        expected: dict[bytes, list[bytes | None]] = {}
        for one in (*early, *late):
            expected.setdefault(one.key or b"", []).append(one.value)
        assert {key: [value for value, _ in held] for key, held in by_key(target).items()} == expected


def test_a_copy_that_is_not_the_same_moves_nobody(spark: SparkSession, levada: LevadaBroker, topic: str) -> None:
    with client_of(levada.bootstrap) as client:
        client.create_topic(topic, 2)
        produce(client, topic, told(30), partitions=2)
        client.offset_commit(f"{topic}-group", {(topic, 0): 3})
        wanted = job.Repartition(topic=topic, partitions=3)
        ready = job.prepare(client, wanted)
        # Somebody writes to the target between the two.
        produce(client, ready.target.name, [Told(b"stranger", b"")], partitions=3)
        with pytest.raises(job.NotTheSame, match="30 records against 31"):
            job.repartition(spark, client, Connection.of(levada.bootstrap), ready, Silent())
        assert places(client, f"{topic}-group", ready.target.name) == {}
