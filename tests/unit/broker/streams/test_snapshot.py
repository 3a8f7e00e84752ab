"""What is still there after kill −9."""

from __future__ import annotations

import pytest

from levada.broker.streams.snapshot import FIXED, STREAM
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.engine.port import At
from levada.errors import IllegalGeneration, UnknownMember
from support.streams import SESSION_MS, Streams


def test_the_generation_goes_on() -> None:
    streams = Streams()
    streams.join()
    streams.join()
    streams.restart()
    assert streams.join().generation == 3


def test_members_of_before_are_nobody_and_own_nothing() -> None:
    streams = Streams()
    before = streams.join()
    streams.restart()
    with pytest.raises(UnknownMember):
        streams.check_commit(before, 0)
    assert streams.join().owned == list(range(6)), "nobody waits for the dead"


def test_a_registration_is_there_again() -> None:
    streams = Streams(topics={"t": 6, "u": 3})
    generation = streams.register(3).generation
    streams.register(3, topic="u")
    streams.restart()
    assert streams.attach(1, generation).now.partitions == [At("t", 1), At("t", 4), At("u", 1)]
    assert streams.register(3).same
    assert streams.register(2).generation == generation + 1


def test_a_fenced_generation_stays_fenced() -> None:
    streams = Streams()
    old = streams.register(3).generation
    streams.register(2)
    streams.restart()
    with pytest.raises(IllegalGeneration):
        streams.attach(0, old)


def test_an_expansion_while_the_broker_was_down_is_seen() -> None:
    streams = Streams(topics={"t": 2})
    streams.register(2)
    streams.topics.put("t", 4)
    streams.restart()
    assert streams.attach(0).owned == [0, 2]


def test_a_registration_whose_topic_is_gone_is_gone() -> None:
    streams = Streams()
    streams.register(2)
    streams.topics.drop("t")
    streams.restart()
    streams.groups.topics_changed(streams.now_ms)
    assert streams.groups.kind("g") is None and not streams.groups.holds("g")


def test_topics_of_before_count_as_read_until_members_had_time_to_come_back() -> None:
    streams = Streams(topics={"t": 1, "u": 1})
    streams.join("t")
    streams.restart()
    assert streams.groups.reads("g", "t", streams.now_ms)
    assert not streams.groups.reads("g", "u", streams.now_ms)
    assert streams.groups.sweep(lambda group: False, streams.now_ms) == []
    streams.after(SESSION_MS)
    assert not streams.groups.reads("g", "t", streams.now_ms)
    assert streams.groups.sweep(lambda group: False, streams.now_ms) == ["g"]


def test_groups_of_other_kinds_are_passed_over() -> None:
    streams = Streams()
    streams.kept["theirs"] = GroupSnapshot(group_id="theirs", protocol_type="consumer", generation=3)
    streams.restart()
    assert streams.groups.kind("theirs") is None


def test_what_is_kept_says_its_kind() -> None:
    streams = Streams()
    streams.join(group="dynamic")
    streams.register(4, group="fixed")
    assert streams.kept["dynamic"].protocol_type == STREAM == "levada-stream"
    assert streams.kept["fixed"].protocol_type == FIXED == "levada-fixed"
