"""What is archived next: decisions over numbers, with no broker and no Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.spark.archive.planning import (
    AheadOfLog,
    Held,
    Limits,
    Plan,
    TailCut,
    check_tail,
    in_doubt,
    plan,
)
from levada.spark.fetch import Range

LIMITS = Limits(rows_min=100, delay_s_max=60, task_rows=100, tasks_max=4)


def planned(
    archived: dict[int, int | None],
    log: dict[int, tuple[int, int]],
    *,
    since: dict[int, float] | None = None,
    now: float = 0.0,
    limits: Limits = LIMITS,
    all_there_is: bool = False,
) -> Plan:
    held = {partition: Held(*bounds) for partition, bounds in log.items()}
    return plan("t", archived, held, since or {}, now, limits, all_there_is=all_there_is)


def spans(plans: Plan) -> list[tuple[int, int, int]]:
    return [(one.partition, one.start, one.end) for one in plans.ranges]


def test_a_few_records_wait_for_more() -> None:
    plans = planned({0: 10}, {0: (0, 50)})
    assert (plans.ranges, plans.waiting, plans.since) == ([], 40, {0: 0.0})


def test_enough_records_are_archived_at_once() -> None:
    assert spans(planned({0: 10}, {0: (0, 110)})) == [(0, 10, 110)]


def test_a_few_records_that_waited_long_enough_are_archived() -> None:
    assert spans(planned({0: 10}, {0: (0, 11)}, since={0: 5.0}, now=64.9)) == []
    assert spans(planned({0: 10}, {0: (0, 11)}, since={0: 5.0}, now=65.0)) == [(0, 10, 11)]


def test_all_there_is_waits_for_nothing() -> None:
    plans = planned({0: 10, 1: None, 2: 3}, {0: (0, 11), 1: (4, 6), 2: (0, 3)}, all_there_is=True)
    assert spans(plans) == [(0, 10, 11), (1, 4, 6)]


def test_a_partition_that_is_new_is_archived_from_the_start_of_its_log() -> None:
    plans = planned({0: None}, {0: (7, 300)})
    assert spans(plans)[0][1] == 7
    assert plans.lost == []


def test_what_was_deleted_before_it_was_archived_is_named() -> None:
    plans = planned({0: 10}, {0: (25, 30)})
    assert plans.lost == [Range("t", 0, 10, 25)]
    assert planned({0: 10}, {0: (25, 25)}).lost == [Range("t", 0, 10, 25)]


def test_a_table_that_is_ahead_of_its_log_is_not_of_that_log() -> None:
    with pytest.raises(AheadOfLog, match=r"archived up to offset 31, and its log ends at 30"):
        planned({0: 31}, {0: (0, 30)})


def test_a_tail_is_in_doubt_where_the_leader_epoch_is_another() -> None:
    log = {partition: Held(0, 100) for partition in range(5)}
    archived: dict[int, int | None] = {0: 50, 1: 50, 2: 50, 3: 101, 4: None}
    noted = {0: 7, 1: 7, 3: 7, 4: 7}
    assert in_doubt(archived, log, noted, {0: 7, 1: 8, 2: 8, 3: 8, 4: 8}) == {1: 7, 4: 7}
    assert in_doubt(archived, log, noted, {}) == {}


@pytest.mark.parametrize("end", [-1, 50, 51])
def test_a_tail_that_ends_where_it_is_archived_or_later_is_whole(end: int) -> None:
    check_tail("t", 0, 50, end)


@pytest.mark.parametrize("end", [0, 49])
def test_a_tail_that_was_cut_is_told(end: int) -> None:
    with pytest.raises(TailCut, match=rf"up to offset 50, and its log was cut at {end} .* {end} to 49 of the table"):
        check_tail("t", 0, 50, end)


def test_a_long_range_is_cut_into_equal_parts_and_leaves_no_small_rest() -> None:
    assert [end - start for _, start, end in spans(planned({0: 0}, {0: (0, 301)}))] == [100, 100, 101]


def test_every_partition_has_its_first_turn_before_any_has_its_second() -> None:
    plans = planned({0: 0, 1: 0, 2: 0}, {0: (0, 1000), 1: (0, 200), 2: (0, 100)})
    assert spans(plans) == [(0, 0, 100), (0, 100, 200), (1, 0, 100), (2, 0, 100)]


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 500), st.integers(0, 900)), min_size=1),
    st.integers(1, 200),
    st.integers(1, 9),
)
def test_the_ranges_of_a_partition_go_on_where_its_archive_ends(
    drawn: dict[int, tuple[int, int]], task_rows: int, tasks_max: int
) -> None:
    log = {partition: (0, begin + count) for partition, (begin, count) in drawn.items()}
    archived: dict[int, int | None] = {partition: begin for partition, (begin, _) in drawn.items()}
    limits = Limits(rows_min=1, delay_s_max=0, task_rows=task_rows, tasks_max=tasks_max)
    plans = planned(archived, log, limits=limits)
    assert len(plans.ranges) <= tasks_max
    assert bool(plans.ranges) == any(count for _, count in drawn.values())
    position = dict(archived)
    for one in plans.ranges:
        assert one.start == position[one.partition] < one.end <= log[one.partition][1]
        position[one.partition] = one.end
    assert plans.waiting == sum(count for _, count in drawn.values())
