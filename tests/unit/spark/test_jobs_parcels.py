"""What tasks hand on comes together whole: where keys lie and belong, and what is a repeat, against models of a few lines."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.records.read import Record
from levada.routing import partition_for
from levada.spark.columns import decode
from levada.spark.fetch import Fetched
from levada.spark.jobs.audit import identities, keys
from levada.spark.jobs.audit.figures import Duplicates, Keys
from levada.spark.jobs.audit.parcels import Packing, buckets_for, opened
from levada.spark.jobs.audit.tally import COLUMNS
from levada.spark.jobs.first import identity
from support.batches import make_batch, make_record

PARTITIONS = 4
BUCKETS = 7


def batches(records: Sequence[Record], size: int = 3) -> Iterable[pa.RecordBatch]:
    """As the decoder gives them, a few records at a time."""
    for begin in range(0, len(records), size):
        part = [one._replace(offset=begin + at) for at, one in enumerate(records[begin : begin + size])]
        batch = make_batch(records=part, base_offset=begin)
        piece = Fetched(memoryview(bytes(batch.view)), None, 0, begin + size, 0)
        yield from decode(piece, COLUMNS, topic="orders")


def brought_together(
    held: dict[int, list[Record]], by: str = "payload", window_ms: int | None = None
) -> tuple[Keys, Duplicates]:
    """Partition → records, through tasks, buckets and JSON."""
    told = identity(by)
    rows: dict[int, list[Any]] = defaultdict(list)
    for partition, records in held.items():
        packing = Packing(partition, BUCKETS, told)
        parcels = [one for batch in batches(records) for one in packing.add(batch)] + list(packing.rest())
        for parcel in parcels:
            for bucket, *row in zip(*(column.to_pylist() for column in parcel.columns), strict=True):
                rows[bucket].append(tuple(row))
    summaries = []
    for found in rows.values():
        bucket_ = opened(found)
        both = [keys.summary(bucket_.keys, "murmur2", PARTITIONS), identities.summary(bucket_.identities, window_ms)]
        summaries.append(json.loads(json.dumps(both)))
    return keys.merged(one for one, _ in summaries), identities.merged(told.what, (one for _, one in summaries))


RECORDS = st.builds(
    lambda key, value, time_ms, headers: make_record(key=key, value=value, timestamp_ms=time_ms, headers=headers),
    st.none() | st.sampled_from([b"", *(b"key-%d" % number for number in range(12))]),
    st.none() | st.sampled_from([b"", *(b"value-%d" % number for number in range(9))]),
    st.integers(0, 10_000),
    st.lists(
        st.tuples(st.sampled_from(["message_id", "other"]), st.none() | st.sampled_from([b"", b"1", b"2", b"3"])),
        max_size=3,
    ),
)
HELD = st.dictionaries(st.integers(0, PARTITIONS - 1), st.lists(RECORDS, max_size=12), max_size=PARTITIONS)


@settings(deadline=None)
@given(HELD)
def test_where_keys_lie_and_where_they_belong(held: dict[int, list[Record]]) -> None:
    by_key: dict[bytes, Counter[int]] = defaultdict(Counter)
    for partition, records in held.items():
        for record in records:
            if record.key:
                by_key[record.key][partition] += 1
    found, _ = brought_together(held)
    split = {key: sum(places.values()) for key, places in by_key.items() if len(places) > 1}
    away = {
        key: sum(count for p, count in places.items() if p != partition_for(key, "murmur2", PARTITIONS))
        for key, places in by_key.items()
    }
    assert found.distinct == len(by_key)
    assert (found.split, found.split_records) == (len(split), sum(split.values()))
    assert found.misplaced == sum(count > 0 for count in away.values())
    assert found.misplaced_records == sum(away.values())
    totals = sorted((sum(places.values()) for places in by_key.values()), reverse=True)
    assert [one.records for one in found.largest] == totals[:10]
    assert {one.key for one in found.split_examples} <= set(split)
    for one in found.misplaced_examples:
        assert away[one.key] > 0
        assert one.home == partition_for(one.key, "murmur2", PARTITIONS)


def told_of(record: Record, by: str) -> bytes | None:
    match by:
        case "payload":
            return record.value
        case "key":
            return record.key
    named = [value for name, value in record.headers if name == "message_id"]
    return named[-1] or None if named else None


@settings(deadline=None)
@given(HELD, st.sampled_from(["payload", "key", "id"]), st.none() | st.integers(0, 5_000))
def test_what_is_a_repeat(held: dict[int, list[Record]], by: str, window_ms: int | None) -> None:
    copies: dict[bytes, list[tuple[int, int, int]]] = defaultdict(list)
    for partition, records in held.items():
        for at, record in enumerate(records):
            if (told := told_of(record, by)) is not None:
                copies[told].append((partition, at, record.timestamp_ms))
    _, found = brought_together(held, by, window_ms)
    several = [places for places in copies.values() if len(places) > 1]
    assert found.told == sum(map(len, copies.values()))
    assert (found.identities, found.repeats) == (len(several), sum(len(places) - 1 for places in several))
    times = [sorted(time for *_, time in places) for places in several]
    gaps = [later - earlier for held_at in times for earlier, later in pairwise(held_at)]
    assert found.within_window == (sum(gap <= window_ms for gap in gaps) if window_ms is not None else 0)
    assert sorted(one.records for one in found.examples) == sorted(map(len, several))[-10:]
    ends = {(len(places), min(places)[:2], max(places)[:2]) for places in several}
    assert {(one.records, one.first, one.last) for one in found.examples} <= ends


def test_a_late_copy_does_not_excuse_an_early_one() -> None:
    """At 0 s, 1 s and 10 h: the second is within half an hour of the first, whatever comes later."""
    copies = [Record(at, time_ms, b"k", b"same", ()) for at, time_ms in enumerate([0, 1_000, 36_000_000])]
    _, found = brought_together({0: copies}, "payload", 1_800_000)
    assert (found.repeats, found.within_window) == (2, 1)


def test_a_topic_without_anything() -> None:
    found, repeated = brought_together({0: []})
    assert (found.distinct, repeated.told) == (0, 0)


@pytest.mark.parametrize(("offsets", "buckets"), [(0, 256), (10**6, 256), (10**9, 2000)])
def test_a_bucket_fits_into_memory(offsets: int, buckets: int) -> None:
    assert buckets_for(offsets) == buckets
