"""Whose commit is taken."""

from __future__ import annotations

import pytest

from levada.engine.port import At
from levada.errors import GroupKindMismatch, IllegalGeneration, UnknownMember
from support.streams import SESSION_MS, Streams


def test_a_member_commits_what_it_owns() -> None:
    streams = Streams()
    first, second = streams.join(), streams.join()
    for member in (first, second):
        for partition in member.owned:
            streams.check_commit(member, partition)


def test_a_member_does_not_commit_what_another_owns() -> None:
    streams = Streams()
    first, second = streams.join(), streams.join()
    with pytest.raises(IllegalGeneration, match=f"t-{second.owned[0]} is not {first.id}'s"):
        streams.check_commit(first, second.owned[0])


def test_a_late_commit_of_a_dead_member_is_a_generation_error() -> None:
    streams = Streams()
    dead, living = streams.join(), streams.join()
    generation, partition = dead.generation, dead.owned[0]
    streams.after(SESSION_MS - 1)
    streams.alive(living)
    streams.after(1)
    with pytest.raises(IllegalGeneration):
        streams.check_commit(dead, partition, generation=generation)
    with pytest.raises(UnknownMember):
        streams.check_commit(dead, partition, generation=living.generation)


def test_a_commit_of_the_generation_before_is_refused() -> None:
    streams = Streams()
    member = streams.join()
    streams.join()
    with pytest.raises(IllegalGeneration, match="generation 2, not 1"):
        streams.check_commit(member, member.owned[0], generation=1)


def test_anybody_commits_while_there_are_no_members() -> None:
    streams = Streams()
    at = At("t", 0)
    streams.groups.check_commit("g", at=at)
    member = streams.join()
    with pytest.raises(UnknownMember, match="only they may commit"):
        streams.groups.check_commit("g", at=at)
    streams.leave(member)
    streams.groups.check_commit("g", at=at)


def test_a_member_of_a_group_that_is_not_there_is_unknown() -> None:
    with pytest.raises(UnknownMember):
        Streams().groups.check_commit("g", "somebody", 1, At("t", 0))


def test_a_generation_without_a_member_is_nobodys() -> None:
    streams = Streams()
    member = streams.join()
    with pytest.raises(UnknownMember):
        streams.groups.check_commit("g", "", member.generation, At("t", 0))


def test_a_group_with_members_of_kafkas_is_theirs() -> None:
    streams = Streams()
    streams.held_by_kafka.add("g")
    with pytest.raises(GroupKindMismatch):
        streams.groups.check_commit("g", at=At("t", 0))
    with pytest.raises(GroupKindMismatch):
        streams.groups.check_seek("g")
