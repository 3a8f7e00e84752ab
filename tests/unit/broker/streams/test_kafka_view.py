"""Native and classic groups under the same ids: what each lets the other do, and what Kafka's tools are shown."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.broker.groups import Kind, State
from levada.broker.groups.subscription import topics_of
from levada.broker.streams import KafkaView
from levada.broker.streams.consumer_protocol import assigned, assignment, subscription
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.engine.port import At
from levada.errors import GroupKindMismatch, GroupNotEmpty, UnknownGroup, UnknownMember
from support.groups import Groups
from support.streams import Streams


class Both:
    """Both coordinators, keeping what they keep in one place."""

    def __init__(self) -> None:
        self.kafka = Groups()
        self.streams = Streams(topics={"t": 2, "u": 1})
        self.streams.kept = self.kafka.kept
        self.wire()

    def wire(self) -> None:
        self.kafka.coordinator.neighbour = KafkaView(self.streams.groups)
        self.streams.groups.rival = self.kafka.coordinator

    def restart(self) -> None:
        self.kafka.restart()
        self.streams.restart()
        self.wire()


@pytest.fixture
def both() -> Both:
    return Both()


# One kind at a time


def test_kafkas_members_cannot_join_a_native_group(both: Both) -> None:
    member = both.streams.join()
    assert both.kafka.join().error is GroupKindMismatch
    assert both.kafka.join("an old id").error is GroupKindMismatch
    both.streams.leave(member)
    assert both.kafka.enter().error is None


def test_kafkas_members_cannot_join_a_registered_group_even_without_consumers(both: Both) -> None:
    both.streams.register(2)
    assert both.kafka.join().error is GroupKindMismatch
    both.streams.groups.delete("g", 0)
    assert both.kafka.enter().error is None


def test_native_members_cannot_join_kafkas_group(both: Both) -> None:
    (seat,) = both.kafka.stable(None)
    with pytest.raises(GroupKindMismatch):
        both.streams.join()
    with pytest.raises(GroupKindMismatch):
        both.streams.register(2)
    both.kafka.leave(seat)
    both.streams.join()


def test_a_member_that_was_given_its_id_holds_the_group(both: Both) -> None:
    both.kafka.join()
    with pytest.raises(GroupKindMismatch):
        both.streams.join()


def test_generations_go_on_from_one_kind_to_the_other(both: Both) -> None:
    both.streams.leave(both.streams.join())
    (seat,) = both.kafka.stable(None)
    assert seat.generation == 3
    both.kafka.leave(seat)
    assert both.streams.join().generation == 5


def test_each_takes_up_its_own_after_a_restart(both: Both) -> None:
    both.kafka.stable(None, group="theirs")
    both.streams.join(group="ours")
    both.streams.register(2, group="fixed")
    both.restart()
    assert both.kafka.coordinator.kind("theirs") is Kind.CLASSIC
    assert both.kafka.coordinator.kind("ours") is None
    assert both.streams.groups.kind("theirs") is None
    listed = [one.group_id for one in both.kafka.coordinator.list()]
    assert sorted(listed) == ["fixed", "ours", "theirs"], "each once"


def test_a_kind_that_was_changed_is_the_new_one_after_a_restart(both: Both) -> None:
    both.streams.leave(both.streams.join())
    both.kafka.stable(None)
    both.restart()
    assert both.streams.groups.kind("g") is None
    with pytest.raises(GroupKindMismatch):
        both.streams.join()


# What Kafka's clients may do


def test_kafkas_clients_commit_for_a_native_group_only_while_it_is_empty(both: Both) -> None:
    check = both.kafka.coordinator.check_commit
    member = both.streams.join()
    with pytest.raises(UnknownMember):
        check("g")
    with pytest.raises(UnknownMember):
        check("g", transactional=True)
    with pytest.raises(UnknownMember):
        check("g", member.id, member.generation)
    both.streams.leave(member)
    check("g")
    with pytest.raises(UnknownMember):
        check("g", member.id, member.generation)


def test_offsets_of_topics_that_native_members_read_are_not_deleted(both: Both) -> None:
    member = both.streams.join("t")
    both.kafka.coordinator.check_offset_delete("g")
    assert both.kafka.coordinator.is_subscribed("g", "t")
    assert not both.kafka.coordinator.is_subscribed("g", "u")
    both.streams.leave(member)
    assert not both.kafka.coordinator.is_subscribed("g", "t")


def test_a_native_group_is_deleted_over_kafkas_api_once_it_is_empty(both: Both) -> None:
    member = both.streams.join()
    with pytest.raises(GroupNotEmpty):
        both.kafka.coordinator.delete("g", 0)
    both.streams.leave(member)
    assert both.kafka.coordinator.delete("g", 0) > 0
    assert both.streams.groups.kind("g") is None
    with pytest.raises(UnknownGroup):
        both.kafka.coordinator.delete("g", 0)


# What they are shown


def test_native_groups_are_listed_as_consumer_groups(both: Both) -> None:
    both.streams.join(group="dynamic")
    both.streams.register(2, group="fixed")
    listed = {one.group_id: (one.protocol_type, one.state) for one in both.kafka.coordinator.list()}
    assert listed == {"dynamic": ("consumer", State.STABLE), "fixed": ("consumer", State.EMPTY)}
    assert [one.group_id for one in both.kafka.coordinator.list(["empty"])] == ["fixed"]


def test_members_are_described_in_the_bytes_of_kafkas_consumers(both: Both) -> None:
    member = both.streams.join("t", "u", client_id="worker")
    group = both.kafka.coordinator.describe("g")
    assert (group.state, group.protocol_type, group.protocol_name) == (State.STABLE, "consumer", "levada-stream")
    (shown,) = group.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member.id, "worker", "/127.0.0.1")
    assert assigned(shown.assignment) == [At("t", 0), At("t", 1), At("u", 0)]
    assert topics_of(shown.metadata) == {"t", "u"}
    both.streams.register(3, group="f")
    assert both.kafka.coordinator.describe("f").protocol_name == "levada-fixed"


@given(st.dictionaries(st.text("tuü", min_size=1, max_size=4), st.sets(st.integers(0, 99), min_size=1), max_size=4))
def test_assignments_are_read_as_they_are_written(held: dict[str, set[int]]) -> None:
    ats = [At(topic, index) for topic, indexes in held.items() for index in indexes]
    assert assigned(assignment(ats)) == sorted(ats)
    assert topics_of(subscription(list(held))) == held.keys()


@given(st.binary(max_size=40))
def test_bytes_that_are_no_assignment_assign_nothing_or_what_they_say(data: bytes) -> None:
    for topic, partition in assigned(data):
        assert isinstance(topic, str) and isinstance(partition, int)


def test_a_cut_assignment_assigns_nothing() -> None:
    whole = assignment([At("t", 0), At("t", 1)])
    assert all(assigned(whole[:end]) == [] for end in range(len(whole) - 4))


def test_an_assignment_that_goes_backwards_ends() -> None:
    assert assigned(struct.pack(">hihi", 0, 1 << 30, -6, 0)) == []


def test_a_snapshot_of_ours_is_not_taken_for_kafkas(both: Both) -> None:
    both.kafka.kept["odd"] = GroupSnapshot(group_id="odd", protocol_type="levada-later", generation=3)
    both.restart()
    assert "odd" not in both.kafka.coordinator._groups
