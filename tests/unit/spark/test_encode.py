"""What is encoded is what `levada.records.read` reads back, row by row, in the partition that `levada.routing` names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge, UnknownPartition, UnknownTopic
from levada.records.batch import HEADER_SIZE, Batch
from levada.records.compression import CODECS, NAMES
from levada.records.read import read
from levada.routing import ROUTERS, partition_for
from levada.spark.columns.schema import TYPES
from levada.spark.sink import encode
from levada.spark.sink.encode import Encoded, Encoder
from levada.spark.sink.rows import Columns
from levada.spark.sink.targets import Target

NOW = 1_700_000_000_000
ALL = Columns(value=1, key=0, headers=2, topic=3, partition=4, timestamp=5)
SCHEMA = pa.schema([(name, TYPES[name]) for name in ("key", "value", "headers", "topic", "partition", "timestamp")])


def make_row(**fields: Any) -> dict[str, Any]:
    return {
        "key": b"k",
        "value": b"v",
        "headers": None,
        "topic": "orders",
        "partition": None,
        "timestamp": None,
        **fields,
    }


def make_rows(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)


def encoded(
    batches: Sequence[pa.RecordBatch], *targets: Target, columns: Columns = ALL, **settings: Any
) -> list[Encoded]:
    known = {target.topic: target for target in targets or (Target("orders", 3),)}
    encoder = Encoder(columns, known.__getitem__, now_ms=lambda: NOW, **settings)
    found = [one for batch in batches for one in encoder.add(batch)]
    return [*found, *encoder.rest()]


def read_back(batches: Sequence[Encoded]) -> list[tuple[str, int, Any]]:
    found = []
    for one in batches:
        batch = Batch(one.data)
        batch.check()
        records = list(read(batch))
        assert [record.offset for record in records] == list(range(one.rows))
        assert batch.base_timestamp == records[0].timestamp_ms
        assert batch.max_timestamp == max(record.timestamp_ms for record in records)
        found += [(one.topic, one.partition, record) for record in records]
    return found


maybe_bytes = st.none() | st.binary(max_size=200)
rows = st.fixed_dictionaries(
    {
        "key": maybe_bytes,
        "value": maybe_bytes,
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": st.text(max_size=9), "value": maybe_bytes}), max_size=3),
        "topic": st.sampled_from(["orders", "users"]),
        "partition": st.none() | st.integers(0, 2),
        "timestamp": st.none() | st.integers(0, 2**50),
    }
)


@settings(max_examples=120, deadline=None)
@given(
    chunks=st.lists(st.lists(rows, max_size=30), max_size=4),
    codec=st.sampled_from(list(CODECS)),
    router=st.sampled_from(list(ROUTERS)),
    bytes_max=st.sampled_from([700, 2_000, 1 << 20]),
    skip=st.integers(0, 3),
)
def test_rows_come_back_as_records_in_order_where_they_belong(chunks, codec, router, bytes_max, skip):
    targets = (Target("orders", 3, router, bytes_max=bytes_max), Target("users", 5, "murmur2", bytes_max=bytes_max))
    filler = [make_row(key=b"not written", headers=[{"key": "x", "value": b"y"}])] * skip
    batches = [make_rows(filler + chunk)[skip:] for chunk in chunks]  # Arrow's slices begin within a buffer
    made = encoded(batches, *targets, codec=codec)
    assert all(len(one.data) <= bytes_max for one in made)
    written: dict[tuple[str, int], list[Any]] = {}
    for topic, partition, record in read_back(made):
        written.setdefault((topic, partition), []).append(record)
    expected: dict[tuple[str, int], list[Any]] = {}
    following = {"orders": 0, "users": 0}
    for row in (row for chunk in chunks for row in chunk):
        target = targets[row["topic"] == "users"]
        if row["partition"] is not None:
            partition = row["partition"]
        elif row["key"]:
            partition = partition_for(row["key"], target.router, target.partitions)
        else:
            partition = following[target.topic] % target.partitions
            following[target.topic] += 1
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        time = NOW if row["timestamp"] is None else row["timestamp"] // 1000
        expected.setdefault((row["topic"], partition), []).append((time, row["key"], row["value"], headers))
    assert {at: [tuple(record)[1:] for record in records] for at, records in written.items()} == expected


@settings(max_examples=200, deadline=None)
@given(keys=st.lists(st.binary(min_size=1, max_size=40), min_size=1), partitions=st.integers(1, 2_000))
@pytest.mark.parametrize("router", list(ROUTERS))
def test_keys_are_routed_as_the_broker_routes_them(router, keys, partitions):
    made = encoded([make_rows([make_row(key=key) for key in keys])], Target("orders", partitions, router))
    assert {(record.key, at) for _, at, record in read_back(made)} == {
        (key, partition_for(key, router, partitions)) for key in keys
    }


@pytest.mark.parametrize(
    ("partitions", "key", "expected"),
    [(3, b"user-123", 1), (3, b"user-456", 0), (12, b"user-123", 7), (12, b"user-456", 0), (12, b"order-123", 6), (12, b"user:1", 3)],
)  # fmt: skip
def test_the_known_vectors_of_the_native_router(partitions, key, expected):
    (one,) = encoded([make_rows([make_row(key=key)])], Target("orders", partitions, "fnv1a64"))
    assert one.partition == expected


def test_rows_without_a_key_are_spread_evenly_from_the_tasks_own_partition_on():
    batches = [make_rows([make_row(key=None), make_row(key=b"")] * 5)] * 2
    made = encoded(batches, Target("orders", 4), keyless_from=6)
    assert {one.partition: one.rows for one in made} == {0: 5, 1: 5, 2: 5, 3: 5}
    (first,) = encoded([make_rows([make_row(key=None)])], Target("orders", 4), keyless_from=6)
    assert first.partition == 2


def test_a_topic_that_keeps_keyless_records_together_gets_them_in_partition_0():
    made = encoded([make_rows([make_row(key=None)] * 9)], Target("orders", 4, keyless="zero"))
    assert [(one.partition, one.rows) for one in made] == [(0, 9)]


@pytest.mark.parametrize("partition", [-1, 3, -(2**31) + 1])
def test_a_partition_that_does_not_exist_is_refused_with_those_that_do(partition):
    with pytest.raises(UnknownPartition, match=rf"partition {partition} of topic 'orders', which has 3: 0 to 2 are"):
        encoded([make_rows([make_row(), make_row(partition=partition)])])


def test_a_record_larger_than_its_topic_takes_is_refused_by_size():
    with pytest.raises(RecordTooLarge, match=r"orders-\d makes a batch of 10\d\d bytes.*max.message.bytes is 1000"):
        encoded([make_rows([make_row(value=b"x" * 1000)])], Target("orders", 3, bytes_max=1000))


def test_the_largest_record_that_fits_is_written():
    overhead = HEADER_SIZE + 2 + 3 + 1 + 1 + 2 + 1
    row = make_row(value=b"x" * (1000 - overhead))
    (one,) = encoded([make_rows([row])], Target("orders", 3, bytes_max=1000))
    assert len(one.data) == 1000
    with pytest.raises(RecordTooLarge):
        encoded([make_rows([make_row(value=row["value"] + b"x")])], Target("orders", 3, bytes_max=1000))


def test_a_record_that_fits_only_when_compressed_is_written():
    (one,) = encoded([make_rows([make_row(value=b"x" * 5000)])], Target("orders", 3, bytes_max=1000), codec="zstd")
    assert read_back([one])[0][2].value == b"x" * 5000


def test_what_compression_makes_larger_is_written_plain():
    (one,) = encoded([make_rows([make_row()])], codec="gzip")
    assert Batch(one.data).codec == CODECS["none"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_in_the_codec_of_their_topic_unless_another_is_asked_for(codec):
    batch = make_rows([make_row(value=b"x" * 500, partition=0)] * 20)
    (by_topic,) = encoded([batch], Target("orders", 3, codec=codec))
    assert NAMES[Batch(by_topic.data).codec] == codec
    (plain,) = encoded([batch], Target("orders", 3, codec=codec), codec="none")
    assert Batch(plain.data).codec == CODECS["none"]


def test_a_row_without_a_topic_is_refused():
    with pytest.raises(UnknownTopic, match="a row has no topic"):
        encoded([make_rows([make_row(topic=None)])])


def test_a_time_before_1970_is_refused():
    with pytest.raises(InvalidTimestamp, match="-1 ms"):
        encoded([make_rows([make_row(timestamp=-1)])])


def test_a_header_without_a_key_is_refused():
    with pytest.raises(InvalidRecord, match="header"):
        encoded([make_rows([make_row(headers=[{"key": None, "value": b"x"}])])])


def test_without_their_columns_keys_headers_and_times_are_left_out():
    batch = make_rows([make_row(headers=[{"key": "h", "value": b"1"}], timestamp=5_000, partition=2)])
    (one,) = encoded([batch], Target("orders", 3), columns=Columns(value=1), topic="orders")
    ((_, _, record),) = read_back([one])
    assert record == (0, NOW, None, b"v", ())


def test_text_is_written_as_utf8_and_wide_offsets_are_read():
    text = pa.RecordBatch.from_pydict({"key": ["ключ", None], "value": ["значение", ""]})
    wide = text.cast(pa.schema([("key", pa.large_string()), ("value", pa.large_binary())]))
    for batch in (text, wide):
        made = encoded([batch], Target("orders", 1), columns=Columns(value=1, key=0), topic="orders")
        assert [(record.key, record.value) for _, _, record in read_back(made)] == [
            ("ключ".encode(), "значение".encode()),
            (None, b""),
        ]


def test_what_waits_is_bounded(monkeypatch):
    monkeypatch.setattr(encode, "PENDING_BYTES_MAX", 10_000)
    encoder = Encoder(Columns(value=1, key=0), lambda topic: Target(topic, 50), topic="orders")
    handed_out = 0
    for _ in range(50):
        batch = make_rows([make_row(key=b"%d" % n, value=b"x" * 20) for n in range(200)])
        handed_out += sum(one.rows for one in encoder.add(batch))
        assert sum(len(draft.out) for draft in encoder._drafts) < 50 * (16 << 10) + 20_000
    assert handed_out + sum(one.rows for one in encoder.rest()) == 50 * 200
