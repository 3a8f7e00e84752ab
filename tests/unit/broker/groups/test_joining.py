from __future__ import annotations

import pytest

from levada.broker.groups import Leaving
from levada.errors import (
    GroupFull,
    InconsistentProtocol,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from support.groups import Groups, Seat, subscription


def test_a_new_member_is_first_given_its_id() -> None:
    groups = Groups()
    first = groups.join(client_id="me")
    assert first.error is MemberIdRequired
    assert first.answer.member_id.startswith("me-")
    second = groups.join(first.answer.member_id)
    assert second.error is None
    assert second.answer.member_id == first.answer.member_id


def test_a_client_that_does_not_know_member_id_required_joins_at_once() -> None:
    joined = Groups().join(knows_id=False)
    assert joined.error is None
    assert joined.answer.generation == 1


def test_the_first_member_leads_and_is_shown_the_members() -> None:
    joined = Groups().enter(protocols={"range": b"meta"}).answer
    assert joined.leader_id == joined.member_id
    assert [(one.member_id, one.metadata) for one in joined.members] == [(joined.member_id, b"meta")]
    assert (joined.protocol_type, joined.protocol_name, joined.generation) == ("consumer", "range", 1)
    assert not joined.skip_assignment


def test_followers_are_not_shown_the_members() -> None:
    _, follower = Groups().stable(None, None)
    assert follower.joined.members == ()
    assert not follower.leads


@pytest.mark.parametrize("session_ms", [0, 5_999, 30 * 60_000 + 1])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    assert Groups().join(session_ms=session_ms).error is InvalidSessionTimeout


def test_an_empty_group_id_is_refused() -> None:
    assert Groups().join(group="").error is InvalidGroupId


def test_a_member_id_nobody_handed_out_is_unknown_and_makes_no_group() -> None:
    groups = Groups()
    assert groups.join("stranger").error is UnknownMember
    assert groups.coordinator.list() == []


def test_a_member_id_nobody_handed_out_is_unknown_to_a_group_that_exists() -> None:
    groups = Groups()
    groups.stable(None)
    assert groups.join("stranger").error is UnknownMember
    assert groups.state() == "Stable"


@pytest.mark.parametrize("protocol_type", ["", "connect"])
def test_another_protocol_type_than_the_groups_is_refused(protocol_type: str) -> None:
    groups = Groups()
    groups.stable(None)
    assert groups.enter(protocol_type=protocol_type).error is InconsistentProtocol


def test_a_first_member_without_type_is_refused_and_makes_no_group() -> None:
    groups = Groups()
    assert groups.join(protocol_type="").error is InconsistentProtocol
    assert groups.coordinator.list() == []


def test_a_member_with_no_protocol_in_common_is_refused() -> None:
    groups = Groups()
    groups.stable(None, protocols={"range": b""})
    assert groups.enter(protocols={"sticky": b""}).error is InconsistentProtocol


def test_a_rejoin_with_no_protocol_in_common_is_refused_and_changes_nothing() -> None:
    groups = Groups()
    (only,) = groups.stable(None, protocols={"range": b""})
    assert groups.again(only, protocols={"sticky": b""}).error is InconsistentProtocol
    assert groups.state() == "Stable"


def test_an_empty_group_may_change_its_protocol_type() -> None:
    groups = Groups()
    (only,) = groups.stable(None)
    groups.leave(only)
    assert groups.enter(protocol_type="connect").answer.protocol_type == "connect"


def test_the_protocol_most_members_like_best_wins() -> None:
    groups = Groups(initial_delay_ms=100)
    first = groups.enter(protocols={"range": b"", "sticky": b""})
    others = [groups.enter(protocols={"sticky": b"", "range": b""}) for _ in range(2)]
    groups.after(300)
    assert {call.answer.protocol_name for call in [first, *others]} == {"sticky"}


def test_a_protocol_that_not_all_support_cannot_win() -> None:
    groups = Groups(initial_delay_ms=100)
    calls = [groups.enter(protocols={"new": b"", "old": b""}) for _ in range(3)]
    calls.append(groups.enter(protocols={"old": b""}))
    groups.after(500)
    assert {call.answer.protocol_name for call in calls} == {"old"}


# -- the wait for the first members ---------------------------------------------------------------------------------


def test_an_empty_group_waits_the_initial_delay() -> None:
    groups = Groups(initial_delay_ms=3_000)
    joined = groups.enter()
    groups.after(2_999)
    assert not joined.is_answered
    groups.after(1)
    assert joined.answer.generation == 1


def test_a_member_that_comes_meanwhile_prolongs_the_initial_delay() -> None:
    groups = Groups(initial_delay_ms=100)
    first = groups.enter(rebalance_ms=250)
    groups.after(99)
    second = groups.enter(rebalance_ms=250)
    groups.after(100)
    assert not first.is_answered
    groups.after(1)
    assert first.answer.generation == second.answer.generation == 1


def test_the_initial_delay_is_never_prolonged_beyond_the_rebalance_timeout() -> None:
    groups = Groups(initial_delay_ms=100)
    calls = [groups.enter(rebalance_ms=250)]
    for _ in range(4):
        groups.after(50)
        calls.append(groups.enter(rebalance_ms=250))
    groups.after(50)
    assert all(call.is_answered for call in calls)


def test_who_leaves_during_the_initial_delay_is_not_in_the_generation() -> None:
    groups = Groups(initial_delay_ms=1_000)
    gone, stays = groups.enter(), groups.enter()
    groups.leave(Leaving(gone.member_id))
    assert gone.error is UnknownMember
    groups.after(2_000)
    assert [one.member_id for one in stays.answer.members] == [stays.answer.member_id]


def test_a_group_that_all_left_during_the_initial_delay_is_empty_after_it() -> None:
    groups = Groups(initial_delay_ms=1_000)
    only = groups.enter()
    groups.leave(Leaving(only.member_id))
    assert groups.state() == "PreparingRebalance"
    groups.after(1_000)
    assert groups.state() == "Empty"


# -- rebalances -----------------------------------------------------------------------------------------------------


def test_the_generation_grows_with_every_rebalance() -> None:
    groups = Groups()
    assert [seat.generation for seat in groups.stable(None, None, None)] == [3, 3, 3]


def test_a_new_member_waits_until_the_others_join_again() -> None:
    groups = Groups()
    (old,) = groups.stable(None)
    new = groups.enter()
    assert not new.is_answered
    assert groups.state() == "PreparingRebalance"
    again = groups.again(old)
    assert again.answer.generation == new.answer.generation == 2
    assert groups.state() == "CompletingRebalance"


def test_who_does_not_join_again_within_the_rebalance_timeout_is_out() -> None:
    groups = Groups()
    (old,) = groups.stable(None, session_ms=60_000, rebalance_ms=20_000)
    new = groups.enter(session_ms=60_000, rebalance_ms=20_000)
    groups.after(19_999)
    assert not new.is_answered
    groups.after(1)
    assert new.answer.leader_id == new.answer.member_id
    assert groups.beat(old) is UnknownMember


def test_the_rebalance_waits_for_the_longest_timeout_of_its_members() -> None:
    groups = Groups()
    groups.stable(None, session_ms=60_000, rebalance_ms=50_000)
    new = groups.enter(session_ms=60_000, rebalance_ms=1_000)
    groups.after(49_999)
    assert not new.is_answered
    groups.after(1)
    assert new.is_answered


def test_the_longest_timeout_is_that_of_now_and_not_of_members_that_left() -> None:
    groups = Groups()
    slow, quick = groups.stable(None, None, session_ms=60_000, rebalance_ms=50_000)
    groups.again(slow, session_ms=60_000, rebalance_ms=50_000)
    groups.again(quick, session_ms=60_000, rebalance_ms=2_000)
    groups.leave(slow)
    new = groups.enter(session_ms=60_000, rebalance_ms=1_000)
    groups.after(2_000)
    assert new.is_answered


def test_a_pending_member_is_waited_for_until_its_session_would_end() -> None:
    groups = Groups()
    (old,) = groups.stable(None, session_ms=60_000, rebalance_ms=60_000)
    groups.join(session_ms=8_000)
    again = groups.again(old)
    assert not again.is_answered
    groups.after(8_000)
    assert again.answer.generation == 2


def test_a_pending_member_that_comes_completes_the_rebalance() -> None:
    groups = Groups()
    (old,) = groups.stable(None)
    pending = groups.join().answer.member_id
    again = groups.again(old)
    assert not again.is_answered
    assert groups.join(pending).answer.generation == again.answer.generation == 2


def test_a_pending_id_is_worth_nothing_after_its_time() -> None:
    groups = Groups()
    groups.stable(None, session_ms=60_000)
    pending = groups.join(session_ms=8_000).answer.member_id
    groups.after(8_000)
    assert groups.join(pending).error is UnknownMember


def test_a_group_id_that_was_only_tried_leaves_nothing_behind() -> None:
    groups = Groups()
    groups.join(session_ms=8_000)
    assert len(groups.coordinator.list()) == 1
    groups.after(8_000)
    assert groups.coordinator.list() == []
    assert groups.coordinator.next_deadline() is None


def test_a_pending_member_cannot_turn_static() -> None:
    groups = Groups()
    pending = groups.join().answer.member_id
    assert groups.join(pending, instance_id="i").error is InvalidRequest


def test_a_new_member_whose_client_is_gone_is_forgotten_after_five_minutes() -> None:
    groups = Groups()
    groups.stable("static", session_ms=30 * 60_000, rebalance_ms=30 * 60_000)
    waiting = groups.enter(session_ms=6_000)
    groups.after(5 * 60_000 - 1)
    assert not waiting.is_answered
    groups.after(1)
    assert waiting.error is UnknownMember
    assert waiting.answer.member_id == ""


def test_a_member_that_asks_again_before_it_was_answered_is_answered_once_for_each() -> None:
    groups = Groups()
    (old,) = groups.stable(None)
    first = groups.enter()
    second = groups.join(first.member_id)
    assert first.error is RebalanceInProgress
    groups.again(old)
    assert second.answer.generation == 2


# -- members that come back -----------------------------------------------------------------------------------------


def test_a_follower_with_nothing_new_gets_the_generation_it_is_in() -> None:
    groups = Groups()
    _, follower = groups.stable(None, None)
    again = groups.again(follower)
    assert again.answer.generation == follower.generation
    assert again.answer.members == ()
    assert groups.state() == "Stable"


def test_a_follower_with_new_metadata_starts_a_rebalance() -> None:
    groups = Groups()
    _, follower = groups.stable(None, None)
    again = groups.again(follower, protocols={"range": subscription("t", "u")})
    assert not again.is_answered
    assert groups.state() == "PreparingRebalance"


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    groups = Groups()
    leader, follower = groups.stable(None, None)
    again = groups.again(leader)
    assert groups.beat(follower) is RebalanceInProgress
    groups.again(follower)
    assert again.answer.generation == leader.generation + 1
    assert len(again.answer.members) == 2


def test_who_lost_the_answer_to_its_join_gets_it_again_while_the_group_completes() -> None:
    groups = Groups()
    (leader,) = groups.stable(None)
    new = groups.enter()
    again = groups.again(leader)
    repeated = groups.join(new.member_id)
    assert repeated.answer.generation == new.answer.generation
    leads_again = groups.again(leader)
    assert leads_again.answer.members == again.answer.members


def test_new_metadata_while_the_group_completes_starts_over() -> None:
    groups = Groups()
    joined = groups.enter()
    seat = Seat("g", joined.answer)
    again = groups.again(seat, protocols={"range": subscription("u")})
    assert again.answer.generation == 2


def test_the_leader_role_passes_to_a_member_that_joined() -> None:
    groups = Groups()
    leader, follower = groups.stable(None, None, session_ms=60_000, rebalance_ms=10_000)
    groups.enter(session_ms=60_000, rebalance_ms=10_000)
    groups.again(follower, session_ms=60_000, rebalance_ms=10_000)
    groups.after(10_000)
    described = groups.coordinator.describe("g")
    assert leader.member_id not in {one.member_id for one in described.members}
    assert groups.again(follower, session_ms=60_000).answer.leader_id == follower.member_id


# -- how many -------------------------------------------------------------------------------------------------------


def test_a_full_group_takes_no_new_member() -> None:
    groups = Groups(size_max=2)
    groups.stable(None, None)
    refused = groups.enter()
    assert refused.error is GroupFull
    assert refused.answer.member_id == ""
    assert groups.state() == "Stable"


def test_members_of_a_full_group_may_join_again() -> None:
    groups = Groups(size_max=2)
    leader, follower = groups.stable(None, None)
    again = groups.again(leader)
    assert groups.again(follower).answer.generation == again.answer.generation


def test_a_full_group_takes_no_more_while_it_waits_for_its_first_members() -> None:
    groups = Groups(size_max=2, initial_delay_ms=100)
    groups.enter(), groups.enter()
    assert groups.enter().error is GroupFull


def test_a_static_member_may_come_back_to_a_full_group() -> None:
    groups = Groups(size_max=2)
    groups.stable("a", "b")
    assert groups.enter(instance_id="b").error is None


def test_the_last_to_join_again_are_out_when_the_limit_was_lowered() -> None:
    groups = Groups()
    seats = groups.stable(None, None, None)
    groups.config = type(groups.config)(size_max=2)
    groups.restart()
    again = [groups.again(seat) for seat in seats]
    assert [call.is_answered and call.error for call in again] == [None, None, GroupFull]
    assert again[0].answer.generation == seats[0].generation + 1
    assert len(groups.coordinator.describe("g").members) == 2


def test_a_pending_member_that_finds_no_room_is_not_waited_for() -> None:
    groups = Groups(size_max=1)
    first, second = groups.join().answer.member_id, groups.join().answer.member_id
    assert groups.join(first).answer.generation == 1
    assert groups.join(second).error is GroupFull
    assert groups.join(second).error is GroupFull
    assert len(groups.coordinator.describe("g").members) == 1
