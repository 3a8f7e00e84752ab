"""Ranges of bytes against a set of bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levada.log.ranges import Ranges

spans = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda span: (span[0], span[0] + span[1]))


@given(st.lists(spans), spans, st.none() | st.integers(0, 80))
def test_ranges_are_a_set_of_bytes(added: list[tuple[int, int]], asked: tuple[int, int], cut: int | None) -> None:
    ranges, model = Ranges(), set()
    for start, end in added:
        ranges.add(start, end)
        model |= set(range(start, end))
    if cut is not None:
        ranges.cut(cut)
        model = {byte for byte in model if byte < cut}
    assert ranges.cover(*asked) == (set(range(*asked)) <= model)
    missing = set(range(*asked)) - model
    gaps = ranges.gaps(*asked)
    assert {byte for gap in gaps for byte in range(*gap)} == missing
    assert all(start < end for start, end in gaps)
