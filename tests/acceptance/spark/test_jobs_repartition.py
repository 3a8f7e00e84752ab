"""Scenario 49: `repartition` 4 → 6: per-key order kept, counts equal, groups' offsets translated so that nothing is skipped; run again: no change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from levada.routing import partition_for
from levada.spark.jobs import repartition as job
from levada.spark.jobs.frames import Connection
from levada.spark.jobs.repartitioning import NotTheSame
from levada.spark.jobs.running import Silent
from levada.wire.answers import LATEST, TopicPartition
from support.histories import FIRST_MS, Told, by_key, client_of, consume, contents, produce, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.records.read import Record
    from levada.spark.jobs.running import Teller
    from levada.wire.blocking import BlockingClient
    from support.brokers import Broker
    from support.levada import LevadaBroker

Held = Mapping[int, list["Record"]]

#: A run is a dozen Spark jobs, which on a busy machine take their time.
pytestmark = pytest.mark.timeout(900)


def run(
    spark: SparkSession, client: BlockingClient, broker: Broker, wanted: job.Repartition, teller: Teller | None = None
) -> job.Repartitioned:
    ready = job.prepare(client, wanted)
    return job.repartition(spark, client, Connection.of(broker.bootstrap), ready, teller or Silent())


class Losing(Silent):
    """Has something done when all is copied and nothing compared."""

    def __init__(self, lose: Callable[[], object]) -> None:
        self._lose = lose

    def doing(self, what: str, total: int | None = None) -> None:
        if what.startswith("comparing"):
            self._lose()


def make_history(client: BlockingClient, topic: str, partitions: int = 4) -> None:
    """With null and empty keys, tombstones, headers, a transaction that was aborted and one that was not."""
    client.create_topic(topic, partitions, configs={"retention.ms": "864000000", "segment.bytes": "100000"})
    produce(client, topic, told(140), partitions=partitions)
    produce(client, topic, told(20, 2, first=300), partitions=partitions, transactional_id=topic, abort=True)
    produce(client, topic, told(20, 3, first=360), partitions=partitions, transactional_id=topic)


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


def settings(client: BlockingClient, topic: str) -> dict[str, str | None]:
    """Those that are its own."""
    return {name: one.value for name, one in client.describe_configs(topic).items() if one.source == 1}


def commit(client: BlockingClient, topic: str, groups: Mapping[str, Mapping[int, int]]) -> None:
    for group, offsets in groups.items():
        client.offset_commit(f"{topic}-{group}", {(topic, p): offset for p, offset in offsets.items()})


def test_49_repartition_from_4_to_6(spark: SparkSession, levada: LevadaBroker, topic: str) -> None:
    """And the whole way over, while the source's retention moves on."""
    with client_of(levada.bootstrap) as client:
        make_history(client, topic)
        source = consume(client, topic)
        committed: dict[str, Mapping[int, int]] = {
            "half": {p: held[len(held) // 2].offset for p, held in source.items()},
            "done": ends(client, topic, 4),
            "two": {1: source[1][5].offset, 3: source[3][-1].offset},
        }
        commit(client, topic, committed)
        wanted = job.Repartition(topic=topic, partitions=6, batch_rows=90)
        done = run(spark, client, levada, wanted)

        target = consume(client, done.target)
        assert len(target) == 6
        assert done.batches > 1
        assert done.records == sum(map(len, target.values())) == sum(map(len, source.values())) == 160
        assert contents(target) == contents(source)
        assert by_key(target) == by_key(source)
        for partition, held in target.items():
            assert all(partition_for(record.key, "murmur2", 6) == partition for record in held if record.key)
        assert done.fingerprint is not None and done.fingerprint.records == 160

        def placed() -> dict[str, dict[int, int]]:
            return {group: places(client, f"{topic}-{group}", done.target) for group in committed}

        before = (ends(client, done.target, 6), placed())
        for group, offsets in committed.items():
            assert_nothing_is_skipped(source, target, offsets, before[1][group])
        assert before[1]["done"] == {p: held[-1].offset + 1 if held else 0 for p, held in target.items()}
        again = run(spark, client, levada, wanted)
        assert (again.batches, again.records, again.moved, again.left) == (0, 0, {}, [])
        assert (ends(client, done.target, 6), placed()) == before
        held_settings = settings(client, done.target)
        assert (held_settings["retention.ms"], held_settings["cleanup.policy"]) == ("-1", "delete")

        # The source loses its first records, some of which were not done. What comes later follows, with times that go back; a group
        # goes on in the source, another one goes back, and a third comes too late for what is lost.
        client.delete_records({(topic, 0): source[0][8].offset, (topic, 1): source[1][9].offset})
        late = [one._replace(timestamp_ms=one.timestamp_ms - 20_000) for one in told(40, 9, first=400)]
        produce(client, topic, late, partitions=4)
        moved = {
            "half": {p: held[-1].offset for p, held in source.items()},
            "done": {p: held[len(held) // 2].offset for p, held in source.items()},
            "late": {p: held[1].offset for p, held in source.items()},
        }
        commit(client, topic, moved)
        committed |= moved
        later = run(spark, client, levada, dataclasses.replace(wanted, finish=True))
        assert (later.records, later.finished) == (40, True)
        came = {
            p: [one for one in held if one.offset > source[p][-1].offset] for p, held in consume(client, topic).items()
        }
        source, target = {p: held + came[p] for p, held in source.items()}, consume(client, done.target)
        assert contents(target) == contents(source)
        assert by_key(target) == by_key(source)
        after = placed()
        for group in ("half", "done", "two"):
            assert_nothing_is_skipped(source, target, committed[group], after[group])
        assert after["two"] == before[1]["two"], "it has not moved"
        assert after["late"] == dict.fromkeys(range(6), 0)
        assert settings(client, done.target) == {
            "retention.ms": "864000000",
            "segment.bytes": "100000",
            "levada.router": "murmur2",
        }
        last = run(spark, client, levada, wanted)
        assert (last.finished, last.batches, last.moved, placed()) == (True, 0, {}, after)


def test_fewer_partitions_on_a_real_kafka_and_a_key_that_lay_in_two(
    spark: SparkSession, kafka: Broker, topic: str
) -> None:
    """The topic was expanded after its first records: each key comes out in the order in which it was written."""
    with client_of(kafka.bootstrap) as client:
        client.create_topic(topic, 2, configs={"cleanup.policy": "compact"})
        early = [Told(b"key-%d" % (at % 9), b"%d" % at, (), FIRST_MS + at) for at in range(40)]
        produce(client, topic, early, partitions=2)
        client.create_partitions(topic, 4)
        late = [Told(b"key-%d" % (at % 9), b"%d" % at, (), FIRST_MS + at) for at in range(40, 80)]
        produce(client, topic, late, partitions=4)
        wanted = job.Repartition(topic=topic, partitions=3, into=f"{topic}-small", finish=True)
        ready = job.prepare(client, wanted)
        assert settings(client, f"{topic}-small")["cleanup.policy"] == "delete", (
            "it must not be compacted before it is whole"
        )
        done = job.repartition(spark, client, Connection.of(kafka.bootstrap), ready, Silent())
        target = consume(client, f"{topic}-small")
        assert (done.records, done.finished) == (80, True)
        expected: dict[bytes, list[bytes | None]] = {}
        for one in (*early, *late):
            expected.setdefault(one.key or b"", []).append(one.value)
        assert {key: [value for value, _ in held] for key, held in by_key(target).items()} == expected
        assert settings(client, f"{topic}-small") == {"cleanup.policy": "compact"}


def test_what_others_write_to_the_copy_is_skipped_by_nobody_and_ends_the_copying(
    spark: SparkSession, levada: LevadaBroker, topic: str
) -> None:
    with client_of(levada.bootstrap) as client:
        client.create_topic(topic, 2)
        produce(client, topic, told(30), partitions=2)
        wanted = job.Repartition(topic=topic, partitions=3)
        done = run(spark, client, levada, wanted, Losing(lambda: client.delete_records({(topic, 0): 3})))
        assert done.fingerprint is not None
        assert (done.records, done.fingerprint.records) == (30, 27), "what is left is compared"
        stood = ends(client, done.target, 3)
        # A producer moves over too early, then a group is done with all that there is in the source.
        produce(client, done.target, [Told(b"stranger", b"")], partitions=3)
        commit(client, topic, {"group": ends(client, topic, 2)})
        run(spark, client, levada, wanted)
        at = places(client, f"{topic}-group", done.target)
        assert all(at[p] <= end for p, end in stood.items())
        produce(client, topic, told(5, 2, first=30), partitions=2)
        with pytest.raises(NotTheSame, match="5 records against 6"):
            run(spark, client, levada, wanted)
        assert places(client, f"{topic}-group", done.target) == at
