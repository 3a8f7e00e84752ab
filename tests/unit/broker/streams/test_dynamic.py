"""Members that come and go."""

from __future__ import annotations

import pytest

from levada.broker.groups import State
from levada.broker.streams import Kind
from levada.engine.port import At
from levada.errors import (
    CoordinatorUnavailable,
    GroupFull,
    GroupNotEmpty,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    ShuttingDown,
    UnknownGroup,
    UnknownMember,
    UnknownTopic,
)
from support.streams import SESSION_MS, Consumer, Streams


def everything(*consumers: Consumer) -> list[int]:
    return sorted(partition for consumer in consumers for partition in consumer.owned)


def test_three_members_of_six_partitions_have_two_each() -> None:
    streams = Streams(topics={"t": 6})
    consumers = [streams.join() for _ in range(3)]
    assert [len(consumer.owned) for consumer in consumers] == [2, 2, 2]
    assert everything(*consumers) == list(range(6))


def test_every_change_is_a_new_generation_that_all_are_told() -> None:
    streams = Streams()
    first, second = streams.join(), streams.join()
    assert (first.generation, second.generation) == (2, 2)
    streams.leave(second)
    assert first.generation == 3 and first.owned == list(range(6))
    assert second.generation == 2, "who left hears nothing more"


def test_the_newcomer_is_told_by_the_answer_and_not_by_callback() -> None:
    consumer = Streams().join()
    assert len(consumer.told) == 1


def test_two_groups_each_read_everything() -> None:
    streams = Streams()
    ours, theirs = streams.join(group="a"), streams.join(group="b")
    assert ours.owned == theirs.owned == list(range(6))


def test_a_member_without_a_sign_of_life_is_taken_for_dead_and_told() -> None:
    streams = Streams()
    dead, living = streams.join(), streams.join()
    streams.after(SESSION_MS - 1)
    streams.alive(living)
    assert len(living.owned) == 3
    streams.after(1)
    assert dead.fenced is UnknownMember and not dead.now.partitions
    assert living.owned == list(range(6))


def test_a_sign_of_life_starts_the_session_anew() -> None:
    streams = Streams()
    member = streams.join()
    for _ in range(3):
        streams.after(SESSION_MS - 1)
        streams.alive(member)
    assert member.fenced is None


def test_the_dead_give_no_sign_of_life() -> None:
    streams = Streams()
    member = streams.join()
    streams.after(SESSION_MS)
    with pytest.raises(UnknownMember, match=member.id):
        streams.alive(member)
    with pytest.raises(UnknownMember):
        streams.leave(member)


def test_a_commit_is_a_sign_of_life() -> None:
    streams = Streams()
    member = streams.join()
    streams.after(SESSION_MS - 1)
    streams.groups.check_commit("g", member.id, member.generation, At("t", 0), now_ms=streams.now_ms)
    streams.after(SESSION_MS - 1)
    assert member.fenced is None


def test_an_expansion_reaches_running_members() -> None:
    streams = Streams(topics={"t": 4})
    first, second = streams.join(), streams.join()
    before = set(first.owned), set(second.owned)
    streams.expand("t", 6)
    assert everything(first, second) == list(range(6))
    assert before[0] < set(first.owned) and before[1] < set(second.owned), "nothing else moves"
    assert first.generation == second.generation == 3


def test_a_change_of_other_topics_disturbs_nobody() -> None:
    streams = Streams()
    member = streams.join()
    streams.expand("another", 3)
    assert len(member.told) == 1


def test_a_deleted_topic_leaves_and_comes_back_when_made_again() -> None:
    streams = Streams(topics={"t": 2, "u": 1})
    member = streams.join("t", "u")
    streams.drop("t")
    assert member.now.partitions == [At("u", 0)]
    streams.expand("t", 3)
    assert member.now.partitions == [At("t", 0), At("t", 1), At("t", 2), At("u", 0)]


def test_a_topic_deleted_and_made_again_at_once_is_let_go_of_first() -> None:
    streams = Streams(topics={"t": 2})
    member = streams.join()
    streams.topics.drop("t")
    streams.topics.put("t", 2)
    streams.groups.topics_changed(streams.now_ms)
    gone, back = member.told[-2:]
    assert not gone.partitions and back.partitions == [At("t", 0), At("t", 1)]
    assert gone.generation < back.generation


def test_a_topic_made_again_is_let_go_of_first_also_when_somebody_joins_before_that_was_seen() -> None:
    streams = Streams(topics={"t": 2})
    member = streams.join()
    streams.topics.drop("t")
    streams.topics.put("t", 2)
    newcomer = streams.join()
    assert [told.partitions for told in member.told[1:]] == [[], member.now.partitions]
    assert sorted(member.owned + newcomer.owned) == [0, 1]
    told = len(member.told)
    streams.groups.topics_changed(streams.now_ms)
    assert len(member.told) == told


def test_members_may_read_different_topics() -> None:
    streams = Streams(topics={"t": 2, "u": 2})
    only, both = streams.join("t"), streams.join("t", "u")
    assert only.now.partitions == [At("t", 0), At("t", 1)]
    assert both.now.partitions == [At("u", 0), At("u", 1)]


def test_moved_offsets_are_told_to_their_owners_in_a_new_generation() -> None:
    streams = Streams(topics={"t": 2})
    first, second = streams.join(), streams.join()
    streams.groups.moved("g", {At("t", 0): 7, At("t", 1): 8}, streams.now_ms)
    assert [*first.now.moved.values(), *second.now.moved.values()] == [7, 8]
    assert first.generation == 3
    streams.groups.moved("nobody's", {At("t", 0): 7}, streams.now_ms)


def test_what_is_asked_wrongly_is_refused_and_makes_no_group() -> None:
    streams = Streams(topics={"t": 1}, session_ms_min=6_000, session_ms_max=60_000)
    for group in ("", "__levada.keyless", "g" * 32_768):
        with pytest.raises(InvalidGroupId):
            streams.join(group=group)
    with pytest.raises(UnknownTopic, match="'u'"):
        streams.join("t", "u")
    with pytest.raises(InvalidSessionTimeout, match="from 6000 to 60000"):
        streams.join(session_ms=5_999)
    with pytest.raises(InvalidSessionTimeout):
        streams.join(session_ms=60_001)
    with pytest.raises(InvalidRequest, match="1000 bytes"):
        streams.join(client_id="ü" * 501)
    with pytest.raises(InvalidRequest):
        streams.groups.join("g", [], session_timeout_ms=SESSION_MS, now_ms=0, changed=Consumer())
    assert streams.groups.list() == [] and not streams.kept


def test_a_full_group_takes_nobody() -> None:
    streams = Streams(size_max=1)
    member = streams.join()
    with pytest.raises(GroupFull):
        streams.join()
    assert member.generation == 1


def test_a_topic_that_is_named_twice_is_read_once() -> None:
    assert Streams(topics={"t": 2}).join("t", "t").owned == [0, 1]


def test_a_group_is_described_with_its_members() -> None:
    streams = Streams(topics={"t": 2})
    first, second = streams.join(client_id="one"), streams.join(client_id="two")
    group = streams.groups.describe("g")
    assert (group.kind, group.state, group.generation) == (Kind.DYNAMIC, State.STABLE, 2)
    assert [(one.member_id, one.client_id, list(one.partitions)) for one in group.members] == [
        (first.id, "one", [At("t", 0)]),
        (second.id, "two", [At("t", 1)]),
    ]
    assert streams.groups.owners("g") == {At("t", 0): first.id, At("t", 1): second.id}
    assert streams.groups.owners("none") == {}


def test_a_group_is_deleted_once_its_members_are_gone() -> None:
    streams = Streams()
    member = streams.join()
    with pytest.raises(GroupNotEmpty):
        streams.groups.delete("g", streams.now_ms)
    streams.leave(member)
    assert streams.groups.describe("g").state is State.EMPTY
    streams.groups.delete("g", streams.now_ms)
    assert not streams.kept
    with pytest.raises(UnknownGroup):
        streams.groups.describe("g")


def test_empty_groups_without_offsets_are_swept() -> None:
    streams = Streams()
    streams.leave(streams.join(group="empty"), "empty")
    streams.leave(streams.join(group="with offsets"), "with offsets")
    streams.join(group="with members")
    streams.register(2, group="registered")
    assert streams.groups.sweep(lambda group: group == "with offsets", streams.now_ms) == ["empty"]
    assert streams.kept.keys() == {"with offsets", "with members", "registered"}


def test_topics_that_members_read_are_known_as_read() -> None:
    streams = Streams(topics={"t": 1, "u": 1})
    member = streams.join("t")
    assert streams.groups.reads("g", "t", streams.now_ms)
    assert not streams.groups.reads("g", "u", streams.now_ms)
    assert not streams.groups.reads("none", "t", streams.now_ms)
    streams.leave(member)
    assert not streams.groups.reads("g", "t", streams.now_ms)


def test_a_full_disk_stops_no_generation() -> None:
    streams = Streams()
    first = streams.join()
    streams.disk_is_full = True
    streams.join()
    assert first.generation == 2


def test_a_close_tells_everybody_and_takes_no_more() -> None:
    streams = Streams()
    member = streams.join()
    kept = dict(streams.kept)
    streams.groups.close(streams.now_ms)
    assert member.fenced is ShuttingDown
    assert streams.groups.next_deadline() is None and streams.kept == kept
    with pytest.raises(CoordinatorUnavailable):
        streams.join()
