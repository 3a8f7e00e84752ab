"""How much a batch reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levada.spark.admission import Limits, admitted
from levada.wire.answers import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.integers(1, 10**5))
def test_a_limit_is_kept_and_everything_is_read_in_the_end(waiting: list[int], offsets_max: int) -> None:
    begins = {TopicPartition("t", i): 5 for i in range(len(waiting))}
    ends = {TopicPartition("t", i): 5 + size for i, size in enumerate(waiting)}
    to = admitted(begins, ends, Limits(offsets_max), None)
    assert all(begins[at] <= to[at] <= ends[at] for at in begins)
    # Whoever has something gets something: as many more as there are partitions, at most.
    assert sum(to[at] - begins[at] for at in begins) <= offsets_max + len(waiting)
    if sum(waiting):
        assert to != begins, "a batch with nothing in it would be the last"


def test_partitions_share_by_what_they_have() -> None:
    assert admitted({A: 0, B: 100}, {A: 900, B: 200}, Limits(100), None) == {A: 90, B: 110}


def test_no_limit_is_everything() -> None:
    assert admitted({A: 0, B: 100}, {A: 900, B: 200}, Limits(), 0.0) == {A: 900, B: 200}


def test_too_little_waits_until_the_delay_is_over() -> None:
    limits = Limits(offsets_min=10, delay_ms_max=1_000)
    begins, few, enough = {A: 0}, {A: 9}, {A: 10}
    assert admitted(begins, few, limits, 999.0) == begins
    assert admitted(begins, few, limits, 1_000.0) == few
    assert admitted(begins, few, limits, None) == few, "nothing was read yet"
    assert admitted(begins, enough, limits, 0.0) == enough


def test_both_limits() -> None:
    limits = Limits(offsets_max=20, offsets_min=10, delay_ms_max=1_000)
    assert admitted({A: 0}, {A: 5}, limits, 0.0) == {A: 0}
    assert admitted({A: 0}, {A: 15}, limits, 0.0) == {A: 15}
    assert admitted({A: 0}, {A: 50}, limits, 0.0) == {A: 20}
