"""The fixed form: consumer i of n has every partition with partition % n == i."""

from __future__ import annotations

import pytest

from levada.broker.groups import State
from levada.broker.streams import Kind
from levada.engine.port import At
from levada.errors import (
    FencedInstance,
    GroupKindMismatch,
    GroupNotEmpty,
    IllegalGeneration,
    InvalidGroupId,
    InvalidRequest,
    StorageFull,
    UnknownGroup,
    UnknownMember,
    UnknownTopic,
)
from support.streams import SESSION_MS, Streams


def test_consumer_i_of_three_owns_i_and_i_plus_three() -> None:
    streams = Streams(topics={"t": 6})
    streams.register(3)
    assert [streams.attach(number).owned for number in range(3)] == [[0, 3], [1, 4], [2, 5]]


def test_others_need_not_be_there() -> None:
    streams = Streams(topics={"t": 6})
    streams.register(3)
    assert streams.attach(1).owned == [1, 4]


def test_more_consumers_than_partitions_leave_some_with_nothing() -> None:
    streams = Streams(topics={"t": 1})
    streams.register(2)
    assert streams.attach(0).owned == [0]
    assert streams.attach(1).owned == []


def test_the_same_number_again_is_the_same_generation() -> None:
    streams = Streams()
    first = streams.register(3)
    consumer = streams.attach(0, first.generation)
    again = streams.register(3)
    assert not first.same and again.same and first.generation == again.generation
    assert len(consumer.told) == 1


def test_another_number_is_a_new_generation_and_fences_the_old_one() -> None:
    streams = Streams(topics={"t": 6})
    old = streams.register(3).generation
    consumer = streams.attach(0, old)
    new = streams.register(2).generation
    assert new > old
    assert consumer.fenced is IllegalGeneration and consumer.now.generation == old
    with pytest.raises(IllegalGeneration, match=f"generation {new}, not {old}"):
        streams.attach(0, old)
    with pytest.raises(IllegalGeneration):
        streams.check_commit(consumer, 0, generation=old)
    assert streams.attach(0, new).owned == [0, 2, 4]


def test_the_newer_of_two_under_one_number_takes_over() -> None:
    streams = Streams()
    streams.register(2)
    older = streams.attach(0)
    newer = streams.attach(0)
    assert older.fenced is FencedInstance
    assert newer.owned == [0, 2, 4]
    with pytest.raises(UnknownMember):
        streams.check_commit(older, 0, generation=newer.generation)
    streams.check_commit(newer, 0)


def test_an_expansion_gives_new_partitions_by_their_numbers() -> None:
    streams = Streams(topics={"t": 2})
    generation = streams.register(2).generation
    first, second = streams.attach(0), streams.attach(1)
    streams.expand("t", 5)
    assert (first.owned, second.owned) == ([0, 2, 4], [1, 3])
    assert first.generation == generation, "nobody needs to register again"


def test_whom_an_expansion_gives_nothing_hears_nothing() -> None:
    streams = Streams(topics={"t": 2})
    streams.register(2)
    first, second = streams.attach(0), streams.attach(1)
    streams.expand("t", 3)
    assert len(first.told) == 2 and len(second.told) == 1


def test_another_topic_is_added_to_the_group() -> None:
    streams = Streams(topics={"t": 2, "u": 3})
    generation = streams.register(2).generation
    every, one = streams.attach(0), streams.attach(1, topics=["t"])
    added = streams.register(2, topic="u")
    assert (added.generation, added.same) == (generation, False)
    assert every.now.partitions == [At("t", 0), At("u", 0), At("u", 2)]
    assert one.now.partitions == [At("t", 1)], "it asked for one topic"


def test_another_number_holds_for_all_topics_of_the_group() -> None:
    streams = Streams(topics={"t": 2, "u": 2})
    streams.register(2)
    streams.register(2, topic="u")
    streams.register(1, topic="u")
    assert streams.attach(0).now.partitions == [At("t", 0), At("t", 1), At("u", 0), At("u", 1)]


def test_a_consumer_that_dies_leaves_its_number_free() -> None:
    streams = Streams()
    generation = streams.register(2).generation
    dead = streams.attach(0)
    streams.after(SESSION_MS)
    assert dead.fenced is UnknownMember
    with pytest.raises(UnknownMember):
        streams.check_commit(dead, 0, generation=generation)
    assert streams.attach(0).generation == generation
    assert streams.groups.describe("g").generation == generation


def test_what_is_asked_wrongly_is_refused() -> None:
    streams = Streams(topics={"t": 6, "u": 1})
    with pytest.raises(UnknownTopic):
        streams.register(3, topic="none")
    with pytest.raises(InvalidGroupId):
        streams.register(3, group="")
    for consumers in (0, -1, 1 << 31):
        with pytest.raises(InvalidRequest, match="from 1 to 2147483647"):
            streams.register(consumers)
    with pytest.raises(UnknownGroup):
        streams.attach(0)
    streams.register(3)
    for number in (-1, 3):
        with pytest.raises(InvalidRequest, match="from 0 to 2"):
            streams.attach(number)
    with pytest.raises(UnknownTopic, match="registered for t, not for 'u'"):
        streams.attach(0, topics=["u"])


def test_a_registration_that_cannot_be_kept_changes_nothing() -> None:
    streams = Streams(topics={"t": 6, "u": 1})
    generation = streams.register(3).generation
    consumer = streams.attach(0)
    streams.disk_is_full = True
    with pytest.raises(StorageFull):
        streams.register(2)
    with pytest.raises(StorageFull):
        streams.register(3, topic="u")
    assert consumer.fenced is None and consumer.owned == [0, 3]
    assert streams.groups.describe("g").generation == generation
    assert streams.groups.describe("g").topics == ["t"]


def test_a_registration_ends_with_its_topic() -> None:
    streams = Streams(topics={"t": 2, "u": 2})
    streams.register(2)
    streams.register(2, topic="u")
    consumer = streams.attach(0)
    streams.drop("u")
    assert consumer.now.partitions == [At("t", 0)] and consumer.fenced is None
    streams.drop("t")
    assert consumer.fenced is UnknownTopic
    with pytest.raises(UnknownGroup):
        streams.attach(0)


def test_a_registration_for_a_topic_that_was_made_again_is_not_of_the_new_one() -> None:
    streams = Streams(topics={"t": 2})
    before = streams.register(2).generation
    consumer = streams.attach(0)
    streams.topics.drop("t")
    streams.topics.put("t", 2)
    with pytest.raises(UnknownGroup):
        streams.attach(1)
    assert consumer.fenced is UnknownTopic
    again = streams.register(2)
    assert not again.same and again.generation > before


def test_a_registration_after_its_topic_was_made_again_is_a_later_generation() -> None:
    streams = Streams(topics={"t": 2})
    before = streams.register(2).generation
    streams.drop("t")
    streams.restart()
    streams.expand("t", 2)
    assert streams.register(2).generation > before


def test_a_group_is_gone_with_the_last_topic_it_was_registered_for() -> None:
    streams = Streams(topics={"t": 2, "u": 2})
    streams.register(2)
    streams.drop("t")
    for restart in (False, True):
        if restart:
            streams.restart()
        assert streams.groups.list() == []
        assert streams.groups.kind("g") is None
        for ask in (streams.groups.describe, lambda group: streams.groups.delete(group, streams.now_ms)):
            with pytest.raises(UnknownGroup):
                ask("g")
    assert streams.groups.sweep(lambda group: False, streams.now_ms) == ["g"]
    assert streams.kept == {}


def test_whoever_takes_up_the_id_of_a_group_that_is_gone_is_shown() -> None:
    streams = Streams(topics={"t": 2, "u": 2})
    last = streams.register(2).generation
    streams.drop("t")
    member = streams.join("u")
    assert member.generation > last
    streams.leave(member)
    streams.restart()
    assert [(one.group_id, one.kind) for one in streams.groups.list()] == [("g", Kind.DYNAMIC)]


def test_consumers_that_are_not_attached_commit_by_their_number() -> None:
    streams = Streams(topics={"t": 6})
    generation = streams.register(3).generation
    commit = streams.groups.check_commit
    commit("g", "", generation, At("t", 3), consumer=0)
    with pytest.raises(IllegalGeneration, match="not consumer 0's"):
        commit("g", "", generation, At("t", 1), consumer=0)
    with pytest.raises(IllegalGeneration, match="generation 1, not 2"):
        commit("g", "", generation + 1, At("t", 3), consumer=0)
    with pytest.raises(InvalidRequest):
        commit("g", "", generation, At("t", 3), consumer=3)
    attached = streams.attach(0)
    with pytest.raises(UnknownMember, match=attached.id):
        commit("g", "", generation, At("t", 3), consumer=0)


def test_moved_offsets_are_told_in_a_new_generation_and_the_registration_holds() -> None:
    streams = Streams(topics={"t": 2})
    generation = streams.register(2).generation
    first, second = streams.attach(0), streams.attach(1)
    streams.groups.moved("g", {At("t", 1): 5}, streams.now_ms)
    assert second.now.moved == {At("t", 1): 5} and second.generation == generation + 1
    assert first.now.moved == {} and first.owned == [0] and first.generation == generation + 1
    with pytest.raises(IllegalGeneration):
        streams.groups.check_commit("g", second.id, generation, At("t", 1))
    streams.groups.check_commit("g", second.id, generation + 1, At("t", 1))
    assert streams.register(2) == (generation + 1, True, streams.register(2).receipt)


def test_a_consumer_comes_back_with_the_generation_it_was_registered_in_after_offsets_were_moved() -> None:
    streams = Streams(topics={"t": 2})
    older = streams.register(3).generation
    generation = streams.register(2).generation
    streams.groups.moved("g", {At("t", 1): 5}, streams.now_ms)
    for restart in (False, True):
        if restart:
            streams.restart()
        for known in (generation, generation + 1):
            assert streams.attach(1, known).generation == generation + 1
        for wrong in (older, generation + 2):
            with pytest.raises(IllegalGeneration):
                streams.attach(1, wrong)


def test_a_commit_by_number_of_what_was_read_before_offsets_were_moved_is_refused() -> None:
    streams = Streams(topics={"t": 2})
    generation = streams.register(2).generation
    streams.groups.moved("g", {At("t", 1): 5}, streams.now_ms)
    with pytest.raises(IllegalGeneration):
        streams.groups.check_commit("g", "", generation, At("t", 1), consumer=1)
    streams.groups.check_commit("g", "", generation + 1, At("t", 1), consumer=1)


def test_a_registered_group_is_described_without_consumers_too() -> None:
    streams = Streams(topics={"t": 2})
    streams.register(2)
    group = streams.groups.describe("g")
    assert (group.kind, group.state, group.consumers, group.topics) == (Kind.FIXED, State.EMPTY, 2, ["t"])
    streams.attach(1)
    (member,) = streams.groups.describe("g").members
    assert (member.consumer, member.partitions) == (1, [At("t", 1)])


def test_a_registered_topic_counts_as_read_while_no_consumer_is_there() -> None:
    streams = Streams()
    streams.register(2)
    assert streams.groups.reads("g", "t", streams.now_ms)


def test_a_registration_is_deleted_when_no_consumer_is_there() -> None:
    streams = Streams()
    streams.register(2)
    consumer = streams.attach(0)
    with pytest.raises(GroupNotEmpty):
        streams.groups.delete("g", streams.now_ms)
    streams.leave(consumer)
    streams.groups.delete("g", streams.now_ms)
    streams.join()


def test_a_group_that_is_not_registered_has_no_consumer_i() -> None:
    streams = Streams()
    member = streams.join()
    with pytest.raises(GroupKindMismatch):
        streams.attach(0)
    with pytest.raises(GroupKindMismatch):
        streams.groups.check_commit("g", "", member.generation, At("t", 0), consumer=0)
