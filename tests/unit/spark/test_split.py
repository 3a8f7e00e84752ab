"""Ranges cut into tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levada.spark.fetch import Range
from levada.spark.split import split

sizes = st.lists(st.integers(0, 500), max_size=6)


def make_ranges(held: list[int]) -> list[Range]:
    return [Range("t", partition, 7, 7 + size) for partition, size in enumerate(held)]


def offsets(ranges: list[Range]) -> list[tuple[int, int]]:
    return [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]


@given(sizes, st.none() | st.integers(1, 40), st.none() | st.integers(1, 100))
def test_the_same_offsets_in_the_same_order(held: list[int], parts_min: int | None, offsets_max: int | None) -> None:
    ranges = make_ranges(held)
    parts = split(ranges, parts_min=parts_min, offsets_max=offsets_max)
    assert offsets(parts) == offsets(ranges)
    assert all(one.start < one.end for one in parts)
    if offsets_max:
        assert all(one.end - one.start <= offsets_max for one in parts)


def test_a_partition_is_a_task_unless_more_are_wanted() -> None:
    ranges = make_ranges([100, 100])
    assert split(ranges) == ranges
    assert split(ranges, parts_min=2) == ranges
    assert len(split(ranges, parts_min=8)) == 8


def test_larger_ones_are_cut_into_more() -> None:
    parts = split(make_ranges([300, 100, 1]), parts_min=8)
    counts = [sum(one.partition == partition for one in parts) for partition in range(3)]
    assert counts == [6, 2, 1]


def test_sizes_differ_by_one_at_most() -> None:
    parts = split(make_ranges([10]), offsets_max=4)
    assert [one.end - one.start for one in parts] == [3, 3, 4]
