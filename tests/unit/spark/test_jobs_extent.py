"""From where to where, as a person says it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from levada.errors import InvalidRequest, OffsetOutOfRange
from levada.spark.jobs.extent import Moment, Offsets, Where, around, between, placed, size, steadily, where
from levada.spark.losses import DELETED, Lost

STARTS, ENDS = {0: 5, 1: 0}, {0: 20, 1: 8}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("12", 12),
        ('{"0": 7, "1": 3}', {0: 7, 1: 3}),
        ("1970-01-01T00:00:01Z", Moment(1000)),
        ("1970-01-01T01:00:01+01:00", Moment(1000)),
        ("1970-01-01T00:00:01", Moment(1000)),
    ],
)
def test_places_can_be_said_in_five_ways(text: str, meant: Where) -> None:
    assert where(text, "--from") == meant


@pytest.mark.parametrize("text", ["soon", "-3", '{"0": -1}', '{"0": 1.5}', '{"x": 1}', "[1]", "{", '{"0": true}'])
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--from"):
        where(text, "--from")


def test_one_offset_for_all_is_kept_within_what_each_partition_holds() -> None:
    assert placed(10, STARTS, ENDS, "--to") == {0: 10, 1: 8}
    assert placed(1, STARTS, ENDS, "--to") == {0: 5, 1: 1}
    assert placed("earliest", STARTS, ENDS, "--to") == STARTS
    assert placed("latest", STARTS, ENDS, "--to") == ENDS


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ({0: 4, 1: 0}, "partition 0 has no offset 4; 5 to 20 are"),
        ({0: 21, 1: 0}, "partition 0 has no offset 21"),
        ({0: 5}, "no offset is given for partition 1"),
        ({0: 5, 1: 0, 2: 0}, "there is no partition 2; 0 to 1 are"),
    ],
)
def test_offsets_by_partition_must_be_there(offsets: dict[int, int], said: str) -> None:
    with pytest.raises(OffsetOutOfRange, match=said):
        placed(offsets, STARTS, ENDS, "--to")


def test_ranges_are_where_something_lies() -> None:
    assert between(STARTS, {0: 5, 1: 8}) == {1: (0, 8)}
    assert size(between(STARTS, ENDS)) == 23


def test_what_is_not_lost_lies_around_it() -> None:
    def lost(start: int, end: int | None) -> Lost:
        return Lost("orders", 0, start, end, DELETED)

    assert list(around(3, 9, [])) == [(3, 9)]
    assert list(around(3, 9, [lost(3, 5)])) == [(5, 9)]
    assert list(around(3, 9, [lost(4, 5), lost(7, 9)])) == [(3, 4), (5, 7)]
    assert list(around(3, 9, [lost(3, 9)])) == []
    assert list(around(3, 9, [lost(6, None)])) == [(3, 6)]


class Held(NamedTuple):
    starts: Offsets
    log_starts: Offsets


class Moving:
    """A topic whose retention moves on whenever somebody looks, up to an offset."""

    def __init__(self, until: int) -> None:
        self.start, self.until, self.tried = 0, until, list[int]()

    def look(self) -> Held:
        self.start = min(self.start + 1, self.until)
        return Held({0: self.start}, {0: self.start})

    def read(self, held: Held) -> int:
        self.tried.append(held.starts[0])
        if held.starts[0] < self.until:
            raise RuntimeError("offsets were deleted while they were read")
        return held.starts[0]


def test_what_retention_takes_while_it_is_read_is_read_from_where_it_begins_then() -> None:
    moving = Moving(5)
    assert steadily(moving.look, moving.read) == 5
    assert moving.tried == [1, 3, 5]


def test_a_failure_that_has_another_reason_is_one() -> None:
    moving = Moving(1)

    def read(_: Held) -> int:
        moving.tried.append(1)
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        steadily(moving.look, read)
    assert moving.tried == [1]


def test_nobody_reads_for_ever() -> None:
    moving = Moving(10**6)
    with pytest.raises(RuntimeError, match="deleted"):
        steadily(moving.look, moving.read)
    assert len(moving.tried) == 10
