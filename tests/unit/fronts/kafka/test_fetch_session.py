from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from levada.fronts.kafka.fetch_session import (
    IDLE_S,
    INVALID_EPOCH,
    NOT_FOUND,
    TOPIC_ID_MIX,
    Interest,
    Session,
    Sessions,
)
from levada.fronts.kafka.reading import Row
from levada.wire.fetch import Fetched, FetchRequest


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class FakePartition:
    def __init__(self) -> None:
        self.watchers: list[Any] = []

    def watch(self, waiter: Any) -> None:
        if waiter not in self.watchers:
            self.watchers.append(waiter)

    def unwatch(self, waiter: Any) -> None:
        if waiter in self.watchers:
            self.watchers.remove(waiter)


class Waiting:
    """A Fetch that waits; remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []
        self.hurried = False

    def moved(self, row: Row, bytes_added: int) -> None:
        self.told.append((row.index, bytes_added))

    def hurry(self) -> None:
        self.hurried = True


def request(
    session_id: int = 0, epoch: int = 0, offsets: dict[int, int] | None = None, forgotten: list[int] | None = None
) -> FetchRequest:
    wanted = [(index, -1, offset, -1, -1, 1000) for index, offset in (offsets or {}).items()]
    return FetchRequest(
        -1, 0, 1, 1000, 0, session_id, epoch, [("t", wanted)] if wanted else [], [("t", forgotten or [])], ""
    )


def open_session(sessions: Sessions, *indexes: int) -> Session:
    session = sessions.of(request(offsets=dict.fromkeys(indexes, 0)), by_id=False)
    assert isinstance(session, Session)
    return session


def finish(rows: Any, *, records: bytes = b"", end: int = 0, error: int = 0) -> None:
    """What reading does to rows: all of them end up at the same place."""
    for row in rows:
        row.partition = row.partition or FakePartition()
        row.fetched = Fetched(row.index, error, end, end, 0, records)
        row.at_end = not records and not error


def indexes(rows: Any) -> list[int]:
    return [row.index for row in rows]


def test_a_request_without_a_session_reads_and_tells_everything() -> None:
    sessions = Sessions()
    interest = sessions.of(request(epoch=-1, offsets={0: 5, 1: 6}), by_id=False)
    assert isinstance(interest, Interest) and interest.id == 0
    rows = interest.due()
    assert [(row.index, row.offset) for row in rows] == [(0, 5), (1, 6)]
    assert list(interest.to_tell(rows)) == list(rows)
    assert len(sessions) == 0


def test_a_new_session_tells_everything_once_and_then_only_what_is_new() -> None:
    sessions = Sessions()
    session = open_session(sessions, 0, 1, 2)
    rows = session.due()
    finish(rows, end=7)
    assert indexes(session.to_tell(rows)) == [0, 1, 2]
    again = sessions.of(request(session.id, 1), by_id=False)
    assert again is session
    assert session.due() == []
    session.advanced(rows[1].partition, 10)  # type: ignore[arg-type]
    assert indexes(session.due()) == [1]
    finish(session.due(), records=b"abc", end=9)
    assert indexes(session.to_tell(session.due())) == [1]


def test_a_partition_with_more_to_give_stays_due_and_goes_behind_the_others() -> None:
    session = open_session(Sessions(), 0, 1, 2)
    first, *_ = rows = session.due()
    finish(rows, end=7)
    first.fetched = Fetched(0, 0, 7, 7, 0, b"records")
    first.at_end = False
    assert indexes(session.to_tell(rows)) == [0, 1, 2]
    session.advanced(rows[2].partition, 1)  # type: ignore[arg-type]
    assert indexes(session.due()) == [0, 2]
    finish([first], records=b"more", end=7)
    session.to_tell([first])
    assert indexes(session.due()) == [2, 0]


def test_a_partition_that_did_not_fit_stays_due_without_being_told_of() -> None:
    session = open_session(Sessions(), 0)
    [row] = session.due()
    finish([row], end=7)
    session.to_tell([row])
    session.advanced(row.partition, 1)  # type: ignore[arg-type]
    row.at_end = False
    assert session.to_tell([row]) == []
    assert session.due() == [row]


def test_an_error_is_told_every_time() -> None:
    session = open_session(Sessions(), 0)
    [row] = session.due()
    for _ in range(2):
        finish([row], error=3)
        assert session.to_tell([row]) == [row]
        assert session.due() == [row]
    finish([row], end=4)
    assert session.to_tell([row]) == [row]
    assert session.due() == []


def test_partitions_are_added_moved_and_forgotten() -> None:
    sessions = Sessions()
    session = open_session(sessions, 0, 1)
    rows = session.due()
    finish(rows)
    session.to_tell(rows)
    gone = rows[1].partition
    sessions.of(request(session.id, 1, {0: 50, 2: 0}, forgotten=[1, 9]), by_id=False)
    assert [(row.index, row.offset) for row in session.due()] == [(0, 50), (2, 0)]
    assert gone.watchers == []  # type: ignore[union-attr]
    assert len(session) == 2


def test_a_session_left_with_nothing_ends() -> None:
    sessions = Sessions()
    session = open_session(sessions, 0)
    interest = sessions.of(request(session.id, 1, forgotten=[0]), by_id=False)
    assert isinstance(interest, Interest) and interest.id == 0
    assert len(sessions) == 0


def test_the_epoch_counts_up_and_anything_else_is_refused() -> None:
    sessions = Sessions()
    session = open_session(sessions, 0)
    assert sessions.of(request(session.id, 1), by_id=False) is session
    assert sessions.of(request(session.id, 1), by_id=False) == INVALID_EPOCH
    assert sessions.of(request(session.id, 2), by_id=False) is session
    session.epoch = 2**31 - 1
    assert sessions.of(request(session.id, 2**31 - 1), by_id=False) is session
    assert session.epoch == 1


def test_a_session_nobody_knows_is_not_found() -> None:
    assert Sessions().of(request(77, 3), by_id=False) == NOT_FOUND


def test_names_and_ids_do_not_mix_in_one_session() -> None:
    sessions = Sessions()
    session = open_session(sessions, 0)
    assert sessions.of(request(session.id, 1), by_id=True) == TOPIC_ID_MIX


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_ends_the_session_it_names(epoch: int) -> None:
    sessions = Sessions()
    session = open_session(sessions, 0)
    rows = session.due()
    finish(rows)
    session.to_tell(rows)
    follower = sessions.of(request(session.id, epoch, {0: 0}), by_id=False)
    assert follower is not session
    assert len(sessions) == (1 if epoch == 0 else 0)
    assert session not in rows[0].partition.watchers  # type: ignore[union-attr]


def test_whoever_waits_is_told_what_moves_until_it_waits_no_longer() -> None:
    session = open_session(Sessions(), 0, 1)
    rows = session.due()
    finish(rows)
    session.to_tell(rows)
    waiting = Waiting()
    session.watch(waiting)
    session.advanced(rows[1].partition, 42)  # type: ignore[arg-type]
    session.unwatch()
    session.advanced(rows[0].partition, 7)  # type: ignore[arg-type]
    assert waiting.told == [(1, 42)]
    assert indexes(session.due()) == [1, 0]


def test_a_second_fetch_of_a_session_does_not_leave_the_first_waiting() -> None:
    session = open_session(Sessions(), 0)
    first, second = Waiting(), Waiting()
    session.watch(first)
    session.watch(second)
    assert first.hurried and not second.hurried


def test_a_topic_made_again_is_watched_in_place_of_the_old_one() -> None:
    session = open_session(Sessions(), 0)
    [row] = session.due()
    finish([row])
    session.to_tell([row])
    old, row.partition = row.partition, FakePartition()  # type: ignore[assignment]
    session.to_tell([row])
    assert old.watchers == []  # type: ignore[union-attr]
    assert row.partition.watchers == [session]  # type: ignore[union-attr]


def test_a_session_ends_when_its_connection_goes_in_the_middle_of_a_fetch() -> None:
    sessions = Sessions()
    session = open_session(sessions, 0)
    [row] = session.due()
    finish([row])
    session.to_tell([row])
    session.abandon()
    assert len(sessions) == 0
    assert row.partition.watchers == []  # type: ignore[union-attr]


def test_without_a_free_place_there_is_no_session_until_one_was_idle_for_long() -> None:
    clock = Clock()
    sessions = Sessions(2, clock)
    idle, busy = open_session(sessions, 0), open_session(sessions, 0)
    none = sessions.of(request(offsets={0: 0}), by_id=False)
    assert isinstance(none, Interest) and none.id == 0
    clock.now_s = IDLE_S + 1
    sessions.of(request(busy.id, 1), by_id=False)
    open_session(sessions, 0)
    assert sessions.of(request(idle.id, 1), by_id=False) == NOT_FOUND
    assert sessions.of(request(busy.id, 2), by_id=False) is busy


def test_sessions_that_nobody_uses_for_long_end_and_watch_nothing() -> None:
    clock = Clock()
    sessions = Sessions(10, clock)
    gone, busy, waiting = (open_session(sessions, 0) for _ in range(3))
    [row] = gone.due()
    finish([row])
    gone.to_tell([row])
    waiting.watch(Waiting())
    clock.now_s = IDLE_S + 1
    assert sessions.of(request(busy.id, 1), by_id=False) is busy
    sessions.sweep()
    assert row.partition.watchers == []  # type: ignore[union-attr]
    assert sessions.of(request(gone.id, 1), by_id=False) == NOT_FOUND
    assert sessions.of(request(waiting.id, 1), by_id=False) is waiting
    assert len(sessions) == 2


def test_a_session_whose_connection_went_watches_nothing_and_goes_on_over_another() -> None:
    sessions = Sessions()
    session = open_session(sessions, 0, 1)
    old, new = SimpleNamespace(session=None), SimpleNamespace(session=None)
    session.enter(old)
    rows = session.due()
    finish(rows)
    session.to_tell(rows)
    session.leave(old)
    assert [row.partition.watchers for row in rows] == [[], []]  # type: ignore[union-attr]
    assert sessions.of(request(session.id, 1), by_id=False) is session
    session.enter(new)
    session.enter(old)
    assert session.due() == rows
    finish(rows)
    assert session.to_tell(rows) == []
    session.leave(new)
    assert [row.partition.watchers for row in rows] == [[session], [session]]  # type: ignore[union-attr]
