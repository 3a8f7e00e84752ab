from __future__ import annotations

import pytest

from levada.errors import IllegalGeneration, InvalidGroupId, RebalanceInProgress, UnknownMember
from support.groups import Groups, Seat


def test_a_heartbeat_keeps_the_session_alive() -> None:
    groups = Groups()
    (only,) = groups.stable(None, session_ms=10_000)
    for _ in range(10):
        groups.after(9_999)
        assert groups.beat(only) is None
    groups.after(10_000)
    assert groups.beat(only) is UnknownMember
    assert groups.state() == "Empty"


def test_a_member_whose_session_ended_makes_the_others_join_again() -> None:
    groups = Groups()
    dead, lives = groups.stable(None, None, session_ms=10_000)
    groups.after(9_999)
    groups.beat(lives)
    groups.after(1)
    assert groups.beat(dead) is UnknownMember
    assert groups.beat(lives) is RebalanceInProgress
    again = groups.again(lives)
    assert again.answer.generation == lives.generation + 1
    assert again.answer.leader_id == lives.member_id


def test_a_heartbeat_during_a_rebalance_keeps_the_member_though_it_asks_to_join() -> None:
    groups = Groups()
    leader, follower = groups.stable(None, None, session_ms=6_000, rebalance_ms=60_000)
    groups.again(leader, session_ms=6_000, rebalance_ms=60_000)
    for _ in range(5):
        groups.after(5_000)
        assert groups.beat(follower) is RebalanceInProgress
    assert groups.again(follower).answer.generation == leader.generation + 1


def test_a_member_that_dies_during_the_rebalance_is_not_waited_for_any_longer() -> None:
    groups = Groups()
    leader, _ = groups.stable(None, None, session_ms=6_000, rebalance_ms=60_000)
    again = groups.again(leader, session_ms=6_000, rebalance_ms=60_000)
    groups.after(6_000)
    assert len(again.answer.members) == 1


def test_who_waits_for_the_next_generation_need_not_send_heartbeats() -> None:
    groups = Groups()
    leader, follower = groups.stable(None, None, session_ms=6_000, rebalance_ms=60_000)
    again = groups.again(leader, session_ms=6_000, rebalance_ms=60_000)
    for _ in range(5):
        groups.after(5_000)
        groups.beat(follower)
    groups.again(follower)
    assert len(again.answer.members) == 2


def test_all_sessions_begin_anew_with_the_generation() -> None:
    groups = Groups()
    leader, follower = groups.stable(None, None, session_ms=6_000, rebalance_ms=60_000)
    groups.again(leader, session_ms=6_000)
    groups.after(5_999)
    again = groups.again(follower, session_ms=6_000)
    groups.after(5_999)
    assert groups.beat(Seat("g", again.answer)) is None


def test_a_new_session_timeout_holds_from_the_next_generation_on() -> None:
    groups = Groups()
    (only,) = groups.stable(None, session_ms=60_000)
    only = Seat("g", groups.again(only, session_ms=6_000).answer)
    groups.after(6_000)
    assert groups.beat(only) is UnknownMember


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_a_heartbeat_of_another_generation_is_refused_and_keeps_nothing_alive(generation: int) -> None:
    groups = Groups()
    (only,) = groups.stable(None, session_ms=10_000)
    groups.after(5_000)
    assert groups.beat(only, generation) is IllegalGeneration
    groups.after(5_000)
    assert groups.state() == "Empty"


def test_heartbeats_of_strangers_are_refused() -> None:
    groups = Groups()
    (only,) = groups.stable(None)
    assert groups.beat(Seat("nowhere", only.joined)) is UnknownMember
    assert groups.beat(Seat("", only.joined)) is InvalidGroupId
    pending = groups.join().answer.member_id
    assert groups.beat(Seat("g", type(only.joined)(member_id=pending, generation=1))) is UnknownMember


def test_an_idle_empty_group_has_no_deadline() -> None:
    groups = Groups()
    (only,) = groups.stable(None)
    groups.leave(only)
    assert groups.coordinator.next_deadline() is None


def test_a_rebalance_timeout_of_nothing_does_not_spin() -> None:
    groups = Groups()
    groups.stable("a", None, rebalance_ms=0, session_ms=10_000)
    groups.enter(rebalance_ms=0)
    groups.after(60_000)
    assert groups.state() == "Empty"
