"""What a running member loses is its own until it has handed it over, or time is up."""

from __future__ import annotations

import pytest

from levada.engine.port import At
from levada.errors import IllegalGeneration
from support.streams import SESSION_MS, Consumer, Streams

WAIT_MS = 3_000


def join(streams: Streams) -> Consumer:
    consumer = Consumer()
    consumer.member = streams.groups.join(
        "g",
        ("t",),
        session_timeout_ms=SESSION_MS,
        now_ms=streams.now_ms,
        changed=consumer,
        hand_over_ms=WAIT_MS,
    )
    consumer.told.append(consumer.member.assignment)
    return consumer


def hand_over(streams: Streams, consumer: Consumer, *partitions: int) -> None:
    streams.groups.hand_over("g", consumer.id, [At("t", partition) for partition in partitions])


def test_the_new_owner_begins_when_the_old_one_has_handed_over() -> None:
    streams = Streams(topics={"t": 4})
    old = join(streams)
    new = join(streams)
    lost = sorted(set(range(4)) - set(old.owned))
    assert (len(old.owned), new.owned) == (2, [])
    streams.check_commit(old, lost[0], generation=1)
    with pytest.raises(IllegalGeneration):
        streams.check_commit(new, lost[0])
    hand_over(streams, old, lost[0])
    assert new.owned == lost[:1]
    streams.check_commit(new, lost[0])
    with pytest.raises(IllegalGeneration):
        streams.check_commit(old, lost[0], generation=1)
    hand_over(streams, old, *lost)
    assert (new.owned, new.generation) == (lost, 2)
    streams.alive(old)
    assert streams.groups.next_deadline() == streams.now_ms + SESSION_MS, "nothing is waited for any more"


def test_after_the_time_it_is_the_new_owners_all_the_same() -> None:
    streams = Streams(topics={"t": 4})
    old, new = join(streams), join(streams)
    lost = sorted(set(range(4)) - set(old.owned))
    streams.after(WAIT_MS - 1)
    streams.check_commit(old, lost[0], generation=1)
    assert new.owned == []
    streams.after(1)
    assert new.owned == lost
    with pytest.raises(IllegalGeneration):
        streams.check_commit(old, lost[0], generation=1)


def test_only_what_was_read_in_that_generation_is_taken() -> None:
    streams = Streams(topics={"t": 2})
    old = join(streams)
    streams.groups.moved("g", {At("t", 0): 0, At("t", 1): 0}, streams.now_ms)
    join(streams)
    [lost] = {0, 1} - set(old.owned)
    streams.check_commit(old, lost, generation=2)
    for generation in (1, 3):
        with pytest.raises(IllegalGeneration):
            streams.check_commit(old, lost, generation=generation)


def test_nobody_waits_for_a_member_that_is_gone() -> None:
    streams = Streams(topics={"t": 4})
    old, new = join(streams), join(streams)
    streams.leave(old)
    assert new.owned == [0, 1, 2, 3]


def test_offsets_that_are_moved_meanwhile_are_not_overwritten() -> None:
    streams = Streams(topics={"t": 2})
    old, new = join(streams), join(streams)
    [lost] = {0, 1} - set(old.owned)
    streams.groups.moved("g", {At("t", lost): 0}, streams.now_ms)
    assert new.owned == [lost]
    with pytest.raises(IllegalGeneration):
        streams.check_commit(old, lost, generation=1)


def test_what_comes_back_before_it_was_handed_over_begins_after_that() -> None:
    streams = Streams(topics={"t": 2})
    old, new = join(streams), join(streams)
    [lost] = {0, 1} - set(old.owned)
    streams.leave(new)
    assert lost not in old.owned
    streams.check_commit(old, lost, generation=1)
    hand_over(streams, old, lost)
    assert old.owned == [0, 1]


def test_a_third_member_takes_over_what_the_second_waits_for() -> None:
    streams = Streams(topics={"t": 6})
    members = [join(streams) for _ in range(3)]
    lost = set(range(6)) - set(members[0].owned)
    hand_over(streams, members[0], *lost)
    owned = [each.owned for each in members]
    assert sorted(partition for each in owned for partition in each) == list(range(6))
    assert [len(each) for each in owned] == [2, 2, 2]
