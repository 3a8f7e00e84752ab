"""What stays of a batch under compaction."""

from __future__ import annotations

from levada.log.aborted import AbortedTransaction
from levada.log.cleaner import Cleaner, LastRecord, LatestOffsets, TransactionsPassed
from levada.records.batch import Batch
from levada.records.read import Record, read
from support.batches import make_batch, make_marker

NOW_MS = 1_000_000
RETENTION_MS = 500


def records(base_offset: int, *pairs: tuple[bytes | None, bytes | None]) -> list[Record]:
    return [Record(base_offset + i, 7, key, value) for i, (key, value) in enumerate(pairs)]


def data(base_offset: int, *pairs: tuple[bytes | None, bytes | None], **kwargs: object) -> Batch:
    return make_batch(records=records(base_offset, *pairs), base_offset=base_offset, **kwargs)  # type: ignore[arg-type]


def clean(
    *batches: Batch,
    now_ms: int = NOW_MS,
    dirty_from: int = 0,
    mapped_to: int | None = None,
    place_of: Batch | None = None,
    aborted: list[AbortedTransaction] | None = None,
    last_records: dict[int, LastRecord] | None = None,
) -> list[Batch | None]:
    """Two passes over these batches, as a round makes them; what became of each."""
    mapped_to = batches[-1].next_offset if mapped_to is None else mapped_to
    latest, passed = LatestOffsets(), TransactionsPassed(aborted or [])
    for batch in batches:
        gone = passed.passes(batch)
        if not gone and not batch.is_control and dirty_from <= batch.base_offset < mapped_to:
            for record in read(batch):
                if record.key is not None:
                    latest.add(record.key, record.offset)
    cleaner = Cleaner(
        latest=latest,
        mapped_to=mapped_to,
        transactions=TransactionsPassed(aborted or []),
        last_records=last_records or {},
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
    )
    kept = [cleaner.clean(batch, keeps_place=batch is place_of) for batch in batches]
    return [None if view is None else Batch(memoryview(view)) for view in kept]


def offsets(batch: Batch | None) -> list[int]:
    assert batch is not None
    return [record.offset for record in read(batch)]


# Keys


def test_of_each_key_the_latest_record_stays_at_its_offset() -> None:
    first, second = clean(data(0, (b"a", b"1"), (b"b", b"1"), (b"c", b"1")), data(3, (b"b", b"2"), (b"b", b"3")))
    assert offsets(first) == [0, 2] and offsets(second) == [4]
    assert first is not None and first.last_offset == 2, "the batch still spans its offsets"


def test_a_batch_of_which_all_stays_is_not_touched() -> None:
    batch = data(0, (b"a", b"1"), (b"b", b"1"), codec="zstd")
    cleaned = clean(batch)[0]
    assert cleaned is not None and cleaned.view == batch.view


def test_a_batch_of_which_nothing_stays_goes() -> None:
    assert clean(data(0, (b"a", b"1")), data(1, (b"a", b"2")))[0] is None


def test_records_without_a_key_go() -> None:
    assert offsets(clean(data(0, (None, b"1"), (b"a", b"1")))[0]) == [1]


def test_long_keys_are_told_apart() -> None:
    long = b"x" * 100
    cleaned = clean(
        data(0, (long + b"1", b""), (long + b"2", b""), (b"x" * 15, b""), (b"x" * 16, b"")), data(4, (long + b"1", b""))
    )
    assert offsets(cleaned[0]) == [1, 2, 3]


def test_beyond_the_keys_that_were_read_everything_stays() -> None:
    cleaned = clean(
        data(0, (b"a", b"1")), data(1, (b"a", b"2")), data(2, (b"a", b"3")), data(3, (None, b"")), mapped_to=2
    )
    assert [batch and offsets(batch) for batch in cleaned] == [None, [1], [2], [3]]


def test_the_compacted_part_gives_way_to_the_dirty_part() -> None:
    cleaned = clean(data(0, (b"a", b"1"), (b"b", b"1")), data(2, (b"a", b"2")), dirty_from=2)
    assert offsets(cleaned[0]) == [1]


# Tombstones


def test_a_tombstone_gets_its_horizon_when_it_is_first_compacted() -> None:
    batch = clean(data(0, (b"a", None), (b"b", b"1")))[0]
    assert batch is not None and batch.delete_horizon_ms == NOW_MS + RETENTION_MS
    assert [(r.offset, r.timestamp_ms, r.value) for r in read(batch)] == [(0, 7, None), (1, 7, b"1")]


def test_a_tombstone_goes_once_its_horizon_has_passed_and_not_before() -> None:
    marked = clean(data(0, (b"a", None), (b"b", b"1")))[0]
    assert marked is not None
    horizon_ms = NOW_MS + RETENTION_MS
    assert offsets(clean(marked, now_ms=horizon_ms - 1)[0]) == [0, 1]
    assert offsets(clean(marked, now_ms=horizon_ms)[0]) == [1]


def test_a_later_value_keeps_the_key_and_drops_the_tombstone_at_once() -> None:
    cleaned = clean(data(0, (b"a", None)), data(1, (b"a", b"back")))
    assert cleaned[0] is None and offsets(cleaned[1]) == [1]


def test_a_tombstone_that_was_not_read_yet_gets_no_horizon() -> None:
    batch = data(1, (b"b", None))
    cleaned = clean(data(0, (b"a", b"1")), batch, mapped_to=1)[1]
    assert cleaned is not None and cleaned.delete_horizon_ms is None


# Transactions


def test_committed_records_are_compacted_as_others_and_the_marker_stays_with_them() -> None:
    cleaned = clean(data(0, (b"a", b"1"), (b"b", b"1"), producer_id=1, transactional=True), make_marker(base_offset=2))
    assert offsets(cleaned[0]) == [0, 1]
    assert cleaned[1] is not None and cleaned[1].delete_horizon_ms is None


def test_aborted_records_go_and_hide_nothing() -> None:
    cleaned = clean(
        data(0, (b"a", b"1")),
        data(1, (b"a", b"2"), producer_id=1, transactional=True),
        make_marker(commit=False, base_offset=2),
        aborted=[AbortedTransaction(1, 1, 2, 3)],
    )
    assert offsets(cleaned[0]) == [0] and cleaned[1] is None
    assert cleaned[2] is not None, "its batch was there until now"


def test_an_aborted_transaction_whose_batches_remain_is_still_in_the_index() -> None:
    entry = AbortedTransaction(1, 0, 1, 2)
    passed = TransactionsPassed([entry])
    assert passed.passes(data(0, (b"a", b"1"), producer_id=1, transactional=True))
    assert not passed.passes(make_marker(commit=False, base_offset=1))
    assert passed.kept == [entry]
    gone = TransactionsPassed([entry])
    assert gone.passes(make_marker(commit=False, base_offset=1))
    assert gone.kept == []


def test_a_marker_without_batches_stays_as_long_as_a_tombstone() -> None:
    marked = clean(make_marker(base_offset=5))[0]
    assert marked is not None and marked.delete_horizon_ms == NOW_MS + RETENTION_MS
    assert marked.is_control and marked.record_count == 1
    later = clean(marked, now_ms=NOW_MS + RETENTION_MS - 1)[0]
    assert later is not None and later.view == marked.view
    assert clean(marked, now_ms=NOW_MS + RETENTION_MS)[0] is None


def test_a_marker_past_its_horizon_stays_while_a_batch_of_its_transaction_is_there() -> None:
    marked = clean(make_marker(base_offset=5))[0]
    assert marked is not None
    before = data(4, (b"a", b"1"), producer_id=1, transactional=True)
    assert clean(before, marked, now_ms=NOW_MS * 9)[1] is not None


def test_transactions_of_one_producer_follow_one_another() -> None:
    cleaned = clean(
        data(0, (b"a", b"1"), producer_id=1, transactional=True),
        make_marker(commit=False, base_offset=1),
        data(2, (b"a", b"2"), producer_id=1, transactional=True, sequence=1),
        make_marker(base_offset=3),
        aborted=[AbortedTransaction(1, 0, 1, 2)],
    )
    assert cleaned[0] is None and offsets(cleaned[2]) == [2]


def test_an_aborted_transaction_ends_at_its_marker_also_for_who_begins_behind_it() -> None:
    old, current = AbortedTransaction(1, 0, 1, 2), AbortedTransaction(1, 4, 5, 6)
    passed = TransactionsPassed([old, current])
    assert not passed.passes(data(2, (b"a", b"2"), producer_id=1, transactional=True, sequence=1))
    assert not passed.passes(make_marker(base_offset=3))
    assert passed.passes(data(4, (b"a", b"3"), producer_id=1, transactional=True, sequence=2))
    assert not passed.passes(make_marker(commit=False, base_offset=5))
    assert passed.kept == [current]


# Producers


def test_the_last_batch_of_a_producer_keeps_its_sequence_without_records() -> None:
    batch = data(0, (b"a", b"1"), (b"b", b"1"), producer_id=4, sequence=8)
    emptied = clean(batch, data(2, (b"a", b"2"), (b"b", b"2")), last_records={4: LastRecord(1, 0)})[0]
    assert emptied is not None and emptied.record_count == 0
    assert (emptied.producer_id, emptied.last_sequence, emptied.last_offset) == (4, 9, 1)


def test_an_emptied_batch_goes_once_the_producer_wrote_again_or_was_forgotten() -> None:
    batch = data(0, (b"a", b"1"), producer_id=4)
    follower = data(1, (b"a", b"2"))
    emptied = clean(batch, follower, last_records={4: LastRecord(0, 0)})[0]
    assert emptied is not None
    again = clean(emptied, follower, last_records={4: LastRecord(0, 0)})[0]
    assert again is not None and again.view == emptied.view
    assert clean(emptied, follower, last_records={4: LastRecord(9, 0)})[0] is None
    assert clean(emptied, follower)[0] is None


def test_the_last_marker_of_a_producer_without_data_keeps_its_epoch() -> None:
    marked = clean(make_marker(producer_id=4, producer_epoch=2))[0]
    assert marked is not None
    late = NOW_MS + RETENTION_MS
    emptied = clean(marked, now_ms=late, last_records={4: LastRecord(-1, 2)})[0]
    assert emptied is not None and emptied.record_count == 0 and emptied.producer_epoch == 2
    assert clean(emptied, now_ms=late)[0] is None


def test_an_emptied_batch_of_a_transaction_keeps_its_marker() -> None:
    batch = data(0, (b"a", b"1"), producer_id=4, transactional=True)
    cleaned = clean(
        batch, make_marker(producer_id=4, base_offset=1), data(2, (b"a", b"2")), last_records={4: LastRecord(0, 0)}
    )
    assert cleaned[0] is not None and cleaned[0].record_count == 0
    again = clean(cleaned[0], make_marker(producer_id=4, base_offset=1), last_records={4: LastRecord(0, 0)})
    assert again[1] is not None and again[1].delete_horizon_ms is None


def test_a_batch_keeps_its_place_without_belonging_to_anybody() -> None:
    batch = data(1, (None, b""), producer_id=4, transactional=True)
    emptied = clean(data(0, (b"a", b"1")), batch, place_of=batch)[1]
    assert emptied is not None and (emptied.record_count, emptied.last_offset) == (0, 1)
    assert not emptied.has_producer and not emptied.is_transactional
    again = clean(emptied, place_of=emptied)[0]
    assert again is not None and again.view == emptied.view


def test_a_producers_last_batch_becomes_a_mere_place_when_it_is_not_that_any_more() -> None:
    batch = data(0, (None, b""), producer_id=4)
    emptied = clean(batch, place_of=batch, last_records={4: LastRecord(0, 0)})[0]
    assert emptied is not None and emptied.producer_id == 4
    place = clean(emptied, place_of=emptied)[0]
    assert place is not None and not place.has_producer and place.last_offset == 0
