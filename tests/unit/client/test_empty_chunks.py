"""What holds nothing for readers (repeats that were left out, ends of transactions) is passed all the same."""

from __future__ import annotations

import pytest

from levada.client.chunk import Chunk, Opener
from levada.client.inbox import Inbox
from levada.client.records import At
from levada.client.serializers import BYTES
from levada.client.track import Track
from levada.records.build import build

HERE, THERE = At("t", 0), At("t", 1)


def inbox() -> Inbox:
    made = Inbox(Opener(BYTES, BYTES, committed_only=False), lambda _chunk: None)
    made.tracks.update({at: Track(at, 0) for at in (HERE, THERE)})
    return made


def chunk(made: Inbox, at: At, begin: int, to: int, *, empty: bool) -> Chunk:
    data = b"" if empty else bytes(build([(None, b"v")] * (to - begin), base_offset=begin, timestamp_ms=1))
    return Chunk(made.tracks[at], data, begin, to, [], 0 if empty else to - begin, 1)


@pytest.mark.parametrize("at", [HERE, THERE])
def test_it_is_passed_where_records_of_the_same_poll_are_in_hand(at: At) -> None:
    made = inbox()
    made.put(chunk(made, HERE, 0, 1, empty=False))
    begin = 1 if at == HERE else 0
    made.put(chunk(made, at, begin, begin + 2, empty=True))
    assert [record.offset for record in made.poll(10)] == [0]
    assert made.position(at) == begin + 2
    assert made.finished() == {}, "nothing is done with until the next poll"
    assert made.poll(10) == []
    assert made.finished()[at] == begin + 2


def test_it_is_passed_where_nothing_else_came() -> None:
    made = inbox()
    made.put(chunk(made, HERE, 0, 3, empty=True))
    assert made.poll(10) == []
    assert (made.position(HERE), made.finished()) == (3, {HERE: 3})
