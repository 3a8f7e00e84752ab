"""The index of aborted transactions."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.errors import DamagedIndex
from levada.log.aborted import ENTRY_SIZE, AbortedIndex, AbortedTransaction, aborted
from levada.log.producers import Completed, Producers
from levada.log.results import Aborted
from support.batches import make_batch, make_marker


def index(*entries: tuple[int, int, int, int]) -> AbortedIndex:
    return AbortedIndex(AbortedTransaction(*entry) for entry in entries)


def test_an_entry_has_kafkas_bytes() -> None:
    entry = AbortedTransaction.of(Completed(7, 10, 20, False, 15))
    assert entry.encode() == struct.pack(">hqqqq", 0, 7, 10, 20, 15)
    assert ENTRY_SIZE == 34


def test_the_file_comes_back_as_it_was_written() -> None:
    written = index((1, 0, 5, 3), (2, 3, 9, 10))
    assert list(AbortedIndex.decode(written.encode())) == list(written)
    assert len(AbortedIndex.decode(b"")) == 0


@pytest.mark.parametrize(
    "data",
    [
        bytes(ENTRY_SIZE - 1),
        struct.pack(">hqqqq", 1, 7, 10, 20, 15),
        struct.pack(">hqqqq", 0, 7, 21, 20, 15),
        struct.pack(">hqqqq", 0, 7, 10, 20, 15) * 2,
    ],
    ids=["cut", "version", "backwards", "out of order"],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedIndex):
        AbortedIndex.decode(data)


def test_truncating_forgets_markers_from_there_on() -> None:
    entries = index((1, 0, 5, 6), (2, 3, 9, 10), (3, 8, 12, 13))
    assert entries.truncate(10) == 2 * ENTRY_SIZE
    assert [entry.last_offset for entry in entries] == [5, 9]
    assert entries.truncate(0) == 0


def test_a_reader_is_told_of_what_overlaps_its_range() -> None:
    entries = index((1, 0, 5, 6), (2, 8, 12, 13))
    assert aborted([entries], 0, 100) == [Aborted(1, 0), Aborted(2, 8)]
    assert aborted([entries], 5, 8) == [Aborted(1, 0)]
    assert aborted([entries], 6, 8) == []
    assert aborted([entries], 12, 13) == [Aborted(2, 8)]


def test_later_segments_are_asked_only_while_they_may_know_more() -> None:
    def later() -> AbortedIndex:
        raise AssertionError("not needed")

    first = index((1, 0, 5, 6))
    assert aborted((one for one in (first,)), 0, 6) == [Aborted(1, 0)]

    def indexes():  # type: ignore[no-untyped-def]
        yield first
        yield later()

    assert aborted(indexes(), 0, 6) == [Aborted(1, 0)]
    with pytest.raises(AssertionError):
        aborted(indexes(), 0, 7)


def test_transactions_come_in_the_order_they_began() -> None:
    assert aborted([index((2, 4, 6, 0)), index((1, 0, 9, 10))], 0, 10) == [Aborted(1, 0), Aborted(2, 4)]


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["write", "commit", "abort"])), max_size=60), st.data())
def test_any_history_is_answered_as_by_looking_at_all_of_it(
    history: list[tuple[int, str]], data: st.DataObject
) -> None:
    producers, indexes, offset = Producers(), [AbortedIndex()], 0
    began: dict[int, int] = {}
    gone: list[tuple[int, int, int]] = []
    for pid, what in history:
        if what == "write":
            batch = make_batch(1, producer_id=pid, sequence=-1, transactional=True)
            began.setdefault(pid, offset)
        else:
            batch = make_marker(producer_id=pid, commit=what == "commit")
        batch.stamp(offset, 0)
        completed = producers.applied(batch, 0)
        if completed is not None:
            first = began.pop(pid)
            if not completed.commit:
                gone.append((pid, first, offset))
                indexes[-1].append(AbortedTransaction.of(completed))
        offset += 1
        if data.draw(st.integers(0, 9)) == 0:
            indexes.append(AbortedIndex())
    stable = min(began.values(), default=offset)
    start = data.draw(st.integers(0, stable))
    end = data.draw(st.integers(start, stable))
    expected = {(pid, first) for pid, first, last in gone if last >= start and first < end}
    # Reading [start, end) may name one more that ends before the range, never one less.
    assert set(aborted(indexes, start, end)) == expected
