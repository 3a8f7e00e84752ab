from __future__ import annotations

from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.errors import FencedInstance, IllegalGeneration, RebalanceInProgress, UnknownMember
from support.groups import Groups, Seat, subscription


def test_members_outlive_the_broker_without_a_rebalance() -> None:
    groups = Groups()
    seats = groups.stable(None, "static", None)
    groups.restart()
    assert groups.state() == "Stable"
    assert [groups.beat(seat) for seat in seats] == [None] * 3
    assert groups.sync(seats[1]).answer.assignment == f"part of {seats[1].member_id}".encode()
    groups.coordinator.check_commit("g", seats[2].member_id, seats[2].generation)


def test_a_described_group_is_the_same_after_a_restart() -> None:
    groups = Groups()
    groups.stable(None, "static")
    before = groups.coordinator.describe("g")
    groups.restart()
    assert groups.coordinator.describe("g") == before


def test_members_that_died_with_the_broker_are_out_after_their_session() -> None:
    groups = Groups()
    lives, dead = groups.stable(None, None, session_ms=10_000)
    groups.restart()
    groups.after(9_999)
    assert groups.beat(lives) is None
    groups.after(1)
    assert groups.beat(dead) is UnknownMember
    assert groups.beat(lives) is RebalanceInProgress
    assert groups.again(lives).answer.generation == lives.generation + 1


def test_the_leader_leads_on_after_a_restart() -> None:
    groups = Groups()
    leader, follower = groups.stable(None, None)
    groups.restart()
    assert groups.again(follower).answer.leader_id == leader.member_id
    groups.again(leader)
    assert groups.beat(follower) is RebalanceInProgress


def test_a_static_member_is_fenced_after_a_restart_too() -> None:
    groups = Groups()
    (old,) = groups.stable("one")
    groups.join(instance_id="one")
    groups.restart()
    assert groups.beat(old) is FencedInstance


def test_pending_members_do_not_outlive_the_broker() -> None:
    groups = Groups()
    groups.stable(None)
    pending = groups.join().answer.member_id
    groups.restart()
    assert groups.join(pending).error is UnknownMember


def test_a_generation_that_was_told_and_not_assigned_is_not_given_out_again() -> None:
    groups = Groups()
    leader, follower = groups.stable(None, None)
    groups.again(leader)
    follower = Seat("g", groups.again(follower).answer)
    leader = Seat("g", groups.again(leader).answer)
    assert leader.generation == 3
    groups.restart()
    # A generation nobody was assigned in cannot be gone on with: the members are asked to join again.
    assert groups.state() == "PreparingRebalance"
    assert groups.sync(leader).error is RebalanceInProgress
    assert groups.beat(follower) is RebalanceInProgress
    groups.again(follower)
    assert groups.again(leader).answer.generation == 4


def test_a_broker_killed_while_it_waits_for_joins_goes_on_with_the_last_generation() -> None:
    groups = Groups()
    leader, follower = groups.stable(None, None)
    groups.again(leader)
    groups.restart()
    assert groups.beat(follower) is None
    groups.again(leader)
    assert groups.beat(follower) is RebalanceInProgress


def test_the_generation_goes_on_after_the_group_was_empty() -> None:
    groups = Groups()
    groups.leave(*groups.stable(None, None))
    groups.restart()
    assert groups.state() == "Empty"
    assert groups.coordinator.describe("g").protocol_type == "consumer"
    assert groups.enter().answer.generation == 4


def test_subscriptions_are_known_after_a_restart() -> None:
    groups = Groups()
    groups.stable(None, protocols={"range": subscription("a")})
    groups.restart()
    assert groups.coordinator.is_subscribed("g", "a")
    assert not groups.coordinator.is_subscribed("g", "b")


def test_a_group_larger_than_allowed_is_asked_to_join_again_at_start() -> None:
    groups = Groups()
    seats = groups.stable(None, None, None)
    groups.config = type(groups.config)(size_max=2)
    groups.restart()
    assert [groups.beat(seat) for seat in seats] == [RebalanceInProgress] * 3


def test_late_commits_of_old_generations_are_refused_after_a_restart() -> None:
    groups = Groups()
    (seat,) = groups.stable(None)
    again = groups.again(seat)
    groups.assign([Seat("g", again.answer)])
    groups.restart()
    assert groups.beat(seat) is IllegalGeneration


def test_every_generation_is_kept_before_it_is_told() -> None:
    groups = Groups()
    joined = groups.enter()
    assert groups.kept["g"].generation == joined.answer.generation
    assert joined.answer.receipt == len(groups.saves)
    (synced,) = groups.assign([Seat("g", joined.answer)])
    assert synced.receipt == len(groups.saves) == 2
    assert [one.assignment for one in groups.kept["g"].members] == [synced.assignment]


def test_heartbeats_and_commits_are_not_kept() -> None:
    groups = Groups()
    (seat,) = groups.stable(None)
    saves = len(groups.saves)
    for _ in range(10):
        groups.beat(seat)
        groups.coordinator.check_commit("g", seat.member_id, seat.generation, now_ms=groups.now_ms)
    assert len(groups.saves) == saves


def test_a_group_that_kafka_wrote_is_taken_up() -> None:
    """A snapshot without instance ids and rebalance timeouts, as Kafka 0.10 kept it, and whose leader is gone."""
    groups = Groups()
    kept = GroupSnapshot(group_id="g", protocol_type="consumer", generation=7, leader_id="gone", since_ms=1)
    groups.kept["g"] = GroupSnapshot.of("g", kept.value())
    groups.restart()
    assert groups.state() == "Empty"
    assert groups.enter().answer.generation == 8
