"""The pure middles of the jobs on static frames, against models of a few lines of Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from levada.routing import ROUTERS, partition_for
from levada.spark.columns.schema import TYPES
from levada.spark.jobs.audit.duplicates import duplicates
from levada.spark.jobs.checksum import fingerprint
from levada.spark.jobs.copying import Pass
from levada.spark.jobs.first import identity, repeats, without
from levada.spark.jobs.frames import RECORD
from levada.spark.jobs.latest import snapshot
from levada.spark.jobs.order import ORDER, cuts, in_order
from levada.spark.jobs.repartitioning import repartitioned
from levada.spark.jobs.replay import replayed
from levada.spark.jobs.routing import home, place
from levada.spark.jobs.topics import Topic
from levada.spark.jobs.translation import translated
from levada.spark.jobs.verification import difference, same, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS = 4


class Row(NamedTuple):
    """A record, in the order of `RECORD`."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    partition: int
    offset: int
    timestamp: datetime


def made(seed: int, count: int = 300, *, holes: bool = True) -> list[Row]:
    """A history: few keys, some of them in several partitions, null and empty keys, tombstones, repeats, times that go back, holes."""
    chance = random.Random(seed)
    ends = dict.fromkeys(range(PARTITIONS), 0)
    rows = []
    for number in range(count):
        key = chance.choice([None, b"", *(f"key-{chance.randrange(25)}".encode() for _ in range(6))])
        partition = (
            chance.randrange(PARTITIONS) if not key or chance.random() < 0.1 else partition_for(key, "murmur2", 4)
        )
        value = None if chance.random() < 0.15 else f"value {chance.randrange(count // 2)}".encode()
        headers = [("message_id", f"{chance.randrange(count)}".encode())] if chance.random() < 0.7 else None
        ends[partition] += chance.choice([1, 1, 1, 3]) if holes else 1
        time = EPOCH + timedelta(milliseconds=number * 100 + chance.randrange(-2000, 2000))
        rows.append(Row(key, value, headers, partition, ends[partition] - 1, time))
    return rows


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """Spark may cut a frame anywhere, and hands its rows on in any order."""
    shuffled = random.Random(1).sample(rows, len(rows))
    columns: list[Any] = [list(column) for column in zip(*shuffled, strict=True)]
    columns[2] = [held and [{"key": key, "value": value} for key, value in held] for held in columns[2]]
    table = pa.Table.from_arrays(
        [pa.array(column, TYPES[name]) for name, column in zip(RECORD, columns, strict=True)], list(RECORD)
    )
    return spark.createDataFrame(table)


def since(rows: list[Row]) -> dict[tuple[int, int], datetime]:
    """The latest timestamp up to each record in its partition."""
    latest: dict[int, datetime] = {}
    found = {}
    for row in sorted(rows, key=lambda one: (one.partition, one.offset)):
        latest[row.partition] = max(row.timestamp, latest.get(row.partition, row.timestamp))
        found[row.partition, row.offset] = latest[row.partition]
    return found


def merged(rows: list[Row]) -> list[Row]:
    """In one order for all partitions."""
    at = since(rows)
    return sorted(rows, key=lambda one: (at[one.partition, one.offset], one.partition, one.offset))


def places(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row.partition, row.offset) for row in rows]


def topic(partitions: int, router: str = "murmur2", keyless: str = "round_robin") -> Topic:
    return Topic("target", None, partitions, router, keyless, {}, {})  # type: ignore[arg-type]


def test_one_order_for_all_partitions_that_leaves_none_of_theirs(spark: SparkSession) -> None:
    rows = made(1)
    found = in_order(frame(spark, rows)).orderBy(*ORDER).collect()
    assert [(row["partition"], row["offset"]) for row in found] == places(merged(rows))
    for partition in range(PARTITIONS):
        offsets = [row["offset"] for row in found if row["partition"] == partition]
        assert offsets == sorted(offsets)


def test_a_later_pass_comes_later_whatever_its_timestamps(spark: SparkSession) -> None:
    rows = made(2)
    middle = {p: max(row.offset for row in rows if row.partition == p) // 2 for p in range(PARTITIONS)}
    passes = {p: (0, middle[p], 10**6) for p in range(PARTITIONS)}
    found = in_order(frame(spark, rows), passes).orderBy(*ORDER).collect()
    first = [row for row in rows if row.offset < middle[row.partition]]
    second = [row for row in rows if row.offset >= middle[row.partition]]
    assert [(row["partition"], row["offset"]) for row in found] == places(merged(first)) + places(merged(second))


def test_batches_follow_one_another_in_that_order(spark: SparkSession) -> None:
    """Also where a pass is gone on with in its middle."""
    rows = made(3)
    ends = {p: 1 + max(row.offset for row in rows if row.partition == p) for p in range(PARTITIONS)}
    starts = dict.fromkeys(range(PARTITIONS), 0)
    narrow = frame(spark, rows).select("partition", "offset", "timestamp").cache()
    whole = list(cuts(narrow, Pass(starts, starts, ends), 70))
    resumed = list(cuts(narrow, Pass(starts, whole[0].ends, ends), 90))
    (rest,) = cuts(narrow, Pass(starts, whole[1].ends, ends), 1000)
    narrow.unpersist()
    assert len(whole) > 3 and len(resumed) > 1
    order = {at: number for number, at in enumerate(places(merged(rows)))}
    for planned, position in ((whole, starts), (resumed, whole[0].ends), ([rest], whole[1].ends)):
        done = [row for row in rows if row.offset < position[row.partition]]
        for cut in planned:
            batch = [row for row in rows if row not in done and row.offset < cut.ends[row.partition]]
            numbers = [order[row.partition, row.offset] for row in done + batch]
            assert sorted(numbers) == list(range(len(numbers))), "all before the next"
            for p in range(PARTITIONS):
                before = [row.timestamp for row in done if row.partition == p]
                assert cut.since_ms.get(p) == (milliseconds(max(before)) if before else None)
            done += batch
        assert len(done) == len(rows)
    second = [row for row in rows if whole[0].ends[row.partition] <= row.offset < whole[1].ends[row.partition]]
    found = in_order(frame(spark, second), since_ms=whole[1].since_ms).orderBy(*ORDER[1:]).collect()
    expected = sorted(places(second), key=order.__getitem__)
    assert [(row["partition"], row["offset"]) for row in found] == expected


def milliseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_keys_are_placed_as_the_broker_places_them(spark: SparkSession, router: str) -> None:
    chance = random.Random(4)
    keys = [None, b"", *(chance.randbytes(chance.randrange(1, 40)) for _ in range(500))]
    found = spark.createDataFrame([(key,) for key in keys], "key BINARY").select("key", home(router, 7).alias("home"))
    expected = {key: partition_for(key, router, 7) if key else None for key in keys}
    assert {None if row["key"] is None else bytes(row["key"]): row["home"] for row in found.collect()} == expected


@pytest.mark.parametrize("partitions", [6, 3])
def test_a_repartitioned_batch_is_in_order_at_each_new_partition(spark: SparkSession, partitions: int) -> None:
    rows = made(5)
    found = repartitioned(frame(spark, rows), topic(partitions), {}).collect()
    by_partition: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in found:  # collect() gives the tasks one after the other, as the sink takes them
        by_partition[row["partition"]].append((row["key"] and bytes(row["key"]), row["value"] and bytes(row["value"])))
    expected: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for one in merged(rows):
        expected[_place(one, partitions)].append((one.key, one.value))
    assert by_partition == expected


def _place(row: Row, partitions: int) -> int:
    """As `place` has it."""
    if row.key is None:
        return (row.offset + row.partition) % partitions
    return partition_for(row.key, "murmur2", partitions)


def test_what_has_no_key_goes_to_zero_where_the_topic_says_so(spark: SparkSession) -> None:
    rows = frame(spark, [row for row in made(6) if row.key is None])
    assert {row[0] for row in rows.select(place("murmur2", 5, "zero")).collect()} == {0}
    assert {row[0] for row in rows.select(place("murmur2", 5, "round_robin")).collect()} == set(range(5))


def copied(rows: list[Row], partitions: int) -> list[Row]:
    """The copy: in order at each partition, with a marker after every seventh record."""
    found, counts = [], Counter[int]()
    for row in merged(rows):
        at = _place(row, partitions)
        found.append(row._replace(partition=at, offset=counts[at] + counts[at] // 7))
        counts[at] += 1
    return found


def what(row: Row) -> tuple[Any, ...]:
    return row.key, row.value, row.headers and tuple(row.headers), row.timestamp


@pytest.mark.parametrize("kept", [1.0, 0.6])
def test_no_group_skips_anything_and_none_stands_further_back_than_it_must(spark: SparkSession, kept: float) -> None:
    """Also where the source has been compacted since it was copied."""
    rows, target_partitions = made(7), 6
    copy = copied(rows, target_partitions)
    chance = random.Random(3)
    rows = [row for row in rows if chance.random() < kept]
    ends = {p: 1 + max(row.offset for row in rows if row.partition == p) for p in range(PARTITIONS)}
    committed = {
        "half": {p: end // 2 for p, end in ends.items()},
        "done": dict(ends),
        "only one": {2: ends[2]},
        "new": dict.fromkeys(ends, 0),
    }
    source = frame(spark, rows).withColumn("target", place("murmur2", target_partitions, "round_robin"))
    starts = dict.fromkeys(range(target_partitions), 0)
    found = translated(source, frame(spark, copy), committed, starts, ["behind"])
    assert (len(found.found), found.missing) == ((len(committed) + 1) * target_partitions, {})
    for one in found.found:
        there = sorted((row for row in copy if row.partition == one.partition), key=lambda row: row.offset)
        given = [what(row) for row in there if row.offset >= one.offset]
        if one.group == "behind":
            assert (one.offset, one.repeats) == (0, len(there))
            continue
        here = [row for row in rows if _place(row, target_partitions) == one.partition]
        undone = Counter(what(row) for row in here if row.offset >= committed[one.group].get(row.partition, 0))
        assert undone <= Counter(given), "nothing is skipped"
        assert not given or given[0] in undone, "the first it is given is one it has not done"
        assert one.repeats == len(given) - undone.total()


def test_what_a_group_has_not_done_and_the_copy_lacks_is_told(spark: SparkSession) -> None:
    """Compaction of the copy would take it. Of records that are the same in everything, the last ones are not done."""
    rows = [Row(b"k", value, None, 0, at, EPOCH) for at, value in enumerate([b"same", b"same", b"a", b"b", b"a"])]
    source = frame(spark, rows).withColumn("target", f.lit(0))
    found = translated(source, frame(spark, rows), {"one": {0: 1}, "three": {0: 3}}, {0: 0})
    assert [(one.group, one.offset, one.repeats) for one in found.found] == [("one", 1, 0), ("three", 3, 0)]
    found = translated(source, frame(spark, [*rows[:2], *rows[4:]]), {"one": {0: 1}, "three": {0: 3}}, {0: 0})
    assert found.missing == {"one": 2, "three": 1}


def test_a_fingerprint_tells_what_is_missing_other_or_out_of_order(spark: SparkSession) -> None:
    rows = [row for row in made(8, 80) if row.key]
    copy = copied(rows, 3)
    passes = dict.fromkeys(range(PARTITIONS), (0, 10**6))
    ours, told = same(frame(spark, rows), frame(spark, copy), passes)
    assert (ours.records, told) == (len(rows), "")

    def told_of(rows: list[Row]) -> str:
        return difference(ours, fingerprint(frame(spark, rows), ("partition", "offset")))

    assert "against" in told_of(copy[1:])
    assert "not the same ones" in told_of([row._replace(value=b"") if row.value is None else row for row in copy])
    assert "not the same ones" in told_of([*copy[:-1], copy[0]]), "a record twice, another missing"
    key = Counter(row.key for row in copy).most_common(1)[0][0]
    one, other = [row for row in copy if row.key == key][:2]
    swapped = [row for row in copy if row not in (one, other)]
    swapped += [one._replace(offset=other.offset), other._replace(offset=one.offset)]
    assert "not in the same order" in told_of(swapped)


def test_what_is_left_of_a_source_that_loses_records_is_compared(spark: SparkSession) -> None:
    """Each partition has lost another stretch of its beginning, and some of the rest; a key that lay in two of them is no obstacle."""
    rows = [row for row in made(9, 120) if row.key]
    copy = frame(spark, copied(rows, 3)).persist()
    left = [row for row in rows if row.offset >= 4 + 3 * row.partition and row.offset % 4]
    ours, told = within(frame(spark, left), copy)
    assert (ours.records, told) == (len(left), "")
    stranger = left[0]._replace(value=b"not copied")
    assert within(frame(spark, [stranger, *left[1:]]), copy)[1] == "1 records are not in it"
    at = Counter((row.key, row.partition) for row in left).most_common(1)[0][0]
    one, other = [row for row in left if (row.key, row.partition) == at][:2]
    swapped = [row for row in left if row not in (one, other)]
    swapped += [one._replace(offset=other.offset), other._replace(offset=one.offset)]
    assert within(frame(spark, swapped), copy)[1] == "the records of 1 keys are not in the same order"
    copy.unpersist()


@pytest.mark.parametrize("by", ["id", "payload", "$.n"])
def test_the_first_of_each_identity_stays(spark: SparkSession, by: str) -> None:
    rows = made(10)
    if by == "$.n":
        rows = [row._replace(value=b'{"n": "%d"}' % (at % 40) if at % 5 else b"no json") for at, row in enumerate(rows)]
    kept = without(frame(spark, rows), repeats(frame(spark, rows), identity(by))).collect()
    # In one partition the smaller offset is first; between partitions the earlier timestamp.
    expected = places([row for row in rows if _identity(row, by) is None])
    by_partition: dict[tuple[Any, int], Row] = {}
    for row in sorted(rows, key=lambda one: one.offset):
        by_partition.setdefault((_identity(row, by), row.partition), row)
    firsts: dict[Any, Row] = {}
    for (told, _), row in by_partition.items():
        if told is not None:
            there = firsts.get(told)
            if there is None or (row.timestamp, row.partition) < (there.timestamp, there.partition):
                firsts[told] = row
    expected += [(row.partition, row.offset) for row in firsts.values()]
    assert sorted((row["partition"], row["offset"]) for row in kept) == sorted(expected)
    assert len(kept) < len(rows)


def _identity(row: Row, by: str) -> bytes | None:
    match by:
        case "payload":
            return row.value
        case "key":
            return row.key
        case "$.n":
            return row.value if row.value != b"no json" else None
    return row.headers[-1][1] if row.headers else None


def test_what_an_earlier_pass_has_kept_makes_later_ones_repeats(spark: SparkSession) -> None:
    """Even where the later one's timestamp is the earlier."""
    early, late = EPOCH, EPOCH + timedelta(hours=1)
    rows = [Row(None, b"same", None, 0, 0, late), Row(None, b"same", None, 1, 5, early)]
    found = repeats(frame(spark, rows), identity("payload"), {0: 1, 1: 5}).collect()
    assert [tuple(row) for row in found] == [(1, 5)]
    assert [tuple(row) for row in repeats(frame(spark, rows), identity("payload")).collect()] == [(0, 0)]


def test_a_snapshot_has_the_latest_of_each_key_and_no_tombstones(spark: SparkSession) -> None:
    rows = made(11)
    last: dict[tuple[bytes, int], Row] = {}
    for row in sorted(rows, key=lambda one: one.offset):
        if row.key is not None:
            last[row.key, row.partition] = row
    latest: dict[bytes, Row] = {}
    for (key, _), row in last.items():
        there = latest.get(key)
        if there is None or (row.timestamp, row.partition) > (there.timestamp, there.partition):
            latest[key] = row
    expected = sorted(places([row for row in latest.values() if row.value is not None]))
    found = sorted((row["partition"], row["offset"]) for row in snapshot(frame(spark, rows)).collect())
    assert found == expected
    assert len(expected) < len(latest), "some keys are deleted"


def test_a_replay_keeps_what_it_is_told_to(spark: SparkSession) -> None:
    rows = frame(spark, made(12, 5))
    assert replayed(rows, keep_partitions=False, keep_timestamps=False).columns == ["key", "value", "headers"]
    kept = replayed(rows, keep_partitions=True, keep_timestamps=True).columns
    assert kept == ["key", "value", "headers", "partition", "timestamp"]


def test_repeats_are_counted_and_those_within_the_window_told_apart(spark: SparkSession) -> None:
    rows = made(15)
    counts = Counter(row.value for row in rows if row.value is not None)
    found = duplicates(frame(spark, rows), identity("payload"), None)
    assert (found.told, found.repeats) == (sum(counts.values()), sum(counts.values()) - len(counts))
    assert found.identities == sum(count > 1 for count in counts.values())
    assert found.within_window == 0
    assert found.examples[0].records == max(counts.values())
    near = [Row(b"k", b"near", None, 0, at, EPOCH + timedelta(seconds=at)) for at in range(2)]
    far = [Row(b"k", b"far", None, 0, 9 + at, EPOCH + timedelta(hours=at)) for at in range(2)]
    near.append(near[1]._replace(offset=5, timestamp=EPOCH + timedelta(hours=10)))
    found = duplicates(frame(spark, near + far), identity("payload"), 60_000)
    assert (found.repeats, found.within_window) == (3, 1)
    assert duplicates(frame(spark, near), identity("id"), None).told == 0
