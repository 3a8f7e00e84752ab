from __future__ import annotations

import pytest

from levada.errors import (
    CoordinatorUnavailable,
    FencedInstance,
    IllegalGeneration,
    LevadaError,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)
from support.groups import Groups


def commit(groups: Groups, *who: object, **how: object) -> type[LevadaError] | None:
    try:
        groups.coordinator.check_commit("g", *who, **how)  # type: ignore[arg-type]
    except LevadaError as error:
        return type(error)
    return None


def test_a_member_commits_in_its_generation() -> None:
    groups = Groups()
    (only,) = groups.stable(None)
    assert commit(groups, only.member_id, only.generation) is None


def test_a_commit_of_an_older_or_newer_generation_is_refused() -> None:
    groups = Groups()
    (only,) = groups.stable(None)
    assert commit(groups, only.member_id, only.generation - 1) is IllegalGeneration
    assert commit(groups, only.member_id, only.generation + 1) is IllegalGeneration
    assert commit(groups, only.member_id, -1) is IllegalGeneration


def test_the_late_commit_of_a_member_that_was_put_out_is_refused() -> None:
    groups = Groups()
    dead, lives = groups.stable(None, None, session_ms=10_000)
    groups.after(5_000)
    groups.beat(lives)
    groups.after(5_000)
    assert commit(groups, dead.member_id, dead.generation) is UnknownMember
    groups.again(lives)
    assert commit(groups, dead.member_id, dead.generation) is UnknownMember


def test_members_may_still_commit_while_the_next_rebalance_is_prepared() -> None:
    groups = Groups()
    leader, follower = groups.stable(None, None)
    groups.again(leader)
    assert commit(groups, follower.member_id, follower.generation) is None


def test_nobody_commits_while_the_group_waits_for_its_assignment() -> None:
    groups = Groups()
    joined = groups.enter().answer
    assert commit(groups, joined.member_id, joined.generation) is RebalanceInProgress


def test_a_commit_without_generation_is_taken_while_the_group_is_empty() -> None:
    groups = Groups()
    assert commit(groups) is None
    (only,) = groups.stable(None)
    assert commit(groups) is UnknownMember
    groups.leave(only)
    assert commit(groups) is None


def test_a_generation_of_a_group_that_is_not_there_is_refused() -> None:
    groups = Groups()
    assert commit(groups, "member", 3) is UnknownGroup
    assert commit(groups, "member", 3, transactional=True) is IllegalGeneration


def test_a_generation_of_an_empty_group_is_refused() -> None:
    groups = Groups()
    groups.with_offsets.add("g")
    assert commit(groups, "member", 3) is UnknownMember
    (only,) = groups.stable(None)
    groups.leave(only)
    assert commit(groups, only.member_id, only.generation) is UnknownMember


def test_a_static_member_is_checked_by_its_instance_id() -> None:
    groups = Groups()
    (only,) = groups.stable("one")
    assert commit(groups, only.member_id, only.generation, "one") is None
    assert commit(groups, "another", only.generation, "one") is FencedInstance
    assert commit(groups, only.member_id, only.generation, "two") is UnknownMember


def test_a_commit_keeps_the_session_alive() -> None:
    groups = Groups()
    (only,) = groups.stable(None, session_ms=10_000)
    for _ in range(5):
        groups.after(9_999)
        assert commit(groups, only.member_id, only.generation, now_ms=groups.now_ms) is None
    assert groups.beat(only) is None


def test_a_transaction_of_an_old_client_commits_without_naming_a_member() -> None:
    groups = Groups()
    groups.stable(None)
    assert commit(groups, transactional=True) is None


def test_a_transaction_that_names_a_member_is_checked() -> None:
    groups = Groups()
    (only,) = groups.stable(None)
    assert commit(groups, only.member_id, only.generation, transactional=True) is None
    assert commit(groups, only.member_id, only.generation - 1, transactional=True) is IllegalGeneration
    assert commit(groups, "stranger", only.generation, transactional=True) is UnknownMember


def test_a_transaction_may_commit_while_the_group_waits_for_its_assignment() -> None:
    groups = Groups()
    joined = groups.enter().answer
    assert commit(groups, joined.member_id, joined.generation, transactional=True) is None


@pytest.mark.parametrize("group_id", ["g", "", "g g"])
def test_consumers_without_membership_may_use_any_group_id(group_id: str) -> None:
    Groups().coordinator.check_commit(group_id)


def test_a_coordinator_that_closed_takes_no_commit() -> None:
    groups = Groups()
    groups.coordinator.close(0)
    assert commit(groups) is CoordinatorUnavailable
