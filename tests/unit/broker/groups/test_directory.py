from __future__ import annotations

import pytest

from levada.broker.groups import Kind, State
from levada.errors import (
    CoordinatorUnavailable,
    GroupNotEmpty,
    InvalidGroupId,
    StorageFull,
    UnknownGroup,
    UnknownMember,
)
from support.groups import Groups, Seat, subscription


def a_few_groups() -> Groups:
    """One stable, one empty, one rebalancing, and one that is only offsets."""
    groups = Groups()
    groups.stable(None, group="stable")
    groups.leave(*groups.stable(None, group="empty"), group="empty")
    groups.stable(None, group="rebalancing")
    groups.enter(group="rebalancing")
    groups.with_offsets.update({"only-offsets", "stable"})
    return groups


# -- list -----------------------------------------------------------------------------------------------------------


def test_every_group_is_listed_once() -> None:
    listed = {one.group_id: (one.state.value, one.protocol_type) for one in a_few_groups().coordinator.list()}
    assert listed == {
        "stable": ("Stable", "consumer"),
        "empty": ("Empty", "consumer"),
        "rebalancing": ("PreparingRebalance", "consumer"),
        "only-offsets": ("Empty", ""),
    }


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["Stable"], {"stable"}),
        (["stable", " EMPTY "], {"stable", "empty", "only-offsets"}),
        (["PreparingRebalance"], {"rebalancing"}),
        (["Dead"], set()),
        (["nonsense"], set()),
    ],
)
def test_groups_are_listed_by_state_in_any_case(states: list[str], expected: set[str]) -> None:
    assert {one.group_id for one in a_few_groups().coordinator.list(states)} == expected


@pytest.mark.parametrize(
    ("kinds", "count"), [(["classic"], 4), (["Classic", "share"], 4), (["consumer"], 0), (["?"], 0)]
)
def test_groups_are_listed_by_kind(kinds: list[str], count: int) -> None:
    assert len(a_few_groups().coordinator.list(kinds=kinds)) == count


def test_a_group_id_has_a_kind_while_it_is_used() -> None:
    coordinator = a_few_groups().coordinator
    assert coordinator.kind("stable") is coordinator.kind("only-offsets") is Kind.CLASSIC
    assert coordinator.kind("free") is None


# -- describe -------------------------------------------------------------------------------------------------------


def test_a_stable_group_is_described_with_its_members() -> None:
    groups = Groups()
    (only,) = groups.stable("one", protocols={"range": b"meta"})
    described = groups.coordinator.describe("g")
    assert (described.state, described.protocol_type, described.protocol_name) == (State.STABLE, "consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.instance_id) == (only.member_id, "one")
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert (member.metadata, member.assignment) == (b"meta", f"part of {only.member_id}".encode())


def test_a_rebalancing_group_shows_no_protocol_and_no_metadata() -> None:
    groups = a_few_groups()
    described = groups.coordinator.describe("rebalancing")
    assert (described.state, described.protocol_name) == (State.PREPARING, "")
    assert [member.metadata for member in described.members] == [b"", b""]


def test_a_group_that_is_only_offsets_is_described_as_empty() -> None:
    described = a_few_groups().coordinator.describe("only-offsets")
    assert (described.state, described.protocol_type, described.members) == (State.EMPTY, "", ())


def test_a_group_that_is_not_there_cannot_be_described() -> None:
    with pytest.raises(UnknownGroup):
        Groups().coordinator.describe("g")


# -- delete ---------------------------------------------------------------------------------------------------------


def test_an_empty_group_is_deleted_for_ever() -> None:
    groups = a_few_groups()
    groups.coordinator.delete("empty", groups.now_ms)
    assert "empty" not in groups.kept
    with pytest.raises(UnknownGroup):
        groups.coordinator.describe("empty")
    groups.restart()
    assert groups.coordinator.kind("empty") is None


@pytest.mark.parametrize("group_id", ["stable", "rebalancing"])
def test_a_group_with_members_is_not_deleted(group_id: str) -> None:
    groups = a_few_groups()
    with pytest.raises(GroupNotEmpty):
        groups.coordinator.delete(group_id, groups.now_ms)
    assert groups.coordinator.kind(group_id) is Kind.CLASSIC


def test_a_group_that_is_only_offsets_may_be_deleted() -> None:
    groups = a_few_groups()
    groups.coordinator.delete("only-offsets", groups.now_ms)


def test_a_group_that_is_not_there_is_not_deleted() -> None:
    groups = Groups()
    for group_id in "g", "":
        with pytest.raises(UnknownGroup):
            groups.coordinator.delete(group_id, 0)


def test_offsets_may_be_deleted_under_the_empty_group_id_and_nothing_else_is_done_there() -> None:
    groups = Groups()
    groups.with_offsets.add("")
    groups.coordinator.delete("", 0)
    with pytest.raises(InvalidGroupId):
        groups.coordinator.check_offset_delete("")


def test_a_pending_member_goes_with_its_deleted_group() -> None:
    groups = Groups()
    groups.leave(*groups.stable(None))
    pending = groups.join().answer.member_id
    groups.coordinator.delete("g", groups.now_ms)
    assert groups.join(pending).error is UnknownMember
    groups.after(60_000)
    assert groups.coordinator.next_deadline() is None


def test_a_group_that_cannot_be_forgotten_stays() -> None:
    groups = a_few_groups()
    groups.disk_is_full = True
    with pytest.raises(StorageFull):
        groups.coordinator.delete("empty", groups.now_ms)
    assert groups.coordinator.kind("empty") is Kind.CLASSIC


# -- offsets --------------------------------------------------------------------------------------------------------


def test_offsets_of_a_topic_that_members_read_are_in_use() -> None:
    groups = Groups()
    groups.stable(None, None, protocols={"range": subscription("a", "b")})
    groups.coordinator.check_offset_delete("g")
    assert groups.coordinator.is_subscribed("g", "a")
    assert not groups.coordinator.is_subscribed("g", "c")


def test_subscriptions_are_those_of_the_generation_and_not_of_who_is_about_to_join() -> None:
    groups = Groups()
    (only,) = groups.stable(None, protocols={"range": subscription("a")})
    groups.again(only, protocols={"range": subscription("b")})
    assert groups.coordinator.is_subscribed("g", "b")
    assert not groups.coordinator.is_subscribed("g", "a")


def test_a_consumer_group_whose_topics_cannot_be_told_reads_them_all() -> None:
    groups = Groups()
    groups.stable(None, protocols={"range": b"not a subscription"})
    assert groups.coordinator.is_subscribed("g", "anything")


def test_an_empty_group_reads_nothing() -> None:
    groups = a_few_groups()
    for group_id in "empty", "only-offsets", "nowhere":
        assert not groups.coordinator.is_subscribed(group_id, "t")


def test_offsets_of_a_group_that_is_not_there_are_not_deleted() -> None:
    groups = a_few_groups()
    with pytest.raises(UnknownGroup):
        groups.coordinator.check_offset_delete("nowhere")
    groups.coordinator.check_offset_delete("only-offsets")
    groups.coordinator.check_offset_delete("empty")


def test_offsets_of_a_group_of_another_type_with_members_are_not_deleted() -> None:
    groups = Groups()
    groups.stable(None, protocol_type="connect")
    with pytest.raises(GroupNotEmpty):
        groups.coordinator.check_offset_delete("g")


def test_members_may_read_what_they_subscribed_to() -> None:
    groups = Groups()
    groups.stable(None, protocols={"range": subscription("a")})
    assert groups.coordinator.may_read("g", "a")
    assert not groups.coordinator.may_read("g", "b")


def test_a_group_that_rebalances_or_is_of_another_type_may_read_anything() -> None:
    groups = a_few_groups()
    groups.stable(None, group="connect", protocol_type="connect")
    assert groups.coordinator.may_read("rebalancing", "whatever")
    assert groups.coordinator.may_read("connect", "whatever")


@pytest.mark.parametrize("group_id", ["empty", "only-offsets", "nowhere"])
def test_nobody_reads_for_a_group_without_members(group_id: str) -> None:
    assert not a_few_groups().coordinator.may_read(group_id, "t")


def test_the_snapshot_of_an_empty_group_says_since_when() -> None:
    groups = Groups()
    (only,) = groups.stable(None)
    groups.after(5_000)
    groups.leave(only)
    assert groups.kept["g"].since_ms == groups.now_ms
    assert groups.kept["g"].members == ()


def test_sweeping_forgets_empty_groups_without_offsets() -> None:
    groups = a_few_groups()
    groups.join(group="pending")
    groups.leave(*groups.stable(None, group="with-offsets"), group="with-offsets")
    groups.with_offsets.add("with-offsets")
    assert groups.coordinator.sweep(groups.with_offsets.__contains__, groups.now_ms) == ["empty"]
    assert "empty" not in groups.kept
    assert {one.group_id for one in groups.coordinator.list()} == {
        "stable", "rebalancing", "only-offsets", "pending", "with-offsets",
    }  # fmt: skip


# -- the end --------------------------------------------------------------------------------------------------------


def test_closing_answers_whoever_waits_and_leaves_no_timer() -> None:
    groups = Groups()
    (old,) = groups.stable(None, group="joins")
    joining = groups.enter(group="joins")
    leader, follower = groups.stable(None, None, group="syncs")
    groups.again(leader)
    syncing = groups.sync(Seat("syncs", groups.again(follower).answer))
    groups.coordinator.close(groups.now_ms)
    assert joining.error is CoordinatorUnavailable
    assert syncing.error is CoordinatorUnavailable
    assert groups.coordinator.next_deadline() is None
    assert groups.beat(old) is CoordinatorUnavailable
    assert groups.join(group="new").error is CoordinatorUnavailable


def test_idle_groups_have_no_deadlines() -> None:
    groups = Groups()
    for number in range(1_000):
        groups.leave(*groups.stable(None, group=f"g{number}"), group=f"g{number}")
    assert groups.coordinator.next_deadline() is None
    assert len(groups.coordinator.list()) == 1_000
