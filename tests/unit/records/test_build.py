"""From records to a batch."""

import pytest
from aiokafka.record._crecords import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from levada.errors import InvalidRecord, UnsupportedCompression
from levada.records.batch import Batch
from levada.records.build import build, end_marker
from levada.records.read import Record, read
from support.batches import make_record


def built(*args: object, **kwargs: object) -> Batch:
    return Batch(memoryview(build(*args, **kwargs)))  # type: ignore[arg-type]


def test_tuples_get_offsets_and_the_time_of_the_batch() -> None:
    batch = built([(b"a", b"1"), (None, None, [("h", None)])], base_offset=500, timestamp_ms=99)
    assert list(read(batch)) == [Record(500, 99, b"a", b"1"), Record(501, 99, None, None, (("h", None),))]
    batch.check()


def test_records_keep_their_timestamps_and_move_up_to_the_batch() -> None:
    batch = built(
        [make_record(0, timestamp_ms=30), make_record(0, timestamp_ms=10), make_record(9, timestamp_ms=20)],
        base_offset=5,
    )
    assert [(r.offset, r.timestamp_ms) for r in read(batch)] == [(5, 30), (6, 10), (9, 20)]
    assert (batch.base_timestamp, batch.max_timestamp, batch.last_offset) == (30, 30, 9)


@given(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), min_size=1, max_size=8), st.integers(0, 2**45))
def test_the_bytes_are_those_of_other_builders(pairs: list[tuple[bytes, bytes]], timestamp_ms: int) -> None:
    theirs = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=3,
        producer_epoch=1,
        base_sequence=7,
        batch_size=10**6,
    )
    for offset, (key, value) in enumerate(pairs):
        theirs.append(offset, timestamp_ms, key, value, [("h", b"x")])
    ours = build(
        [(key, value, [("h", b"x")]) for key, value in pairs],
        timestamp_ms=timestamp_ms, producer_id=3, producer_epoch=1, base_sequence=7, transactional=True,
    )  # fmt: skip
    assert ours == theirs.build()


def test_records_without_a_timestamp_may_stand_before_others() -> None:
    timestamps = [-1, 50, -1]
    batch = built([make_record(i, timestamp_ms=t) for i, t in enumerate(timestamps)])
    assert [record.timestamp_ms for record in read(batch)] == timestamps


def test_the_buffer_can_be_stamped() -> None:
    batch = built([(b"k", b"v")])
    batch.stamp(12, 3)
    assert [record.offset for record in read(batch)] == [12]


def test_no_records_make_no_batch() -> None:
    with pytest.raises(InvalidRecord):
        build([])


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(UnsupportedCompression):
        build([(b"k", b"v")], codec="lzo")


def test_an_end_marker_has_kafkas_bytes() -> None:
    marker = Batch(
        memoryview(end_marker(commit=True, producer_id=5, producer_epoch=2, coordinator_epoch=9, timestamp_ms=7))
    )
    marker.check()
    assert marker.is_control and marker.is_transactional and marker.size == 78
    assert (marker.base_sequence, marker.record_count, marker.max_timestamp) == (-1, 1, 7)
    assert list(read(marker)) == [Record(0, 7, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x09")]
