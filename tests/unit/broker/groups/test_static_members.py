from __future__ import annotations

import pytest

from levada.broker.groups import Joined
from levada.errors import (
    CoordinatorUnavailable,
    FencedInstance,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMember,
)
from support.groups import Groups, Seat, subscription


def test_a_static_member_is_not_asked_to_come_back_with_its_id() -> None:
    joined = Groups().join(instance_id="one")
    assert joined.error is None
    assert joined.answer.member_id.startswith("one-")


@pytest.mark.parametrize("knows_skip", [True, False])
def test_a_follower_that_restarts_takes_its_seat_back_without_a_rebalance(knows_skip: bool) -> None:
    groups = Groups()
    leader, follower = groups.stable("leader", "follower")
    back = groups.join(instance_id="follower", knows_skip=knows_skip)
    seat = Seat("g", back.answer, "follower")
    assert seat.generation == follower.generation
    assert seat.member_id != follower.member_id
    assert seat.joined.leader_id == leader.member_id
    assert seat.joined.members == ()
    assert not seat.joined.skip_assignment
    assert groups.state() == "Stable"
    assert groups.beat(leader) is None
    assert groups.sync(seat).answer.assignment == f"part of {follower.member_id}".encode()


def test_a_leader_that_restarts_leads_on_and_need_not_assign() -> None:
    groups = Groups()
    leader, follower = groups.stable("leader", "follower")
    back = Seat("g", groups.join(instance_id="leader").answer, "leader")
    assert back.leads
    assert back.joined.skip_assignment
    assert {one.instance_id for one in back.joined.members} == {"leader", "follower"}
    assert groups.beat(follower) is None
    assert groups.sync(back).answer.assignment == f"part of {leader.member_id}".encode()


def test_a_leader_that_restarts_and_cannot_skip_takes_itself_for_a_follower() -> None:
    groups = Groups()
    leader, follower = groups.stable("leader", "follower")
    back = Seat("g", groups.join(instance_id="leader", knows_skip=False).answer, "leader")
    assert not back.leads
    assert back.joined.leader_id == leader.member_id
    assert back.joined.members == ()
    assert groups.sync(back).answer.assignment == f"part of {leader.member_id}".encode()
    assert groups.beat(follower) is None
    # It does lead: what it does next as a member is a leader's doing.
    groups.again(back)
    assert groups.beat(follower) is RebalanceInProgress


def test_every_restart_gets_another_id() -> None:
    groups = Groups()
    groups.stable("one")
    ids = {groups.join(instance_id="one").answer.member_id for _ in range(5)}
    assert len(ids) == 5
    assert len(groups.coordinator.describe("g").members) == 1


def test_the_old_holder_of_an_instance_id_is_fenced_in_every_call() -> None:
    groups = Groups()
    (old,) = groups.stable("one")
    groups.join(instance_id="one")
    assert groups.beat(old) is FencedInstance
    assert groups.sync(old).error is FencedInstance
    assert groups.again(old).error is FencedInstance
    assert groups.leave(old) == [FencedInstance]
    with pytest.raises(FencedInstance):
        groups.coordinator.check_commit("g", old.member_id, old.generation, "one")


def test_the_old_holder_that_waits_for_the_next_generation_is_fenced() -> None:
    groups = Groups()
    leader, old, third = groups.stable("leader", "one", "third")
    again = groups.again(leader)
    waiting = groups.again(old)
    new = groups.join(instance_id="one")
    assert waiting.error is FencedInstance
    groups.again(third)
    assert new.answer.generation == again.answer.generation == leader.generation + 1


def test_a_duplicate_that_joins_while_the_first_waits_fences_it() -> None:
    groups = Groups()
    (leader,) = groups.stable("leader")
    first = groups.join(instance_id="one")
    second = groups.join(instance_id="one")
    assert first.error is FencedInstance
    again = groups.again(leader)
    assert second.answer.generation == again.answer.generation
    assert len(again.answer.members) == 2


def test_the_old_holder_that_waits_for_its_assignment_is_fenced() -> None:
    groups = Groups()
    leader, old = groups.stable("leader", "one")
    groups.again(leader)
    old = Seat("g", groups.again(old).answer, "one")
    waiting = groups.sync(old)
    groups.join(instance_id="one")
    assert waiting.error is FencedInstance
    assert groups.state() == "PreparingRebalance"


def test_a_restart_while_the_group_completes_starts_a_rebalance() -> None:
    groups = Groups()
    leader, follower = groups.stable("leader", "follower")
    groups.again(leader)
    groups.again(follower)
    assert groups.state() == "CompletingRebalance"
    back = groups.join(instance_id="follower")
    assert not back.is_answered
    assert groups.again(leader).answer.generation == back.answer.generation == leader.generation + 2


def test_a_restart_that_changes_the_chosen_protocol_starts_a_rebalance() -> None:
    groups = Groups()
    both = {"range": subscription("t"), "sticky": subscription("t")}
    _, _ = groups.stable("leader", "follower", protocols=both)
    back = groups.join(instance_id="follower", protocols={"sticky": subscription("t")})
    assert not back.is_answered
    assert groups.state() == "PreparingRebalance"


def test_a_restart_that_leaves_the_chosen_protocol_disturbs_nobody() -> None:
    groups = Groups()
    both = {"range": subscription("t"), "sticky": subscription("t")}
    leader, _ = groups.stable("leader", "follower", protocols=both)
    assert groups.join(instance_id="follower", protocols={"range": subscription("t")}).error is None
    assert groups.beat(leader) is None


def test_a_restart_that_reads_other_topics_starts_a_rebalance() -> None:
    groups = Groups()
    leader, _ = groups.stable("leader", "follower")
    back = groups.join(instance_id="follower", protocols={"range": subscription("t", "u")})
    assert groups.beat(leader) is RebalanceInProgress
    assert groups.again(leader).answer.generation == back.answer.generation


def test_owned_partitions_in_the_subscription_are_no_change_of_topics() -> None:
    groups = Groups()
    owned = subscription("t", version=1, rest=b"\xff\xff\xff\xff\0\0\0\1\0\1t\0\0\0\1\0\0\0\0")
    leader, _ = groups.stable("leader", "follower", protocols={"range": owned})
    assert groups.join(instance_id="follower").error is None
    assert groups.beat(leader) is None


def test_a_known_member_with_its_id_joins_as_any_other() -> None:
    groups = Groups()
    _, follower = groups.stable("leader", "follower")
    assert groups.again(follower).answer.generation == follower.generation
    assert groups.again(follower, protocols={"range": subscription("u")}).is_answered is False


def test_an_id_with_another_members_instance_id_is_fenced() -> None:
    groups = Groups()
    leader, follower = groups.stable("leader", "follower")
    crossed = Seat("g", follower.joined, "leader")
    assert groups.again(crossed).error is FencedInstance
    assert groups.beat(crossed) is FencedInstance
    assert groups.sync(crossed).error is FencedInstance
    assert groups.beat(leader) is None


def test_an_unknown_instance_id_with_a_known_id_is_unknown() -> None:
    groups = Groups()
    (one,) = groups.stable("one")
    stranger = Seat("g", one.joined, "stranger")
    assert groups.again(stranger).error is UnknownMember
    assert groups.beat(stranger) is UnknownMember


def test_an_older_generation_of_a_static_member_is_refused() -> None:
    groups = Groups()
    (one,) = groups.stable("one")
    assert groups.beat(one, one.generation - 1) is IllegalGeneration


def test_a_static_member_that_does_not_join_again_keeps_its_seat_until_it_must_sync() -> None:
    groups = Groups()
    leader, away = groups.stable("leader", "away", session_ms=60_000, rebalance_ms=10_000)
    again = groups.again(leader, session_ms=60_000, rebalance_ms=10_000)
    groups.after(10_000)
    assert {one.instance_id for one in again.answer.members} == {"leader", "away"}
    groups.sync(Seat("g", again.answer, "leader"), {again.answer.member_id: b"all"})
    groups.after(10_000)
    assert groups.beat(away) is UnknownMember


def test_the_leader_role_passes_on_when_a_static_leader_does_not_join_again() -> None:
    groups = Groups()
    away, follower = groups.stable("away", "follower", session_ms=60_000, rebalance_ms=10_000)
    groups.enter(instance_id="new", session_ms=60_000, rebalance_ms=10_000)
    again = groups.again(follower, session_ms=60_000, rebalance_ms=10_000)
    groups.after(10_000)
    assert again.answer.leader_id == follower.member_id
    assert away.member_id in {one.member_id for one in again.answer.members}


def test_when_no_static_member_joins_again_the_group_waits_until_their_sessions_end() -> None:
    groups = Groups()
    one, two = groups.stable("one", "two", session_ms=60_000, rebalance_ms=10_000)
    new = groups.enter(session_ms=60_000, rebalance_ms=10_000)
    groups.leave(Seat("g", Joined(member_id=new.member_id)))
    groups.after(25_000)
    assert groups.state() == "PreparingRebalance"
    assert groups.beat(one) is RebalanceInProgress
    groups.after(60_000)
    assert groups.state() == "Empty"
    assert groups.beat(two) is UnknownMember


def test_a_static_member_whose_session_ends_is_gone_and_its_instance_id_is_free() -> None:
    groups = Groups()
    groups.stable("one", session_ms=10_000)
    groups.after(10_000)
    assert groups.state() == "Empty"
    assert groups.join(instance_id="one").answer.generation == 3


def test_a_successor_that_cannot_be_kept_does_not_take_the_seat() -> None:
    groups = Groups()
    leader, follower = groups.stable("leader", "follower")
    groups.disk_is_full = True
    assert groups.join(instance_id="follower").error is CoordinatorUnavailable
    assert groups.join(instance_id="leader").error is CoordinatorUnavailable
    assert groups.beat(follower) is None
    assert groups.beat(leader) is None
    groups.after(10_000)
    assert groups.beat(follower) is UnknownMember


def test_a_successor_outlives_the_broker() -> None:
    groups = Groups()
    groups.stable("one")
    back = Seat("g", groups.join(instance_id="one").answer, "one")
    groups.restart()
    assert groups.beat(back) is None


def test_the_session_of_the_old_holder_ends_with_its_seat() -> None:
    groups = Groups()
    groups.stable("one", session_ms=10_000)
    groups.after(5_000)
    back = Seat("g", groups.join(instance_id="one").answer, "one")
    groups.after(9_999)
    assert groups.beat(back) is None
    groups.after(9_999)
    assert groups.state() == "Stable"


def test_a_successor_owes_the_sync_that_its_predecessor_owed() -> None:
    groups = Groups()
    leader, follower = groups.stable("leader", "follower", session_ms=60_000, rebalance_ms=10_000)
    options = {"session_ms": 60_000, "rebalance_ms": 10_000}
    groups.again(follower, protocols={"range": subscription("t", "u")}, **options)
    leader = Seat("g", groups.again(leader, **options).answer, "leader")
    groups.sync(leader, {leader.member_id: b"all"})
    back = groups.join(instance_id="follower", protocols={"range": subscription("t", "u")}, **options)
    groups.after(10_000)
    assert groups.beat(leader) is RebalanceInProgress
    assert groups.beat(Seat("g", back.answer, "follower")) is UnknownMember
