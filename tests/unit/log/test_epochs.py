"""Leader epochs of a partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.errors import DamagedIndex
from levada.log.epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for entry in entries:
        made.assign(*entry)
    return made


def test_only_the_first_record_of_an_epoch_is_news() -> None:
    made = LeaderEpochs()
    assert made.latest == -1
    assert made.assign(0, 0)
    assert not made.assign(0, 7)
    assert made.assign(2, 9)
    assert list(made) == [(0, 0), (2, 9)] and made.latest == 2


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    made = epochs((2, 10), (5, 20), (7, 30))
    assert made.end_offset_for(2, 40) == (2, 20)
    assert made.end_offset_for(5, 40) == (5, 30)
    assert made.end_offset_for(7, 40) == (7, 40), "the newest one ends where the log does"
    assert made.end_offset_for(6, 40) == (5, 30), "an epoch without records ended where the one before did"
    assert made.end_offset_for(1, 40) == (1, 10), "of one that is gone, the start of what is left"
    assert made.end_offset_for(8, 40) == (-1, -1)
    assert made.end_offset_for(-1, 40) == (-1, -1)
    assert LeaderEpochs().end_offset_for(0, 0) == (-1, -1)


def test_the_epoch_of_an_offset_is_the_last_that_began_before_it() -> None:
    made = epochs((2, 10), (5, 20))
    assert [made.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 5, 5]


def test_cutting_the_log_forgets_the_epochs_behind_the_cut() -> None:
    made = epochs((0, 0), (1, 10), (2, 20))
    assert not made.truncate(21)
    assert made.truncate(20)
    assert list(made) == [(0, 0), (1, 10)]


def test_trimming_the_log_moves_the_oldest_epoch_up() -> None:
    made = epochs((0, 0), (1, 10), (2, 20))
    assert made.trim(15)
    assert list(made) == [(1, 15), (2, 20)]
    assert not made.trim(15)
    assert not made.trim(3)
    assert made.trim(20)
    assert list(made) == [(2, 20)]


def test_an_epoch_that_contradicts_older_entries_replaces_them() -> None:
    made = epochs((0, 0), (1, 10), (2, 20))
    assert made.assign(3, 10)
    assert list(made) == [(0, 0), (3, 10)]
    assert made.assign(2, 50)
    assert list(made) == [(0, 0), (2, 50)]


def test_the_file_is_kafkas() -> None:
    assert epochs((0, 0), (3, 120)).encode() == b"0\n2\n0 0\n3 120\n"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000))))
def test_whatever_is_assigned_stays_sorted_and_comes_back_from_the_file(entries: list[tuple[int, int]]) -> None:
    made = epochs(*entries)
    listed = list(made)
    assert listed == sorted(listed) and len({e.epoch for e in listed}) == len({e.start_offset for e in listed}) == len(
        made
    )
    assert list(LeaderEpochs.decode(made.encode())) == listed


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 x\n", b"0\n1\n0\n", b"0\n1\n-1 0\n", b"\xff"]
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedIndex):
        LeaderEpochs.decode(data)
