"""Batches made from others."""

from hypothesis import given
from hypothesis import strategies as st

from levada.records.batch import Batch
from levada.records.build import build
from levada.records.compression import CODECS
from levada.records.read import Record, read
from levada.records.rewrite import empty, keep, recompress
from support.batches import make_batch, record_lists

EVERY_CODEC = st.sampled_from(sorted(CODECS))


def identity(batch: Batch) -> tuple[int, ...]:
    """What a rewrite must never change."""
    return (
        batch.base_offset, batch.last_offset, batch.leader_epoch, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, batch.last_sequence, batch.is_transactional, batch.is_control, batch.log_append_time,
    )  # fmt: skip


@st.composite
def built_batches(draw: st.DrawFn) -> tuple[Batch, list[Record]]:
    records = draw(record_lists(base_offset=20))
    batch = Batch(
        memoryview(
            build(
                records, codec=draw(EVERY_CODEC), base_offset=20, leader_epoch=3,
                producer_id=5, producer_epoch=1, base_sequence=40, transactional=draw(st.booleans()),
            )
        )
    )  # fmt: skip
    return batch, records


@given(built_batches(), st.data())
def test_keeping_some_records_keeps_their_offsets_and_the_producers_sequence(
    built: tuple[Batch, list[Record]], data: st.DataObject
) -> None:
    batch, records = built
    wanted = {record.offset for record in records if data.draw(st.booleans())}
    kept = keep(batch, lambda record: record.offset in wanted)
    if not wanted:
        assert kept is None
        return
    assert kept is not None
    thinned = Batch(memoryview(kept))
    thinned.check_crc()
    assert identity(thinned) == identity(batch) and thinned.codec == batch.codec
    assert list(read(thinned)) == [record for record in records if record.offset in wanted]
    assert thinned.max_timestamp == max(record.timestamp_ms for record in records if record.offset in wanted)


@given(built_batches())
def test_keeping_all_gives_the_same_bytes(built: tuple[Batch, list[Record]]) -> None:
    assert keep(built[0], lambda record: True) == built[0].view


@given(built_batches(), st.integers(0, 2**45))
def test_a_delete_horizon_takes_the_place_of_the_base_timestamp_and_changes_no_record(
    built: tuple[Batch, list[Record]], horizon_ms: int
) -> None:
    batch, records = built
    kept = keep(batch, lambda record: True, delete_horizon_ms=horizon_ms)
    assert kept is not None
    marked = Batch(memoryview(kept))
    marked.check_crc()
    assert marked.delete_horizon_ms == marked.base_timestamp == horizon_ms
    assert list(read(marked)) == records and identity(marked) == identity(batch)
    assert keep(marked, lambda record: True, delete_horizon_ms=horizon_ms + 1) == kept, "the first horizon stays"
    fewer = keep(marked, lambda record: record is not None and record.offset == records[-1].offset)
    assert fewer is not None and Batch(memoryview(fewer)).delete_horizon_ms == horizon_ms


@given(built_batches())
def test_an_emptied_batch_keeps_its_place(built: tuple[Batch, list[Record]]) -> None:
    batch = built[0]
    emptied = Batch(memoryview(empty(batch)))
    emptied.check_crc()
    assert identity(emptied) == identity(batch) and emptied.max_timestamp == batch.max_timestamp
    assert (emptied.record_count, emptied.codec, emptied.size) == (0, 0, 61)
    assert list(read(emptied)) == []
    nobodys = Batch(memoryview(empty(batch, anonymous=True)))
    nobodys.check_crc()
    assert (nobodys.base_offset, nobodys.last_offset, nobodys.leader_epoch) == (20, batch.last_offset, 3)
    assert not nobodys.has_producer and not nobodys.is_transactional and nobodys.last_sequence == -1


@given(built_batches(), EVERY_CODEC)
def test_another_codec_changes_neither_records_nor_header(built: tuple[Batch, list[Record]], codec: str) -> None:
    batch, records = built
    again = Batch(memoryview(recompress(batch, codec)))
    again.check_crc()
    assert again.codec == CODECS[codec] and identity(again) == identity(batch)
    assert (again.base_timestamp, again.max_timestamp) == (batch.base_timestamp, batch.max_timestamp)
    assert list(read(again)) == records


def test_the_same_codec_gives_the_same_bytes() -> None:
    batch = make_batch(codec="gzip")
    assert recompress(batch, "gzip") == batch.view
    assert recompress(make_batch(), "uncompressed") == make_batch().view


def test_append_time_survives_a_rewrite() -> None:
    batch = make_batch(3)
    batch.stamp_append_time(500)
    kept = keep(batch, lambda record: record.offset == 1)
    assert kept is not None
    assert [(r.offset, r.timestamp_ms) for r in read(Batch(memoryview(kept)))] == [(1, 500)]
