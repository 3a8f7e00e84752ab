"""Where a stream goes on, whatever became of its partitions; and how it is written down."""

from __future__ import annotations

import json
from typing import Any

import pytest

from levada.spark.fetch import Range
from levada.spark.following import Following, first, follow, gone
from levada.spark.history import Held, History, NoHistory
from levada.spark.losses import CUT, DELETED, GONE, REPLACED, UNWANTED, DataLost, Lost, below, tell
from levada.spark.offsets import Bounds
from levada.spark.options.topics import Subscribe
from levada.spark.stream_offset import INITIAL, StreamError, StreamOffset, ranges
from levada.spark.subscription import Found
from levada.wire.answers import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
C = TopicPartition("users", 0)


class Kept(NoHistory):
    """A history that holds these offsets of everything."""

    def __init__(self, start: int, end: int, lost: tuple[tuple[int, int], ...] = ()) -> None:
        self._held = Held(start, end, lost)

    def held(self, at: TopicPartition, up_to: int = 0) -> Held | None:
        return self._held


def found(*partitions: TopicPartition, topic_id: str = "1") -> Found:
    return Found(partitions, {"orders": topic_id})


def offset(to: dict[TopicPartition, int], begins: dict[TopicPartition, int] | None = None, **more: Any) -> StreamOffset:
    return StreamOffset(to, begins or {}, {"orders": "1"}, **more)


def follow_on(
    before: StreamOffset, there: Found, bounds: dict[TopicPartition, Bounds], history: History, wanted: str = "orders"
) -> Following:
    return follow(before, Subscribe((wanted,)), there, bounds, history)


def test_partitions_go_on_where_they_were() -> None:
    following = follow_on(offset({A: 5, B: 7}), found(A, B), {A: Bounds(0, 9), B: Bounds(3, 7)}, NoHistory())
    assert following == ({A: 5, B: 7}, {}, ())


def test_a_new_partition_begins_at_0() -> None:
    following = follow_on(offset({A: 5}), found(A, B), {A: Bounds(0, 9), B: Bounds(0, 7)}, NoHistory())
    assert following == ({A: 5, B: 0}, {B: 0}, ())


def test_what_was_deleted_unread_is_lost_to_the_offset() -> None:
    following = follow_on(offset({A: 5}), found(A), {A: Bounds(9, 20)}, NoHistory())
    assert following == ({A: 9}, {A: 9}, (Lost("orders", 0, 5, 9, DELETED),))


def test_what_a_history_holds_is_not_lost() -> None:
    assert follow_on(offset({A: 5}), found(A), {A: Bounds(9, 20)}, Kept(0, 9)) == ({A: 5}, {}, ())
    following = follow_on(offset({A: 5}), found(A), {A: Bounds(9, 20)}, Kept(7, 12))
    assert following == ({A: 7}, {A: 7}, (Lost("orders", 0, 5, 7, DELETED),))


def test_a_hole_between_history_and_log_is_for_the_batch_that_gets_there() -> None:
    assert follow_on(offset({A: 5}), found(A), {A: Bounds(9, 20)}, Kept(0, 7)) == ({A: 5}, {}, ())
    assert below(A, 5, 7, 9, Held(0, 7)) == []
    assert below(A, 5, 20, 9, Held(0, 7)) == [Lost("orders", 0, 7, 9, DELETED)]
    assert below(A, 5, 8, 9, Held(0, 7)) == [Lost("orders", 0, 7, 8, DELETED)]


def test_a_hole_within_a_history_is_lost() -> None:
    held = Held(0, 1005, ((5, 1000), (1002, 1003)))
    assert list(held.stretches()) == [(0, 5), (1000, 1002), (1003, 1005)]

    def lost(begin: int, end: int, start: int = 1005) -> list[tuple[int, int | None]]:
        return [(one.start, one.end) for one in below(A, begin, end, start, held)]

    assert lost(0, 2000) == [(5, 1000), (1002, 1003)]
    assert lost(0, 2000, 1010) == [(5, 1000), (1002, 1003), (1005, 1010)]
    assert lost(0, 5) == [] and lost(0, 6) == [(5, 6)]
    assert lost(700, 900) == [(700, 900)]
    assert lost(999, 1002) == [(999, 1000)]
    assert list(Held(5, 9, ((0, 5), (7, 20))).stretches()) == [(5, 7)]
    following = follow_on(offset({A: 7}), found(A), {A: Bounds(1005, 2000)}, Kept(*held))
    assert following == ({A: 1000}, {A: 1000}, (Lost("orders", 0, 7, 1000, DELETED),))


def test_a_partition_that_is_gone() -> None:
    assert follow_on(offset({A: 5}), Found((), {}), {}, NoHistory()) == ({}, {}, (Lost("orders", 0, 5, None, GONE),))


def test_a_partition_that_is_back_goes_on_where_it_was() -> None:
    nothing = Found((), {})
    assert gone(offset({A: 5, B: 2}), nothing) == {A: 5, B: 2}
    away = offset({}, gone={A: 5})
    assert gone(away, nothing) == {A: 5}
    assert follow_on(away, nothing, {}, NoHistory()) == ({}, {}, ()), "told once"
    bounds = {A: Bounds(0, 9), B: Bounds(3, 4)}
    hole = Lost("orders", 1, 0, 3, DELETED)
    assert follow_on(away, found(A, B), bounds, NoHistory()) == ({A: 5, B: 3}, {A: 5, B: 3}, (hole,))
    assert gone(away, found(A, B)) == {}
    assert follow_on(away, found(A), {A: Bounds(0, 3)}, NoHistory()).lost == (Lost("orders", 0, 3, 5, CUT),)


def test_another_topic_that_comes_back_under_the_name_is_a_new_one() -> None:
    away = offset({}, gone={A: 5})
    assert follow_on(away, found(A, topic_id="2"), {A: Bounds(0, 9)}, NoHistory()) == ({A: 0}, {A: 0}, ())
    assert gone(away, found(topic_id="2")) == {}
    assert follow_on(away, Found((A,), {}), {A: Bounds(0, 9)}, NoHistory()) == ({A: 0}, {A: 0}, ()), "no id, no telling"


def test_a_topic_that_is_no_longer_asked_for_is_told_as_that() -> None:
    following = follow_on(offset({A: 5}), Found((), {}), {}, NoHistory(), wanted="users")
    assert following.lost == (Lost("orders", 0, 5, None, UNWANTED),)


def test_a_new_topic_begins_at_its_beginning_wherever_that_is() -> None:
    users = TopicPartition("users", 0)
    bounds = {A: Bounds(0, 9), users: Bounds(40, 50)}
    both = Found((A, users), {"orders": "1", "users": "7"})
    assert follow_on(offset({A: 5}), both, bounds, NoHistory()) == ({A: 5, users: 40}, {users: 40}, ())
    assert follow_on(offset({A: 5}), both, bounds, Kept(3, 40)) == ({A: 5, users: 3}, {users: 3}, ())


def test_another_topic_of_the_same_name_is_known_by_its_id() -> None:
    following = follow_on(offset({A: 5}), found(A, topic_id="2"), {A: Bounds(0, 900)}, NoHistory())
    assert following == ({A: 0}, {A: 0}, (Lost("orders", 0, 5, None, REPLACED),))


def test_a_log_that_was_cut_back_is_read_on_from_its_end() -> None:
    following = follow_on(offset({A: 5}), found(A), {A: Bounds(0, 3)}, NoHistory())
    assert following == ({A: 3}, {A: 3}, (Lost("orders", 0, 3, 5, CUT),))


def test_a_beginning_before_the_log_moves_behind_what_is_lost() -> None:
    following = first({A: 2, B: 8}, {A: Bounds(5, 9), B: Bounds(5, 9)}, NoHistory())
    assert following == ({A: 5, B: 8}, {A: 5, B: 8}, (Lost("orders", 0, 2, 5, DELETED),))


def test_an_offset_comes_back_as_it_was() -> None:
    told = offset(
        {A: 105, B: 3}, {A: 100}, lost=(Lost("orders", 0, 40, 100, DELETED), Lost("x", 1, 2, None, GONE)), gone={C: 3}
    )
    assert StreamOffset.of_json(json.loads(json.dumps(told.to_json()))) == told
    assert StreamOffset.of_json(INITIAL) is None


@pytest.mark.parametrize(
    "told", [{}, {"orders": {"0": 1}}, {"to": 5}, {"to": {"orders": 1}}, {"to": {"orders": {"x": 1}}}]
)
def test_what_is_no_offset_of_ours_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(StreamError, match="no offset of format levada"):
        StreamOffset.of_json(told)


def test_a_batch_reads_from_the_end_of_the_one_before_it() -> None:
    assert ranges(offset({A: 100}), offset({A: 105})) == [Range("orders", 0, 100, 105)]
    assert ranges(offset({A: 100}), offset({A: 100, B: 4}, {B: 0})) == [Range("orders", 1, 0, 4)]
    assert ranges(offset({A: 100}), offset({A: 105}, {A: 103})) == [Range("orders", 0, 103, 105)]


def test_t1_the_first_batch_reads_what_its_end_says_whatever_the_beginning_is() -> None:
    assert ranges(None, offset({A: 105}, {A: 100})) == [Range("orders", 0, 100, 105)]


def test_a_beginning_after_the_end_fails_instead_of_reading_nothing() -> None:
    with pytest.raises(StreamError, match="orders-0 would be read from offset 900 up to 105"):
        ranges(offset({A: 900}), offset({A: 105}))
    with pytest.raises(StreamError, match="does not say where orders-0 begins"):
        ranges(None, offset({A: 105}))


def test_losses_fail_or_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    lost = [Lost("orders", 0, 40, 100, DELETED), Lost("orders", 1, 7, 8, DELETED), Lost("x", 0, 3, None, GONE)]
    with pytest.raises(DataLost) as error:
        tell(lost, fail=True)
    assert "offsets 40 to 99 of orders-0: they were deleted" in str(error.value)
    assert "failOnDataLoss=false" in str(error.value)
    tell(lost, fail=False)
    assert [record.getMessage() for record in caplog.records] == [
        "lost: offsets 40 to 99 of orders-0: they were deleted before they were read",
        "lost: offset 7 of orders-1: they were deleted before they were read",
        "lost: everything of x-0 from offset 3 on: the topic or the partition was deleted",
    ]
    tell([], fail=True)
