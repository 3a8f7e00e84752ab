"""A batch as a view over its bytes."""

import pytest
from aiokafka.record._crecords import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from levada.errors import CorruptBatch, InvalidRecord, UnsupportedCompression
from levada.records.batch import HEADER, HEADER_SIZE, Batch, batches, checksum, end_of
from levada.records.build import build
from levada.records.read import Record
from levada.records.rewrite import empty, keep
from support.batches import make_batch, make_marker, record_lists


def rewritten(batch: Batch, field: int, value: int) -> Batch:
    """The batch with one header field changed and the checksum made right again."""
    fields = list(HEADER.unpack_from(batch.view))
    fields[field] = value
    copy = bytearray(batch.view)
    HEADER.pack_into(copy, 0, *fields)
    checksum(copy)
    return Batch(memoryview(copy))


def test_every_header_field_is_read() -> None:
    batch = make_batch(
        3,
        base_offset=70,
        codec="zstd",
        producer_id=9,
        producer_epoch=4,
        sequence=11,
        transactional=True,
        leader_epoch=5,
    )

    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (70, 72, 73)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (9, 4, 11, 13)
    assert (batch.codec, batch.magic, batch.leader_epoch, batch.record_count) == (4, 2, 5, 3)
    assert batch.is_transactional and not batch.is_control and not batch.log_append_time
    assert (batch.base_timestamp, batch.max_timestamp) == (1_700_000_000_000, 1_700_000_000_002)
    assert batch.size == len(batch.view) and batch.delete_horizon_ms is None


def test_a_view_may_extend_beyond_the_batch() -> None:
    batch = make_batch()
    longer = Batch(memoryview(bytes(batch.view) + b"more"))
    assert longer.view == batch.view


@given(record_lists(), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_stamping_moves_the_batch_and_leaves_its_checksum_right(
    records: list[Record], base_offset: int, leader_epoch: int
) -> None:
    batch = Batch(memoryview(build(records)))
    batch.stamp(base_offset, leader_epoch)
    again = Batch(batch.view)
    again.check_crc()
    assert (
        (again.base_offset, again.leader_epoch)
        == (base_offset, leader_epoch)
        == (batch.base_offset, batch.leader_epoch)
    )


def test_stamping_the_append_time_makes_it_every_records_timestamp() -> None:
    batch = make_batch(2)
    batch.stamp_append_time(12345)
    again = Batch(batch.view)
    again.check()
    assert again.log_append_time and again.max_timestamp == 12345


def test_stamping_a_producer_makes_the_batch_its_own_and_can_be_undone() -> None:
    batch = make_batch(2)
    batch.stamp_producer(7, 3, 100, transactional=True)
    again = Batch(batch.view)
    again.check()
    assert (again.producer_id, again.producer_epoch, again.last_sequence, again.is_transactional) == (7, 3, 101, True)
    again.stamp_producer(-1, -1, -1, transactional=False)
    assert again.view == make_batch(2).view


def test_sequences_start_again_after_the_largest() -> None:
    assert make_batch(3, producer_id=1, sequence=2**31 - 2).last_sequence == 0
    assert make_batch(3).last_sequence == -1


@pytest.mark.parametrize("size", [0, 11, 12, HEADER_SIZE - 1, HEADER_SIZE, 80])
def test_a_cut_batch_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        Batch(make_batch().view[:size])


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, HEADER_SIZE - 13, 2**31 - 1])
def test_a_length_that_cannot_be_is_corrupt(length: int) -> None:
    broken = bytearray(make_batch().view)
    broken[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch):
        Batch(memoryview(broken))


@given(record_lists(), st.data())
def test_any_changed_byte_under_the_checksum_is_corrupt(records: list[Record], data: st.DataObject) -> None:
    batch = build(records)
    position = data.draw(st.integers(16, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatch):
        Batch(memoryview(batch)).check_crc()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (12, 0),  # no records
        (12, -1),
        (12, 4),  # more than its offsets span
        (6, 5),  # offsets that span more than its records
        (6, -1),
        (10, -1),  # a producer without an epoch
        (11, -1),  # a producer without a sequence
        (5, 1 << 6),  # a delete horizon
    ],
)
def test_a_header_that_contradicts_itself_is_invalid(field: int, value: int) -> None:
    batch = rewritten(make_batch(3, producer_id=1), field, value)
    with pytest.raises(InvalidRecord):
        batch.check()


def claiming(batch: Batch, count: int) -> Batch:
    """The batch with another number of records in its header."""
    return rewritten(rewritten(batch, 6, count - 1), 12, count)


def test_more_records_than_the_bytes_can_hold_are_invalid() -> None:
    batch = make_batch(3)
    for count in ((batch.size - HEADER_SIZE) // 7 + 1, 2**31 - 1):
        with pytest.raises(InvalidRecord, match=f"{count} records"):
            claiming(batch, count).check()


def test_the_smallest_records_fit() -> None:
    smallest = make_batch(records=[Record(offset, 0, None, None) for offset in range(60)])
    assert smallest.size == HEADER_SIZE + 7 * 60
    smallest.check()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_packed_batch_is_doubtful_when_it_claims_more_than_codecs_do(codec: str) -> None:
    batch = make_batch(3, codec=codec)
    assert not batch.is_doubtful
    assert not make_batch(2000, codec=codec, key=None, value=None).is_doubtful
    assert claiming(batch, 1000).is_doubtful


def test_a_transaction_needs_a_producer() -> None:
    with pytest.raises(InvalidRecord):
        rewritten(make_batch(3), 5, 1 << 4).check()


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(UnsupportedCompression, match="codec 5"):
        rewritten(make_batch(), 5, 5).check()


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_are_invalid_when_sent_and_corrupt_when_stored(magic: int) -> None:
    batch = rewritten(make_batch(), 3, magic)
    with pytest.raises(InvalidRecord, match="format"):
        batch.check()
    with pytest.raises(CorruptBatch):
        batch.check_crc()


def test_a_batch_that_compaction_thinned_out_is_good_when_stored() -> None:
    thinned = keep(make_batch(3), lambda record: record.offset == 1)
    assert thinned is not None
    Batch(memoryview(thinned)).check_crc()
    Batch(memoryview(empty(make_batch(3)))).check_crc()


def test_markers_pass_every_check() -> None:
    make_marker().check()


@given(st.lists(record_lists(max_size=4), min_size=1, max_size=4), st.data())
def test_a_buffer_gives_its_whole_batches_wherever_it_is_cut(groups: list[list[Record]], data: st.DataObject) -> None:
    built = [bytes(build(records)) for records in groups]
    whole = b"".join(built)
    cut = data.draw(st.integers(0, len(whole)))
    fitting = []
    for one in built:
        if len(b"".join([*fitting, one])) > cut:
            break
        fitting.append(one)
    assert [bytes(batch.view) for batch in batches(whole[:cut])] == fitting


def test_a_buffer_with_an_impossible_length_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="byte 0"):
        list(batches(bytes(100)))


@given(record_lists())
def test_other_readers_agree_on_the_checksum_and_the_header(records: list[Record]) -> None:
    built = bytes(build(records, producer_id=5, producer_epoch=1, base_sequence=2, transactional=True))
    theirs, ours = DefaultRecordBatch(built), Batch(memoryview(built))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.next_offset, theirs.max_timestamp, theirs.producer_id, theirs.base_sequence) == (
        ours.base_offset, ours.next_offset, ours.max_timestamp, ours.producer_id, ours.base_sequence,
    )  # fmt: skip


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 10**12))
def test_the_end_of_batches_is_found_without_opening_them(counts: list[int], base_offset: int) -> None:
    data, next_offset = bytearray(), base_offset
    for count in counts:
        data += build([(b"k", b"v")] * count, base_offset=next_offset, timestamp_ms=1)
        next_offset += count
    assert end_of(data) == end_of(memoryview(data)) == next_offset
