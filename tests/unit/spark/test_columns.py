"""What is decoded is what `levada.records.read` reads, record by record, whatever the batches are like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.errors import CorruptBatch
from levada.records.batch import HEADER, HEADER_SIZE, LENGTH_END, MAGIC, Batch, checksum
from levada.records.build import assemble
from levada.records.compression import CODECS
from levada.records.read import Record, read_all
from levada.spark.columns import COLUMNS, decode, schema_of
from levada.spark.fetch import Fetched
from support.batches import make_batch, make_marker, make_record, payloads, record_lists


def make_piece(
    batches: Iterable[Batch],
    *,
    aborted: Sequence[tuple[int, int]] | None = None,
    from_offset: int = 0,
    to_offset: int = 2**62,
    partition: int = 3,
) -> Fetched:
    data = b"".join(bytes(batch.view) for batch in batches)
    return Fetched(memoryview(data), aborted, from_offset, to_offset, partition)


def decoded(piece: Fetched, columns: Sequence[str] = COLUMNS, **limits: int) -> list[pa.RecordBatch]:
    found = list(decode(piece, columns, topic="orders", **limits))
    for batch in found:
        batch.validate(full=True)
    return found


def records_of(batches: Iterable[pa.RecordBatch]) -> list[Record]:
    return [
        Record(
            row["offset"],
            row["timestamp"].value // 1000,
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for batch in batches
        for row in _rows(batch)
    ]


def _rows(batch: pa.RecordBatch) -> list[dict[str, object]]:
    columns = {name: batch.column(name) for name in batch.schema.names}
    return [
        {name: column[row] if name == "timestamp" else column[row].as_py() for name, column in columns.items()}
        for row in range(batch.num_rows)
    ]


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    """A stretch of a log: batches of all codecs, of transactions and of none, markers, batches that compaction emptied."""
    found, offset = [], draw(st.sampled_from((0, 500, 2**40)))
    for _ in range(draw(st.integers(1, 6))):
        offset += draw(st.integers(0, 3))
        kind = draw(st.sampled_from(("plain", "plain", "transaction", "marker", "empty")))
        producer = draw(st.integers(1, 3))
        if kind == "marker":
            batch = make_marker(commit=draw(st.booleans()), producer_id=producer, base_offset=offset)
        elif kind == "empty":
            batch = Batch(
                memoryview(
                    assemble(
                        [],
                        attributes=0,
                        base_offset=offset,
                        base_timestamp=-1,
                        max_timestamp=-1,
                        last_offset_delta=draw(st.integers(0, 5)),
                        producer=(-1, -1, -1),
                        leader_epoch=0,
                    )
                )
            )
        else:
            batch = make_batch(
                records=draw(record_lists(base_offset=offset)),
                base_offset=offset,
                codec=draw(st.sampled_from(list(CODECS))),
                producer_id=producer if kind == "transaction" else -1,
                transactional=kind == "transaction",
            )
            if draw(st.integers(0, 4)) == 0:
                batch.stamp_append_time(draw(st.integers(0, 2**45)))
        found.append(batch)
        offset = batch.next_offset
    return found


@settings(deadline=None)
@given(st.data())
def test_what_is_decoded_is_what_a_reader_of_records_reads(data: st.DataObject) -> None:
    batches = data.draw(logs())
    first, end = batches[0].base_offset, batches[-1].next_offset
    from_offset = data.draw(st.integers(first, batches[0].last_offset))
    to_offset = data.draw(st.integers(from_offset, end))
    begun = [
        (batch.producer_id, batch.base_offset) for batch in batches if batch.is_transactional and not batch.is_control
    ]
    anywhere = st.tuples(st.integers(1, 3), st.integers(first, end))
    aborted = data.draw(st.none() | st.lists(st.sampled_from(begun) | anywhere if begun else anywhere, max_size=3))
    piece = make_piece(batches, aborted=aborted, from_offset=from_offset, to_offset=to_offset)
    found = decoded(
        piece, rows_max=data.draw(st.integers(1, 9)), bytes_max=data.draw(st.sampled_from((1, 100, 1 << 20)))
    )
    expected = read_all(
        bytes(piece.data), from_offset=from_offset, aborted=aborted or (), committed_only=aborted is not None
    )
    assert records_of(found) == [record for record in expected if record.offset < to_offset]


@settings(deadline=None)
@given(st.data())
def test_a_flipped_byte_is_found(data: st.DataObject) -> None:
    """But for base offset and leader epoch, which the broker stamps and no checksum covers."""
    piece = make_piece(data.draw(logs()))
    place = data.draw(st.integers(0, len(piece.data) - 1))
    start = _start_of_batch(piece.data, place)
    damaged = bytearray(piece.data)
    damaged[place] ^= data.draw(st.integers(1, 255))
    damaged_piece = piece._replace(data=memoryview(bytes(damaged)))
    if 8 <= place - start < 12 or place - start >= 16:
        with pytest.raises(CorruptBatch):
            decoded(damaged_piece)
    elif place - start >= 12:
        assert records_of(decoded(damaged_piece)) == records_of(decoded(piece))
    else:
        try:
            offsets = [record.offset for record in records_of(decoded(damaged_piece))]
        except CorruptBatch:
            return
        assert offsets == sorted(set(offsets))


def _start_of_batch(data: memoryview, place: int) -> int:
    start = 0
    while True:
        end = start + 12 + int.from_bytes(data[start + 8 : start + 12], "big")
        if place < end:
            return start
        start = end


@settings(deadline=None)
@given(st.data())
def test_garbage_under_a_good_checksum_is_an_error_or_what_another_reader_makes_of_it(data: st.DataObject) -> None:
    batch = make_batch(records=data.draw(record_lists()))
    for _ in range(data.draw(st.integers(1, 4))):
        batch.view[data.draw(st.integers(57, batch.size - 1))] = data.draw(st.integers(0, 255))
    batch.stamp_producer(1, 0, 0, transactional=False)
    piece = make_piece([Batch(batch.view)])
    try:
        found = records_of(decoded(piece))
        # It takes a record's attributes for a varint, so it finds more of this broken than is.
        expected = list(read_all(bytes(piece.data)))
    except CorruptBatch:
        return
    assert found == expected


def make_garbage(payload: bytes, *, count: int = 1, last_offset_delta: int = 0) -> Batch:
    """A batch with these bytes for records, under a good checksum."""
    header = (0, HEADER_SIZE - LENGTH_END + len(payload), 0, MAGIC, 0, 0, last_offset_delta, 0, 0, -1, -1, -1, count)
    view = memoryview(bytearray(HEADER.pack(*header) + payload))
    checksum(view)
    return Batch(view)


#: The record without key, value and headers, and what may be wrong with one, in varints: 1 is −1, 2 is 1, 12 is 6.
RECORD = bytes((12, 0, 0, 0, 1, 1, 0))


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        pytest.param(RECORD + b"\0", 1, id="a byte after the last record"),
        pytest.param(RECORD, 2, id="fewer records than it says"),
        pytest.param(RECORD, 0, id="more records than it says"),
        pytest.param(RECORD, -1, id="fewer records than none"),
        pytest.param(RECORD, 2**31 - 1, id="more records than fit"),
        pytest.param(RECORD + RECORD, 2, id="an offset twice"),
        pytest.param(bytes((14, 0, 0, 0, 1, 1, 0)), 1, id="a record longer than the batch"),
        pytest.param(bytes((14, 0, 0, 0, 1, 1, 0, 0)), 1, id="a byte after the headers"),
        pytest.param(bytes((10, 0, 0, 0, 1, 1, 0)), 1, id="a record shorter than any"),
        pytest.param(bytes((11, 0, 0, 0, 1, 1, 0)), 1, id="a record of less than nothing"),
        pytest.param(bytes((12, 0, 0, 2, 1, 1, 0)), 1, id="an offset after the last"),
        pytest.param(bytes((12, 0, 0, 1, 1, 1, 0)), 1, id="an offset before the first"),
        pytest.param(bytes((12, 0, 0, 0, 3, 1, 0)), 1, id="a key of less than nothing"),
        pytest.param(bytes((12, 0, 0, 0, 6, 1, 0)), 1, id="a key longer than the record"),
        pytest.param(bytes((12, 0, 0, 0, 1, 3, 0)), 1, id="a value of less than nothing"),
        pytest.param(bytes((12, 0, 0, 0, 1, 4, 0)), 1, id="a value longer than the record"),
        pytest.param(bytes((12, 0, 0, 0, 1, 1, 1)), 1, id="fewer headers than none"),
        pytest.param(bytes((12, 0, 0, 0, 1, 1, 2)), 1, id="a header that is not there"),
        pytest.param(bytes((30, 0, 0, 0, 1, 1, *[128] * 9, 1)), 1, id="2⁶² headers"),
        pytest.param(bytes((12, 0, 0, 0, 1, 1, 128)), 1, id="a number that does not end"),
        pytest.param(bytes((34, 0, *[255] * 10, 0, 0, 1, 1, 0, 0, 0)), 1, id="a number that is too long"),
        pytest.param(b"", 1, id="nothing"),
    ],
)
def test_what_is_wrong_with_a_record_is_found_whichever_columns_are_wanted(payload: bytes, count: int) -> None:
    for columns in (COLUMNS, ("offset",)):
        with pytest.raises(CorruptBatch, match="orders-3"):
            decoded(make_piece([make_garbage(payload, count=count)]), columns)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((2, 1, 1), id="a header without a key"),
        pytest.param((2, 6, 97, 1), id="a key longer than the record"),
        pytest.param((2, 2, 97, 3), id="a value of less than nothing"),
        pytest.param((2, 2, 97, 4, 0), id="a value longer than the record"),
        pytest.param((2, 2, 97, 1, 0), id="a byte after the last header"),
        pytest.param((4, 2, 97, 1, 2), id="one header of two"),
    ],
)
def test_what_is_wrong_with_a_header_is_found_where_headers_are_wanted(headers: tuple[int, ...]) -> None:
    batch = make_garbage(bytes((2 * (5 + len(headers)), 0, 0, 0, 1, 1, *headers)))
    with pytest.raises(CorruptBatch, match=r"orders-3, reading at offset 0: its headers are not headers"):
        decoded(make_piece([batch]))


def test_the_plainest_record_is_whole() -> None:
    assert records_of(decoded(make_piece([make_garbage(RECORD)]))) == [Record(0, 0, None, None, ())]


def test_an_aborted_transaction_is_left_out_until_its_marker() -> None:
    ours, theirs = ({"producer_id": producer, "transactional": True} for producer in (1, 2))
    log = [
        make_batch(2, **ours),
        make_batch(2, base_offset=2, **theirs),
        make_batch(2, base_offset=4),
        make_batch(2, base_offset=6, producer_id=1),  # not of a transaction
        make_marker(commit=False, producer_id=1, base_offset=8),
        make_batch(1, base_offset=9, **ours),
        make_marker(producer_id=1, base_offset=10),
        make_marker(producer_id=2, base_offset=11),
    ]
    for aborted, expected in (([(1, 0)], [2, 3, 4, 5, 6, 7, 9]), ([], [0, 1, 2, 3, 4, 5, 6, 7, 9])):
        assert [one.offset for one in records_of(decoded(make_piece(log, aborted=aborted)))] == expected
    assert [one.offset for one in records_of(decoded(make_piece(log)))] == [0, 1, 2, 3, 4, 5, 6, 7, 9]


@settings(deadline=None)
@given(st.lists(payloads, min_size=1, max_size=40), st.integers(1, 80))
def test_a_batch_is_cut_where_it_has_enough_bytes(values: list[bytes | None], bytes_max: int) -> None:
    records = [make_record(i, key=None, value=value) for i, value in enumerate(values)]
    found = decoded(make_piece([make_batch(records=records)]), ("value",), bytes_max=bytes_max)
    assert [value for batch in found for value in batch.column("value").to_pylist()] == values
    assert all(batch.num_rows == 1 or batch.column("value").nbytes <= bytes_max + 4 * 81 + 8 for batch in found)


def test_all_columns_have_the_types_of_sparks_kafka_source() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    kafka = StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
            StructField("headers", ArrayType(header)),
        ]
    )
    (batch,) = decoded(make_piece([make_batch(2)]))
    assert batch.schema.equals(to_arrow_schema(kafka, timezone="UTC"), check_metadata=True)
    assert batch.schema.equals(schema_of(COLUMNS), check_metadata=True)


def test_one_record_in_all_columns() -> None:
    record = make_record(7, timestamp_ms=1_700_000_000_123, headers=[("a", b"1"), ("b", None), ("a", b"")])
    (batch,) = decoded(make_piece([make_batch(records=[record], base_offset=7)]))
    (row,) = batch.to_pylist()
    row["timestamp"] = row["timestamp"].timestamp()
    assert row == {
        "key": b"key",
        "value": b"value",
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": 1_700_000_000.123,
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b""}],
    }


def test_a_record_without_headers_has_null_for_them() -> None:
    (batch,) = decoded(make_piece([make_batch(records=[make_record(0), make_record(1, headers=[("a", b"")])])]))
    assert batch.column("headers").to_pylist() == [None, [{"key": "a", "value": b""}]]


def test_the_brokers_clock_is_told_by_the_timestamp_type() -> None:
    appended, created = make_batch(2), make_batch(1, base_offset=2, timestamp_ms=5)
    appended.stamp_append_time(1_234)
    (batch,) = decoded(make_piece([appended, created]), ("timestamp", "timestampType"))
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1_234_000, 1_234_000, 5_000]
    assert batch.column("timestampType").to_pylist() == [1, 1, 0]


def test_only_the_chosen_columns_in_the_order_they_were_chosen() -> None:
    (batch,) = decoded(make_piece([make_batch(2)]), ("offset", "key"))
    assert batch.schema.names == ["offset", "key"]


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(ValueError, match="no column 'offest'"):
        decoded(make_piece([make_batch(1)]), ("offest",))


def test_nothing_fetched_is_no_batch_at_all() -> None:
    assert decoded(make_piece([])) == []
    assert decoded(make_piece([make_marker()])) == []


def test_slices_have_at_most_so_many_rows() -> None:
    piece = make_piece([make_batch(50), make_batch(50, base_offset=50, codec="zstd")])
    assert [batch.num_rows for batch in decoded(piece, rows_max=40)] == [40, 40, 20]


def test_more_is_unpacked_than_fits_into_one_buffer_at_once() -> None:
    value = b"x" * (5 << 20)
    batches = [make_batch(1, base_offset=i, codec="zstd", value=value) for i in range(14)]
    found = decoded(make_piece(batches), ("offset", "value"))
    assert len(found) > 1
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(range(14))
    assert all(value.startswith(b"x") and len(value) > 5 << 20 for batch in found for value in batch[1].to_pylist())


def test_a_corrupt_batch_is_named_with_its_partition_and_offset() -> None:
    second = make_batch(3, base_offset=3)
    second.view[-1] ^= 1
    with pytest.raises(CorruptBatch, match=r"orders-3.*the batch at offset 3"):
        decoded(make_piece([make_batch(3), second]))


def test_a_batch_that_is_cut_short_is_corrupt() -> None:
    piece = make_piece([make_batch(3)])
    with pytest.raises(CorruptBatch, match="cut short"):
        decoded(piece._replace(data=piece.data[:-1]))


def test_a_header_key_that_is_not_utf8_is_corrupt() -> None:
    batch = make_batch(records=[make_record(0), make_record(1, headers=[("abc", b"")])])
    place = bytes(batch.view).index(b"abc")
    batch.view[place] = 0xFF
    batch.stamp_producer(1, 0, 0, transactional=False)
    with pytest.raises(CorruptBatch, match="UTF-8"):
        decoded(make_piece([batch]))
    assert decoded(make_piece([batch]), ("value",))[0].num_rows == 2
