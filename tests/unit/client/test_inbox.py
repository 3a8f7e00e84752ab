"""Inbox, Chunk and Track: what came, what was handed out, what is done with."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.client.chunk import Chunk, Opener
from levada.client.inbox import Inbox
from levada.client.records import At, Record
from levada.client.serializers import BYTES, JSON, Serializer
from levada.client.track import Track
from levada.errors import DamagedLog, InvalidRecord, InvalidRequest, UnknownPartition
from levada.records.build import build

AT = At("t", 0)


class World:
    def __init__(self, value: Serializer = BYTES, *, committed_only: bool = False) -> None:
        self.given_back = 0
        self.inbox = Inbox(Opener(BYTES, value, committed_only=committed_only), self.give_back)

    def give_back(self, chunk: Chunk) -> None:
        self.given_back += chunk.count

    def put(self, at: At, base: int, values: list[bytes], *, begin: int | None = None) -> None:
        track = self.inbox.tracks.setdefault(at, Track(at, base))
        data = bytes(build([(None, value) for value in values], base_offset=base, timestamp_ms=1))
        end = base + len(values)
        track.received = end
        self.inbox.put(Chunk(track, data, base if begin is None else begin, end, [], len(values), 1))

    def take(self, count: int) -> list[int]:
        return [record.offset for record in self.inbox.poll(count)]


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def test_what_was_polled_is_done_with_at_the_next_poll() -> None:
    world = World()
    world.put(AT, 0, numbers(0, 10))
    assert world.take(4) == [0, 1, 2, 3]
    assert world.inbox.finished() == {}
    assert world.take(3) == [4, 5, 6]
    assert (world.inbox.finished(), world.inbox.position(AT)) == ({AT: 4}, 7)
    world.inbox.settle()
    assert world.inbox.finished() == {AT: 7}


def test_of_what_is_handed_out_one_by_one_the_last_is_still_in_hand() -> None:
    world = World()
    world.put(AT, 0, numbers(0, 3))
    chunk = world.inbox.take()
    assert chunk is not None
    records = iter(chunk)
    next(records)
    assert world.inbox.finished() == {}
    next(records)
    assert world.inbox.finished() == {AT: 1}
    world.inbox.settle()
    assert world.inbox.finished() == {AT: 2}


def test_a_chunk_is_given_back_when_it_is_used_up() -> None:
    world = World()
    world.put(AT, 0, numbers(0, 3))
    world.put(AT, 3, numbers(3, 2))
    assert world.take(3) == [0, 1, 2]
    assert world.given_back == 0
    assert world.take(2) == [3, 4]
    assert world.given_back == 3
    assert world.take(5) == []
    assert world.given_back == 5


def test_records_below_where_reading_begins_are_not_handed_out() -> None:
    world = World()
    world.put(AT, 0, numbers(0, 10), begin=7)
    assert world.take(10) == [7, 8, 9]


def test_what_is_paused_is_kept_and_comes_first_afterwards() -> None:
    world = World()
    other = At("t", 1)
    world.put(AT, 0, numbers(0, 3))
    world.put(other, 0, numbers(0, 2))
    world.put(AT, 3, numbers(3, 2))
    assert world.take(1) == [0]
    world.inbox.tracks[AT].paused = True
    assert world.inbox.poll(9) and world.take(9) == []
    world.inbox.resume([AT])
    assert world.take(9) == [1, 2, 3, 4]


def test_a_partition_that_cannot_be_read_on_is_told_once_behind_what_came_of_it_and_the_others_go_on() -> None:
    world = World()
    other = At("t", 1)
    world.put(AT, 0, numbers(0, 3))
    world.put(other, 0, numbers(0, 1))
    world.inbox.put(Chunk.of_failure(world.inbox.tracks[AT], DamagedLog("broken"), 1))
    world.put(other, 1, numbers(1, 2))
    assert world.take(9) == [0, 1, 2, 0], "the failure waits until they are done with"
    with pytest.raises(DamagedLog, match="broken"):
        world.inbox.poll(9)
    assert world.take(9) == [1, 2]
    assert world.take(9) == []
    assert world.inbox.finished() == {AT: 3, other: 3}


def test_a_partition_that_was_moved_since_it_failed_is_not_told_of() -> None:
    world = World()
    world.put(AT, 0, numbers(0, 3))
    track = world.inbox.tracks[AT]
    world.inbox.put(Chunk.of_failure(track, DamagedLog(), 1))
    track.seek(50)
    assert world.take(9) == []


def test_after_a_seek_nothing_from_before_is_handed_out() -> None:
    world = World()
    world.put(AT, 0, numbers(0, 3))
    assert world.take(1) == [0]
    track = world.inbox.tracks[AT]
    track.seek(50)
    assert world.take(9) == []
    assert world.given_back == 3
    assert (track.is_seeking, world.inbox.position(AT)) == (True, 50)
    track.assigned(50)
    assert not track.is_seeking
    world.put(AT, 50, numbers(50, 2))
    assert world.take(9) == [50, 51]


def test_of_two_seeks_the_last_counts() -> None:
    track = Track(AT, 0)
    track.seek(5)
    track.seek(9)
    track.assigned(5)
    assert track.is_seeking
    track.assigned(9)
    assert not track.is_seeking


def test_a_group_that_was_moved_back_hands_out_from_there_and_forward_keeps_what_came() -> None:
    world = World()
    world.put(AT, 0, numbers(0, 5))
    world.inbox.tracks[AT].assigned(20)
    assert world.take(2) == [0, 1]
    world.inbox.tracks[AT].assigned(1)
    assert world.take(9) == []
    assert world.inbox.position(AT) == 1


@given(st.integers(0, 20), st.none() | st.integers(0, 10), st.booleans())
def test_a_new_connection_goes_on_behind_what_came(offset: int, committed: int | None, begins_late: bool) -> None:
    track = Track(AT, 0)
    track.received, track.committed = 10, committed
    if track.reconnected(offset, begins_late=begins_late):
        # Asked to go on at 10: not where the group was moved back, nor where others have read on.
        assert track.received == 10 and offset != 10
        assert committed is None or offset >= committed
        assert offset < 10 or (begins_late and committed is None)
    else:
        assert track.received == offset


def test_a_partition_that_went_to_somebody_else_is_silent() -> None:
    world = World()
    world.put(AT, 0, numbers(0, 3))
    world.take(1)
    world.inbox.drop([AT])
    assert world.take(9) == [] and world.inbox.finished() == {}
    with pytest.raises(UnknownPartition, match="t/0 is not this consumer's: it owns none"):
        world.inbox.position(AT)


def test_a_record_that_cannot_be_read_holds_up_nothing_before_it() -> None:
    world = World(JSON)
    world.put(AT, 0, [b"1", b"2", b"{", b"4"])
    assert [record.value for record in world.inbox.poll(10)] == [1, 2]
    for _ in range(2):
        with pytest.raises(InvalidRecord, match="offset 2"):
            world.inbox.poll(10)
    assert world.inbox.finished() == {AT: 2}


def test_what_is_committed_is_not_committed_again() -> None:
    world = World()
    world.put(AT, 0, numbers(0, 3))
    world.take(3)
    world.inbox.settle()
    world.inbox.tracks[AT].committed = 3
    assert world.inbox.finished() == {}


def test_no_records_cannot_be_asked_for() -> None:
    with pytest.raises(InvalidRequest, match="at least 1"):
        World().inbox.poll(0)


def test_a_commit_amid_a_poll_counts_nothing_that_is_being_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.put(AT, 0, numbers(0, 10))
    taken, looked = threading.Event(), threading.Event()
    found: list[object] = []
    take = Chunk.take

    def slow(chunk: Chunk, most: int) -> list[Record]:
        records = take(chunk, most)
        taken.set()
        looked.wait(0.2)
        return records

    def look() -> None:
        taken.wait(60)
        found.append(dict(world.inbox.finished()))
        looked.set()

    monkeypatch.setattr(Chunk, "take", slow)
    other = threading.Thread(target=look)
    other.start()
    assert len(world.take(10)) == 10
    other.join()
    assert found == [{}]


def test_what_is_put_back_comes_first_and_in_order() -> None:
    world = World()
    world.put(AT, 0, numbers(0, 3))
    world.put(AT, 3, numbers(3, 3))
    world.put(AT, 6, numbers(6, 2))
    first, second = world.inbox.next(), world.inbox.next()
    assert first is not None and second is not None
    world.inbox.put_back([first, second])
    assert world.take(4) == [0, 1, 2, 3]
    world.inbox.let_go()
    assert world.inbox.finished() == {AT: 4}
    assert world.take(9) == [4, 5, 6, 7]


def test_what_comes_back_and_goes_again_while_it_is_handed_over_is_followed_anew() -> None:
    inbox = Inbox(Opener(BYTES, BYTES, committed_only=False), lambda chunk: None)
    at = At("t", 0)
    first, second = Track(at, 0), Track(at, 5)
    inbox.tracks[at] = first
    inbox.leave([at])
    inbox.tracks[at] = second
    inbox.leave([at])
    assert inbox.leaving[at] is second
    assert first.turn == 1  # its chunks are nobody's any more
    inbox.gone([at])
    assert not inbox.leaving
