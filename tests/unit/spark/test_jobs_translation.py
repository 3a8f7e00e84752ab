"""Which groups can be placed in a copy, what must be read for that, and what is committed for them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from levada.spark.jobs.translation import Translated, advanced, is_behind, mark, undone
from levada.wire.answers import OffsetAndMetadata

STOOD, STANDS = mark({0: 4}), mark({0: 9})
MARKS = {"a": STANDS, "b": STANDS}


def at(offset: int, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, metadata=metadata)


def test_who_reads_in_the_copy_already_is_not_sent_back() -> None:
    places = [Translated("a", 0, 5, 0), Translated("a", 1, 7, 2), Translated("b", 0, 0, 0)]
    assert advanced(places, {"a": {0: at(9), 1: at(3)}}, MARKS) == {"a": {1: 7}, "b": {0: 0}}


def test_a_group_that_went_back_in_the_source_goes_back_in_the_copy() -> None:
    """An earlier run has placed it, and nobody has read there since: it would skip what it wants to see again."""
    assert advanced([Translated("a", 0, 5, 0)], {"a": {0: at(9, STOOD)}}, MARKS) == {"a": {0: 5}}


def test_a_group_that_stands_where_it_stood_stays_where_it_was_placed() -> None:
    """Also where the source has since lost what would tell its place."""
    assert advanced([Translated("a", 0, 0, 90)], {"a": {0: at(9, STANDS)}}, MARKS) == {}


def test_the_second_time_there_is_nothing_to_commit() -> None:
    places = [Translated("a", 0, 5, 0), Translated("b", 0, 0, 0)]
    moves = advanced(places, {}, MARKS)
    standing = {group: {p: at(offset, MARKS[group]) for p, offset in moved.items()} for group, moved in moves.items()}
    assert advanced(places, standing, MARKS) == {}


def test_a_group_is_behind_where_the_source_has_lost_what_it_has_not_done() -> None:
    begins, ends = {0: 10, 1: 0}, {0: 100, 1: 50}
    assert not is_behind({0: 40, 1: 50}, begins, {0: 40, 1: 0}, ends)
    assert is_behind({0: 39, 1: 50}, begins, {0: 40, 1: 0}, ends)
    assert is_behind({0: 40}, begins, {0: 40, 1: 1}, ends), "it has not committed in 1"
    assert not is_behind({0: 3, 1: 0}, begins, begins, ends), "what was lost before the copy began is not in it"
    assert not is_behind({0: 100, 1: 50}, begins, {0: 200, 1: 60}, ends), "all that was copied is done"


OFFSETS = st.fixed_dictionaries({0: st.integers(0, 30), 1: st.integers(0, 30)})


@given(st.lists(st.dictionaries(st.integers(0, 1), st.integers(0, 40)), max_size=4), OFFSETS, OFFSETS, OFFSETS)
def test_all_that_somebody_has_not_done_is_read(
    groups: list[Mapping[int, int]], begins: Mapping[int, int], lost: Mapping[int, int], sizes: Mapping[int, int]
) -> None:
    starts = {p: begins[p] + lost[p] for p in begins}
    ends = {p: begins[p] + sizes[p] for p in begins}
    placed = [one for one in groups if not is_behind(one, begins, starts, ends)]
    ranges = undone(placed, starts, ends)
    for one in placed:
        for p in begins:
            for offset in range(begins[p], ends[p]):
                if offset >= one.get(p, 0):
                    assert ranges[p][0] <= offset < ranges[p][1], "it was copied, not done, and is still in the source"
    assert all(starts[p] <= first < end == ends[p] for p, (first, end) in ranges.items())
