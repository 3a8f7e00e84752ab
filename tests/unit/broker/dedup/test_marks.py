"""When a record was appended, as far as it can be told."""

from __future__ import annotations

import pytest

from levada.broker.dedup.marks import _NOTES_MAX, Marks
from levada.errors import DamagedIndex


def make(*notes: tuple[int, int]) -> Marks:
    marks = Marks()
    for offset, time_ms in notes:
        marks.note(0, offset, time_ms)
    return marks


def test_a_timestamp_is_believed_as_far_as_the_notes_allow() -> None:
    marks = make((0, 100), (10, 200))
    assert marks.time(0, 5, 150, 900) == 150
    assert marks.time(0, 5, 1, 900) == 100
    assert marks.time(0, 5, 800, 900) == 200
    assert marks.time(0, 10, 1, 900) == 200
    assert marks.time(0, 10, 5_000, 900) == 900
    assert marks.time(1, 10, 300, 900) == 300, "nothing is known of this partition"


def test_a_pause_narrows_both_what_came_before_and_what_comes_after() -> None:
    marks = make((10, 100), (10, 200), (10, 300))
    assert marks.time(0, 9, 5_000, 900) == 100
    assert marks.time(0, 10, 1, 900) == 300


def test_where_the_window_begins() -> None:
    marks = make((0, 100), (10, 200), (20, 300))
    assert [marks.start(0, cutoff) for cutoff in (99, 100, 250, 300)] == [None, 0, 10, 20]
    assert (marks.first(0), marks.first(1)) == (0, None)
    marks.forget_before(250)
    assert (marks.start(0, 250), marks.first(0)) == (10, 10)


def test_what_a_power_cut_took_is_not_spoken_of() -> None:
    marks = make((0, 100), (10, 200), (4, 300))
    assert marks.time(0, 5, 1, 900) == 300


def test_there_are_never_too_many() -> None:
    marks = Marks()
    for number in range(3 * _NOTES_MAX):
        marks.note(0, number, number)
    assert marks.first(0) == 0
    assert marks.time(0, 3 * _NOTES_MAX, 1, 9_999) == 3 * _NOTES_MAX - 1
    assert len(marks.encode().splitlines()) <= _NOTES_MAX + 1


def test_encoding_and_damage() -> None:
    encoded = make((0, 100), (10, 200)).encode()
    again = Marks.decode(encoded)
    assert again.encode() == encoded
    for broken in (encoded[:-1], encoded.replace(b"200", b"201"), b"", b"2" + encoded[1:]):
        with pytest.raises(DamagedIndex):
            Marks.decode(broken)
