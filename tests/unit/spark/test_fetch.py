"""A range is read to its end, whatever the leader has left of it; against a leader that answers by a list."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import levada.spark.fetch
from levada.errors import ConnectionLost, CorruptBatch
from levada.records.batch import Batch
from levada.spark.fetch import Fetched, Range, RangeLost, fetched
from levada.wire.answers import EARLIEST, OffsetAt
from levada.wire.codes import ErrorCode, refused
from levada.wire.fetch import Fetched as Answer
from levada.wire.retry import ClientConfig
from support.batches import make_batch


class Leader:
    """In place of BlockingClient: a log that answers one batch a Fetch, and notes what it was asked."""

    def __init__(self, *batches: Batch, start: int = 0, end: int | None = None, cut: int = 0) -> None:
        self.config = ClientConfig(timeout_ms=30, backoff_ms=1)
        self.batches = batches
        self.start = start
        self.end = batches[-1].next_offset if end is None else end
        self.cut = cut
        self.asked: list[int] = []
        self.fails = 0

    def __call__(self, **_settings: Any) -> Leader:
        return self

    def close(self) -> None:
        pass

    def begin_fetch(self, _at: Any, offset: int, **_limits: Any) -> int:
        self.asked.append(offset)
        return offset

    def end_fetch(self, ahead: int) -> Answer:
        if self.fails:
            self.fails -= 1
            raise ConnectionLost
        return self._answer(ahead)

    def fetch(self, positions: dict[Any, int], **_limits: Any) -> dict[Any, Answer]:
        return {at: self._answer(offset) for at, offset in positions.items()}

    def _answer(self, offset: int) -> Answer:
        if not self.start <= offset <= self.end:
            raise refused(ErrorCode.OFFSET_OUT_OF_RANGE, "orders-0")
        found = [batch for batch in self.batches if batch.last_offset >= offset and batch.base_offset < self.end]
        records = b"".join(bytes(batch.view) for batch in found[:2])
        first = found[0].size if found else 0
        return Answer(0, 0, self.end, self.end, self.start, records[: first + self.cut], [])

    def list_offsets(self, wanted: dict[Any, int], **_: Any) -> dict[Any, OffsetAt]:
        return {at: OffsetAt(self.start if when == EARLIEST else self.end) for at, when in wanted.items()}


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> Callable[[Leader], Leader]:
    def by(leader: Leader) -> Leader:
        monkeypatch.setattr(levada.spark.fetch, "BlockingClient", leader)
        return leader

    return by


def pieces(start: int, end: int) -> list[Fetched]:
    return list(fetched({"bootstrap": "x"}, Range("orders", 0, start, end), read_committed=True))


def spans(start: int, end: int) -> list[tuple[int, int]]:
    return [(piece.from_offset, piece.to_offset) for piece in pieces(start, end)]


def three() -> list[Batch]:
    return [make_batch(10, base_offset=base) for base in (0, 10, 20)]


def test_pieces_follow_one_another_to_the_end(led: Any) -> None:
    led(Leader(*three()))
    assert spans(0, 30) == [(0, 10), (10, 20), (20, 30)]
    assert spans(3, 22) == [(3, 10), (10, 20), (20, 22)]
    assert spans(5, 7) == [(5, 7)]


def test_what_is_cut_short_at_the_end_of_an_answer_is_left_for_the_next(led: Any) -> None:
    led(Leader(*three(), cut=80))
    found = pieces(0, 30)
    assert [(piece.from_offset, piece.to_offset) for piece in found] == [(0, 10), (10, 20), (20, 30)]
    assert [bytes(piece.data) for piece in found] == [bytes(batch.view) for batch in three()]


def test_the_next_fetch_is_sent_before_the_last_is_handed_out(led: Any) -> None:
    leader = led(Leader(*three()))
    reading = fetched({"bootstrap": "x"}, Range("orders", 0, 0, 25), read_committed=False)
    next(reading)
    assert leader.asked == [0, 10]
    next(reading)
    assert leader.asked == [0, 10, 20]
    next(reading)
    assert leader.asked == [0, 10, 20]  # nothing is left to be asked for


def test_offsets_that_are_gone_are_not_waited_for(led: Any) -> None:
    led(Leader(make_batch(10), make_batch(10, base_offset=50)))
    assert spans(0, 40) == [(0, 10)]  # the next batch begins after the end
    assert spans(20, 40) == []
    led(Leader(make_batch(10), end=50))
    assert spans(0, 50) == [(0, 10)]  # nothing is left up to where the log ends
    assert spans(20, 30) == []


def test_batches_after_the_end_are_not_handed_out(led: Any) -> None:
    led(Leader(*three(), cut=2**20))
    (piece,) = pieces(0, 10)
    assert bytes(piece.data) == bytes(three()[0].view)


def test_an_empty_range_asks_nobody(led: Any) -> None:
    leader = led(Leader(*three()))
    assert pieces(5, 5) == []
    assert leader.asked == []


def test_a_range_that_ends_before_it_begins_is_an_error(led: Any) -> None:
    led(Leader(*three()))
    with pytest.raises(ValueError, match="begins at 7, after its end 5"):
        pieces(7, 5)


def test_a_connection_lost_on_the_way_is_no_loss(led: Any) -> None:
    leader = led(Leader(*three()))
    leader.fails = 2
    assert spans(0, 30) == [(0, 10), (10, 20), (20, 30)]
    assert leader.fails == 0


def test_what_was_deleted_is_told_exactly(led: Any) -> None:
    leader = led(Leader(*three()))
    reading = fetched({"bootstrap": "x"}, Range("orders", 0, 0, 30), read_committed=True)
    assert next(reading).to_offset == 10
    leader.start = 17
    with pytest.raises(
        RangeLost, match="offsets 10 to 16 of orders-0 are lost: they were deleted; it holds 17 to 29"
    ) as lost:
        next(reading)
    assert lost.value.lost == Range("orders", 0, 10, 17)
    assert spans(lost.value.lost.end, 30) == [(17, 20), (20, 30)]
    again = pickle.loads(pickle.dumps(lost.value))
    assert (again.lost, again.start, again.end, str(again)) == (lost.value.lost, 17, 30, str(lost.value))


def test_all_of_a_range_may_be_deleted(led: Any) -> None:
    led(Leader(*three(), start=20))
    with pytest.raises(RangeLost, match="offsets 5 to 14") as lost:
        pieces(5, 15)
    assert lost.value.lost == Range("orders", 0, 5, 15)


def test_offsets_that_never_come_are_an_error_after_a_while(led: Any) -> None:
    led(Leader(*three()))
    found: list[Fetched] = []
    with pytest.raises(RangeLost, match=r"offsets 30 to 39 .* within 30 ms they could not be read; it holds 0 to 29"):
        found.extend(fetched({"bootstrap": "x"}, Range("orders", 0, 25, 40), read_committed=True))
    assert [piece.to_offset for piece in found] == [30]
    with pytest.raises(RangeLost, match="offsets 35 to 39"):
        pieces(35, 40)


def test_whoever_takes_long_over_a_piece_loses_nothing_by_it(led: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(levada.spark.fetch.time, "monotonic", lambda: clock[0])
    leader = led(Leader(*three(), end=10))
    reading = fetched({"bootstrap": "x"}, Range("orders", 0, 0, 20), read_committed=True)
    next(reading)
    clock[0] += 3600
    answer = leader._answer

    def late(offset: int) -> Answer:
        found = answer(offset)
        leader.end = 30
        return found

    leader._answer = late
    assert next(reading).to_offset == 20


def test_an_answer_from_before_the_offset_is_corrupt(led: Any) -> None:
    leader = led(Leader(*three()))
    leader._answer = lambda _offset: Answer(0, 0, 30, 30, 0, bytes(three()[0].view), [])  # type: ignore[method-assign]
    with pytest.raises(CorruptBatch, match="no whole batch at or after it"):
        pieces(15, 30)
