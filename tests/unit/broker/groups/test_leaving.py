from __future__ import annotations

import pytest

from levada.broker.groups import Leaving
from levada.errors import FencedInstance, InvalidGroupId, RebalanceInProgress, UnknownMember
from support.groups import Groups


def test_the_last_member_leaves_an_empty_group_with_its_type_and_a_new_generation() -> None:
    groups = Groups()
    (only,) = groups.stable(None)
    assert groups.leave(only) == [None]
    described = groups.coordinator.describe("g")
    assert (described.state.value, described.protocol_type, described.generation) == ("Empty", "consumer", 2)


def test_when_one_leaves_the_others_join_again() -> None:
    groups = Groups()
    leader, follower = groups.stable(None, None)
    groups.leave(leader)
    assert groups.beat(follower) is RebalanceInProgress
    assert groups.again(follower).answer.leader_id == follower.member_id


def test_leaving_twice_is_refused() -> None:
    groups = Groups()
    (only,) = groups.stable(None)
    groups.leave(only)
    assert groups.leave(only) == [UnknownMember]


def test_leaving_a_group_that_is_not_there_is_refused_for_each() -> None:
    assert Groups().leave(Leaving("a"), Leaving("", "i")) == [UnknownMember, UnknownMember]


def test_an_empty_group_id_is_refused() -> None:
    with pytest.raises(InvalidGroupId):
        Groups().coordinator.leave("", [Leaving("a")], 0)


def test_a_pending_member_may_leave_and_is_not_waited_for() -> None:
    groups = Groups()
    (old,) = groups.stable(None)
    pending = groups.join().answer.member_id
    again = groups.again(old)
    assert groups.leave(Leaving(pending)) == [None]
    assert again.answer.generation == 2


def test_a_pending_member_that_leaves_a_stable_group_disturbs_nobody() -> None:
    groups = Groups()
    (only,) = groups.stable(None)
    pending = groups.join().answer.member_id
    groups.leave(Leaving(pending))
    assert groups.beat(only) is None
    assert groups.join(pending).error is UnknownMember


def test_the_only_pending_member_that_leaves_takes_the_group_with_it() -> None:
    groups = Groups()
    groups.leave(Leaving(groups.join().answer.member_id))
    assert groups.coordinator.list() == []


def test_a_static_member_is_removed_by_its_instance_id_alone() -> None:
    groups = Groups()
    one, two = groups.stable("one", "two")
    assert groups.leave(Leaving("", "one")) == [None]
    assert groups.beat(one) is UnknownMember
    assert groups.beat(two) is RebalanceInProgress


def test_a_static_member_with_another_id_than_the_holders_is_fenced() -> None:
    groups = Groups()
    one, _ = groups.stable("one", "two")
    assert groups.leave(Leaving("old id", "one"), Leaving(one.member_id, "other")) == [FencedInstance, UnknownMember]
    assert groups.beat(one) is None


def test_many_leave_at_once_and_the_group_rebalances_once() -> None:
    groups = Groups()
    one, two, three = groups.stable("one", "two", None)
    left = groups.leave(Leaving("", "one"), Leaving("", "nobody"), two, Leaving("", None), Leaving("stranger"))
    assert left == [None, UnknownMember, None, UnknownMember, UnknownMember]
    assert groups.again(three).answer.generation == one.generation + 1


def test_members_and_pending_members_leave_together() -> None:
    groups = Groups()
    (old,) = groups.stable(None)
    pending = groups.join().answer.member_id
    assert groups.leave(old, Leaving(pending)) == [None, None]
    assert groups.state() == "Empty"


def test_who_leaves_with_a_join_under_way_is_answered() -> None:
    groups = Groups()
    (old,) = groups.stable(None)
    waiting = groups.enter()
    groups.leave(Leaving(waiting.member_id))
    assert waiting.error is UnknownMember
    assert groups.again(old).answer.generation == 2


def test_when_the_missing_one_leaves_the_rebalance_is_complete() -> None:
    groups = Groups()
    (old,) = groups.stable(None)
    new = groups.enter()
    groups.leave(old)
    assert new.answer.generation == 2
