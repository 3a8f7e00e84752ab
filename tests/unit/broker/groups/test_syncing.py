from __future__ import annotations

import pytest

from levada.errors import (
    CoordinatorUnavailable,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroupId,
    RebalanceInProgress,
    UnknownMember,
)
from support.groups import Groups, Seat


def three_joined(groups: Groups, **join: int) -> list[Seat]:
    """A leader and two followers of one generation that nobody has synced."""
    calls = [groups.enter(**join) for _ in range(3)]
    groups.after(groups.config.initial_delay_ms * 3)
    return [Seat("g", call.answer) for call in calls]


@pytest.fixture
def groups() -> Groups:
    return Groups(initial_delay_ms=10)


def test_followers_wait_for_the_leader(groups: Groups) -> None:
    leader, one, two = three_joined(groups)
    waiting = groups.sync(one), groups.sync(two)
    assert not any(call.is_answered for call in waiting)
    led = groups.sync(leader, {leader.member_id: b"0", one.member_id: b"1", two.member_id: b"2"})
    assert [call.answer.assignment for call in (led, *waiting)] == [b"0", b"1", b"2"]
    assert groups.state() == "Stable"


def test_a_follower_that_comes_after_the_leader_is_answered_at_once(groups: Groups) -> None:
    leader, one, _ = three_joined(groups)
    groups.sync(leader, {one.member_id: b"1"})
    synced = groups.sync(one).answer
    assert (synced.assignment, synced.protocol_type, synced.protocol_name) == (b"1", "consumer", "range")


def test_who_the_leader_forgot_gets_nothing_to_do(groups: Groups) -> None:
    leader, one, _ = three_joined(groups)
    groups.sync(leader, {leader.member_id: b"0", "stranger": b"x"})
    assert groups.sync(one).answer.assignment == b""


def test_a_followers_own_assignments_are_ignored(groups: Groups) -> None:
    leader, one, _ = three_joined(groups)
    waiting = groups.sync(one, {one.member_id: b"mine"})
    groups.sync(leader, {one.member_id: b"1"})
    assert waiting.answer.assignment == b"1"


def test_an_unknown_group_or_member_is_refused(groups: Groups) -> None:
    leader, *_ = three_joined(groups)
    stranger = Seat("g", type(leader.joined)(member_id="stranger", generation=1))
    assert groups.sync(stranger).error is UnknownMember
    assert groups.sync(Seat("other", leader.joined)).error is UnknownMember
    assert groups.sync(Seat("", leader.joined)).error is InvalidGroupId


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_another_generation_is_refused(groups: Groups, generation: int) -> None:
    leader, *_ = three_joined(groups)
    assert groups.sync(leader, generation=generation).error is IllegalGeneration
    assert groups.state() == "CompletingRebalance"


@pytest.mark.parametrize("field", ["protocol_type", "protocol_name"])
def test_a_protocol_that_was_not_agreed_is_refused(groups: Groups, field: str) -> None:
    leader, *_ = three_joined(groups)
    assert groups.sync(leader, **{field: "other"}).error is InconsistentProtocol


def test_the_agreed_protocol_may_be_named(groups: Groups) -> None:
    leader, *_ = three_joined(groups)
    assert groups.sync(leader, protocol_type="consumer", protocol_name="range").error is None


def test_a_sync_during_the_next_rebalance_asks_to_join_again(groups: Groups) -> None:
    leader, one, two = three_joined(groups)
    groups.assign([leader, one, two])
    groups.again(leader)
    assert groups.sync(one).error is RebalanceInProgress


def test_those_who_wait_for_the_leader_are_sent_back_when_a_rebalance_begins(groups: Groups) -> None:
    _, one, two = three_joined(groups)
    waiting = groups.sync(one), groups.sync(two)
    groups.enter()
    assert [call.error for call in waiting] == [RebalanceInProgress] * 2


def test_a_sync_that_is_asked_again_is_answered_once_for_each(groups: Groups) -> None:
    leader, one, _ = three_joined(groups)
    first, second = groups.sync(one), groups.sync(one)
    assert first.error is RebalanceInProgress
    groups.sync(leader, {one.member_id: b"1"})
    assert second.answer.assignment == b"1"


def test_who_leaves_while_it_waits_for_the_leader_is_told_so(groups: Groups) -> None:
    _, one, _ = three_joined(groups)
    waiting = groups.sync(one)
    groups.leave(one)
    assert waiting.error is UnknownMember


# -- members that join and never sync -------------------------------------------------------------------------------


def keep_alive(groups: Groups, seats: list[Seat], ms: int) -> None:
    for _ in range(ms // 1_000):
        groups.after(1_000)
        for seat in seats:
            groups.beat(seat)


def test_a_follower_that_never_syncs_is_put_out_though_it_sends_heartbeats(groups: Groups) -> None:
    leader, one, two = three_joined(groups, rebalance_ms=20_000)
    groups.sync(leader, {leader.member_id: b"0"}), groups.sync(one)
    keep_alive(groups, [leader, one, two], 20_000)
    assert groups.beat(two) is UnknownMember
    assert groups.beat(one) is RebalanceInProgress


def test_a_leader_that_never_syncs_is_put_out_and_its_followers_join_again(groups: Groups) -> None:
    leader, one, two = three_joined(groups, rebalance_ms=20_000)
    waiting = groups.sync(one), groups.sync(two)
    keep_alive(groups, [leader], 20_000)
    assert groups.beat(leader) is UnknownMember
    assert [call.error for call in waiting] == [RebalanceInProgress] * 2
    groups.again(two)
    assert groups.again(one).answer.generation == 2


def test_a_group_where_nobody_syncs_is_empty_in_the_end(groups: Groups) -> None:
    three_joined(groups, rebalance_ms=5_000)
    groups.after(5_000)
    assert groups.state() == "Empty"


def test_a_group_where_all_synced_is_left_alone(groups: Groups) -> None:
    seats = three_joined(groups, rebalance_ms=20_000)
    groups.assign(seats)
    keep_alive(groups, seats, 40_000)
    assert groups.state() == "Stable"
    assert groups.coordinator.describe("g").generation == 1


def test_a_heartbeat_while_the_group_completes_is_welcome(groups: Groups) -> None:
    leader, *_ = three_joined(groups)
    assert groups.beat(leader) is None


def test_who_waits_for_the_leader_need_not_send_heartbeats(groups: Groups) -> None:
    leader, one, two = three_joined(groups, session_ms=6_000, rebalance_ms=60_000)
    waiting = groups.sync(one), groups.sync(two)
    keep_alive(groups, [leader], 20_000)
    groups.sync(leader, {one.member_id: b"1"})
    assert waiting[0].answer.assignment == b"1"
    groups.after(5_999)
    assert groups.beat(one) is None


# -- a disk that is full --------------------------------------------------------------------------------------------


def test_an_assignment_that_cannot_be_kept_is_told_to_nobody(groups: Groups) -> None:
    leader, one, two = three_joined(groups)
    waiting = groups.sync(one), groups.sync(two)
    groups.disk_is_full = True
    led = groups.sync(leader, {one.member_id: b"1"})
    assert [call.error for call in (led, *waiting)] == [CoordinatorUnavailable] * 3
    assert groups.state() == "PreparingRebalance"
    groups.disk_is_full = False
    again = [groups.again(seat) for seat in (leader, one, two)]
    groups.assign([Seat("g", call.answer) for call in again])
    assert groups.state() == "Stable"
    assert groups.kept["g"].generation == 2
