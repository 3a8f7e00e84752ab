"""From a batch to its records, and what a consumer sees of them."""

import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from levada.errors import CorruptBatch, InvalidRecord, RecordError
from levada.records.batch import HEADER_SIZE, Batch, checksum
from levada.records.build import build
from levada.records.compression import CODECS
from levada.records.read import Marker, Record, read, read_all, read_marker
from support.batches import make_batch, make_marker, make_record, record_lists

EVERY_CODEC = st.sampled_from(sorted(CODECS))


def with_payload(payload: bytes, *, count: int = 1, last_offset_delta: int | None = None) -> Batch:
    """An uncompressed batch of any bytes, with a right checksum."""
    batch = bytearray(make_batch(1).view[:HEADER_SIZE]) + payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = struct.pack(">i", count - 1 if last_offset_delta is None else last_offset_delta)
    batch[57:61] = struct.pack(">i", count)
    checksum(batch)
    return Batch(memoryview(batch))


@given(record_lists(base_offset=50), EVERY_CODEC)
def test_records_come_out_as_they_went_in(records: list[Record], codec: str) -> None:
    assert list(read(Batch(memoryview(build(records, codec=codec, base_offset=50))))) == records


@given(record_lists(base_offset=50), EVERY_CODEC)
def test_kafka_python_reads_the_same_records(records: list[Record], codec: str) -> None:
    theirs = KafkaPythonBatch(bytes(build(records, codec=codec, base_offset=50)))
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == records


def test_append_time_is_every_records_timestamp() -> None:
    batch = make_batch(3)
    batch.stamp_append_time(777)
    assert {record.timestamp_ms for record in read(batch)} == {777}


def test_a_large_batch_is_read_in_every_codec() -> None:
    value = os.urandom(100)
    for codec in CODECS:
        batch = Batch(memoryview(build([(b"k%d" % i, value) for i in range(20_000)], codec=codec)))
        records = list(read(batch))
        assert len(records) == 20_000 and records[-1] == Record(19_999, -1, b"k19999", value)


@settings(max_examples=300)
@given(record_lists(max_size=5), EVERY_CODEC, st.data())
def test_mutated_records_are_refused_or_read_but_never_break_the_reader(
    records: list[Record], codec: str, data: st.DataObject
) -> None:
    batch = build(records, codec=codec)
    for _ in range(data.draw(st.integers(1, 5))):
        position = data.draw(st.integers(21, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    checksum(batch)
    view = Batch(memoryview(batch))
    try:
        found = list(read(view, unpacked_bytes_max=10_000))
    except RecordError:
        return
    assert len(found) == max(view.record_count, 0)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets)) and all(view.base_offset <= o <= view.last_offset for o in offsets)


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(-2, 2**31 - 1))
def test_any_payload_is_refused_or_read(payload: bytes, count: int) -> None:
    batch = with_payload(payload, count=count, last_offset_delta=2**31 - 1)
    try:
        found = list(read(batch))
    except RecordError:
        return
    assert len(found) == max(count, 0)


@given(record_lists(max_size=4), st.data())
def test_every_cut_of_the_records_is_corrupt(records: list[Record], data: st.DataObject) -> None:
    payload = bytes(Batch(memoryview(build(records))).payload)
    cut = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(CorruptBatch):
        list(read(with_payload(payload[:cut], count=len(records), last_offset_delta=2**31 - 1)))


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff" * 40,  # a length without end
        bytes([14, 0, 0, 0, 1, 1, 0, 0]),  # bytes left over
        bytes([12, 0, 0, 0, 1, 1, 2]),  # a header that is not there
        bytes([16, 0, 0, 0, 1, 1, 2, 1, 0]),  # a header without key
        bytes([20, 0, 0, 0, 1, 1, 2, 4, 0xFF, 0xFE, 1]),  # a header key that is not UTF-8
        bytes([14, 0, 0, 2, 1, 1, 0, 0]),
        bytes([12, 0, 0, 2, 1, 1, 0]),  # an offset beyond the batch's last
        bytes([12, 0, 0, 1, 1, 1, 0]),  # an offset before its first
        bytes([34, 0, 0, 0]) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x01\x00",  # a key of 2**63 bytes
    ],
)
def test_broken_records_are_corrupt(payload: bytes) -> None:
    with pytest.raises(CorruptBatch):
        list(read(with_payload(payload)))


def test_a_bomb_is_refused() -> None:
    batch = Batch(memoryview(build([(b"k", bytes(4_000_000))], codec="zstd")))
    with pytest.raises(RecordError):
        list(read(batch, unpacked_bytes_max=1_000_000))


def test_an_empty_batch_has_no_records() -> None:
    assert list(read(with_payload(b"", count=0, last_offset_delta=4))) == []


# What a consumer sees


def transaction_log() -> bytes:
    """a0 b1 · plain2 · abort(a)3 · a4 · commit(b)5 · commit(a)6 · b7"""
    parts = [
        make_batch(1, base_offset=0, producer_id=1, transactional=True),
        make_batch(1, base_offset=1, producer_id=2, transactional=True),
        make_batch(1, base_offset=2),
        make_marker(commit=False, producer_id=1, base_offset=3),
        make_batch(1, base_offset=4, producer_id=1, sequence=1, transactional=True),
        make_marker(producer_id=2, base_offset=5),
        make_marker(producer_id=1, base_offset=6),
        make_batch(1, base_offset=7, producer_id=2, sequence=1, transactional=True),
    ]
    return b"".join(bytes(part.view) for part in parts)


def test_a_consumer_never_sees_control_records() -> None:
    assert [record.offset for record in read_all(transaction_log())] == [0, 1, 2, 4, 7]


def test_read_committed_leaves_out_what_was_aborted_up_to_its_marker() -> None:
    seen = read_all(transaction_log(), aborted=[(1, 0)], committed_only=True)
    assert [record.offset for record in seen] == [1, 2, 4, 7]


def test_aborted_transactions_are_taken_in_any_order() -> None:
    seen = read_all(transaction_log(), aborted=[(2, 7), (1, 0)], committed_only=True)
    assert [record.offset for record in seen] == [1, 2, 4]


def test_records_before_the_offset_asked_for_are_skipped_within_a_batch() -> None:
    buffer = bytes(make_batch(5, base_offset=10).view) + bytes(make_batch(2, base_offset=15).view)
    assert [record.offset for record in read_all(buffer, from_offset=13)] == [13, 14, 15, 16]


def test_a_consumer_does_not_get_records_that_fail_their_checksum() -> None:
    broken = bytearray(make_batch(2).view)
    broken[-1] ^= 1
    with pytest.raises(CorruptBatch):
        list(read_all(broken))


# Markers


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_says_how_the_transaction_ended(commit: bool) -> None:
    assert read_marker(make_marker(commit=commit, coordinator_epoch=8)) == Marker(commit, 8)


def test_a_control_record_of_another_kind_is_no_marker() -> None:
    other = build([(struct.pack(">hh", 0, 2), b"")], producer_id=1, producer_epoch=0, transactional=True, control=True)
    assert read_marker(Batch(memoryview(other))) is None


@pytest.mark.parametrize(
    "record", [make_record(key=b"\x00"), make_record(key=bytes(4), value=b"\x00"), make_record(key=None)]
)
def test_a_broken_marker_is_invalid(record: Record) -> None:
    with pytest.raises(InvalidRecord):
        read_marker(Batch(memoryview(build([record], producer_id=1, producer_epoch=0, control=True))))


def test_a_data_batch_is_no_marker() -> None:
    with pytest.raises(InvalidRecord):
        read_marker(make_batch())
