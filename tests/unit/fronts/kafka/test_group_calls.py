from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from levada.config import BrokerConfig
from levada.engine.port import TopicSpec
from levada.fronts.kafka.group_timer import GroupTimer
from levada.wire.apis import APIS, ApiKey
from levada.wire.codec import Message
from support.calls import Front
from support.groups import subscription

NONE, INVALID_REQUEST, UNKNOWN_MEMBER, MEMBER_ID_REQUIRED = 0, 42, 25, 79
ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, FENCED, NOT_FOUND, NOT_EMPTY = 22, 27, 82, 69, 68


#: What SyncGroup must name from version 5 on.
AGREED = {"protocol_type": "consumer", "protocol_name": "range"}


def versions(key: ApiKey) -> list[int]:
    return list(range(APIS[key].min_version, APIS[key].max_version + 1))


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    config = BrokerConfig(
        data=tmp_path, topic={"levada.durability": "os"}, settings={"group.min.session.timeout.ms": "50"}
    )
    async with Front(config) as front:
        await front.engine.create(TopicSpec(name="t", partitions=3))
        yield front


def joining(member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("t")}],
        **more,
    }


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not look():  # noqa: ASYNC110  # a look from outside, which nobody announces
            await asyncio.sleep(0.005)


async def join(front: Front, version: int | None = None, **more: Any) -> Message:
    answer = await front.ask(ApiKey.JOIN_GROUP, version, **joining(**more))
    if answer.error_code == MEMBER_ID_REQUIRED:
        return await join(front, version, **{**more, "member_id": answer.member_id})
    return answer


async def member(front: Front, **more: Any) -> Message:
    """A group of one, stable."""
    joined = await join(front, **more)
    await front.ask(
        ApiKey.SYNC_GROUP,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=more.get("group_instance_id"),
        **AGREED,
        assignments=[{"member_id": joined.member_id, "assignment": b"all of it"}],
    )
    return joined


# -- FindCoordinator ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
async def test_this_broker_coordinates_every_group(front: Front, version: int) -> None:
    answer = await front.ask(ApiKey.FIND_COORDINATOR, version, key="g", coordinator_keys=["g"])
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.host, found.port) == (NONE, 1, "broker", 9092)


async def test_many_coordinators_are_found_at_once(front: Front) -> None:
    answer = await front.ask(ApiKey.FIND_COORDINATOR, key_type=1, coordinator_keys=["a", "b"])
    assert [(one.key, one.node_id) for one in answer.coordinators] == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("key_type", [2, 3, -1])
@pytest.mark.parametrize("version", [1, 3, 6])
async def test_nobody_coordinates_share_groups_and_what_does_not_exist(
    front: Front, version: int, key_type: int
) -> None:
    answer = await front.ask(ApiKey.FIND_COORDINATOR, version, key="k", coordinator_keys=["k"], key_type=key_type)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.port) == (INVALID_REQUEST, -1, -1)
    assert str(key_type) in found.error_message


# -- JoinGroup, SyncGroup, Heartbeat, LeaveGroup --------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_a_member_joins_in_every_version(front: Front, version: int) -> None:
    first = await front.ask(ApiKey.JOIN_GROUP, version, **joining())
    assert first.error_code == (MEMBER_ID_REQUIRED if version >= 4 else NONE)
    if version >= 4:
        assert first.member_id.startswith("tester-")
        first = await front.ask(ApiKey.JOIN_GROUP, version, **joining(first.member_id))
    assert (first.error_code, first.generation_id, first.leader) == (NONE, 1, first.member_id)
    assert first.protocol_name == "range"
    assert [one.metadata for one in first.members] == [subscription("t")]
    assert front.groups.describe("g").members[0].client_host == "/10.0.0.9"


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_a_refused_join_can_be_told_in_every_version(front: Front, version: int) -> None:
    answer = await front.ask(ApiKey.JOIN_GROUP, version, **joining(session_timeout_ms=1))
    assert answer.error_code == 26
    assert answer.protocol_name == (None if version >= 7 else "")
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])


async def test_version_0_has_the_session_timeout_for_a_rebalance_timeout(front: Front) -> None:
    await join(front, 0, session_timeout_ms=1_000)
    other = asyncio.ensure_future(join(front, session_timeout_ms=1_000, rebalance_timeout_ms=100))
    async with asyncio.timeout(30):
        assert (await other).generation_id == 2


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
async def test_a_member_syncs_in_every_version(front: Front, version: int) -> None:
    joined = await join(front)
    answer = await front.ask(
        ApiKey.SYNC_GROUP,
        version,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": joined.member_id, "assignment": b"mine"}],
    )
    assert (answer.error_code, answer.assignment) == (NONE, b"mine")
    assert answer.protocol_name == ("range" if version >= 5 else None)


@pytest.mark.parametrize("field", ["protocol_type", "protocol_name"])
async def test_a_sync_that_names_no_protocol_is_refused_from_version_5_on(front: Front, field: str) -> None:
    joined = await join(front)
    sync = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, **AGREED, field: None}
    assert (await front.ask(ApiKey.SYNC_GROUP, 5, **sync)).error_code == 23
    assert (await front.ask(ApiKey.SYNC_GROUP, 4, **sync)).error_code == NONE


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
async def test_a_member_is_alive_in_every_version(front: Front, version: int) -> None:
    joined = await member(front)
    beat = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    assert (await front.ask(ApiKey.HEARTBEAT, version, **beat)).error_code == NONE
    assert (await front.ask(ApiKey.HEARTBEAT, version, **{**beat, "generation_id": 9})).error_code == ILLEGAL_GENERATION
    assert (await front.ask(ApiKey.HEARTBEAT, version, **{**beat, "group_id": "x"})).error_code == UNKNOWN_MEMBER
    assert (await front.ask(ApiKey.HEARTBEAT, version, **{**beat, "group_id": ""})).error_code == 24


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
async def test_a_member_leaves_in_every_version(front: Front, version: int) -> None:
    joined = await member(front)
    leave = {"group_id": "g", "member_id": joined.member_id, "members": [{"member_id": joined.member_id}]}
    first = await front.ask(ApiKey.LEAVE_GROUP, version, **leave)
    again = await front.ask(ApiKey.LEAVE_GROUP, version, **leave)
    assert first.error_code == NONE
    if version < 3:
        assert again.error_code == UNKNOWN_MEMBER
    else:
        assert [one.error_code for one in first.members] == [NONE]
        assert (again.error_code, [one.error_code for one in again.members]) == (NONE, [UNKNOWN_MEMBER])
    assert (await front.ask(ApiKey.LEAVE_GROUP, version, **{**leave, "group_id": ""})).error_code == 24


async def test_followers_are_answered_when_the_leader_has_synced(front: Front) -> None:
    first = await member(front)
    calls = [asyncio.ensure_future(join(front)), asyncio.ensure_future(join(front, member_id=first.member_id))]
    new, leader = await asyncio.gather(*calls)
    sync = {"group_id": "g", "generation_id": new.generation_id, **AGREED}
    waiting = asyncio.ensure_future(front.ask(ApiKey.SYNC_GROUP, **sync, member_id=new.member_id))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    shares = [{"member_id": new.member_id, "assignment": b"1"}, {"member_id": leader.member_id, "assignment": b"0"}]
    led = await front.ask(ApiKey.SYNC_GROUP, **sync, member_id=leader.member_id, assignments=shares)
    assert (led.assignment, (await waiting).assignment) == (b"0", b"1")


async def test_a_client_that_hangs_up_while_it_joins_leaves_nothing_behind(front: Front) -> None:
    first = await member(front)
    waiting = asyncio.ensure_future(join(front, 3))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    again = await join(front, member_id=first.member_id)
    assert again.generation_id == 2
    assert len(again.members) == 2


async def test_sessions_end_by_the_clock(front: Front) -> None:
    joined = await member(front, session_timeout_ms=60)
    await until(lambda: front.groups.describe("g").state.value == "Empty")
    beat = await front.ask(
        ApiKey.HEARTBEAT, group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
    )
    assert beat.error_code == UNKNOWN_MEMBER


async def test_a_static_leader_that_restarts_is_told_to_keep_the_assignment(front: Front) -> None:
    old = await member(front, group_instance_id="one")
    new = await join(front, group_instance_id="one")
    assert (new.error_code, new.generation_id, new.skip_assignment) == (NONE, old.generation_id, True)
    assert [one.group_instance_id for one in new.members] == ["one"]
    beat = {"group_id": "g", "generation_id": 1, "member_id": old.member_id, "group_instance_id": "one"}
    assert (await front.ask(ApiKey.HEARTBEAT, **beat)).error_code == FENCED


async def test_members_go_on_after_the_broker_restarted(front: Front) -> None:
    joined = await member(front)
    front.groups.close(0)
    front.timer.stop()
    await front.engine.close()
    async with Front(front.config) as again:
        beat = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        assert (await again.ask(ApiKey.HEARTBEAT, **beat)).error_code == NONE
        synced = await again.ask(ApiKey.SYNC_GROUP, **beat, **AGREED)
        assert synced.assignment == b"all of it"
    await front.__aenter__()


async def test_members_that_wait_are_sent_away_when_the_broker_closes(front: Front) -> None:
    await member(front)
    waiting = asyncio.ensure_future(join(front))
    await asyncio.sleep(0.01)
    front.groups.close(0)
    assert (await waiting).error_code == 15


# -- ListGroups, DescribeGroups, DeleteGroups -----------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
async def test_groups_are_listed_in_every_version(front: Front, version: int) -> None:
    await member(front)
    await commit(front, group_id="simple")
    listed = {one.group_id: one for one in (await front.ask(ApiKey.LIST_GROUPS, version)).groups}
    assert {one.protocol_type for one in listed.values()} == {"consumer", ""}
    assert listed["g"].group_state == ("Stable" if version >= 4 else "")
    assert listed["simple"].group_type == ("classic" if version >= 5 else "")


async def test_groups_are_listed_by_state_and_type(front: Front) -> None:
    await member(front)
    await commit(front, group_id="simple")
    empty = await front.ask(ApiKey.LIST_GROUPS, states_filter=["empty"], types_filter=["Classic"])
    assert [one.group_id for one in empty.groups] == ["simple"]
    assert (await front.ask(ApiKey.LIST_GROUPS, types_filter=["share"])).groups == []


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
async def test_groups_are_described_in_every_version(front: Front, version: int) -> None:
    joined = await member(front, group_instance_id="one")
    answer = await front.ask(ApiKey.DESCRIBE_GROUPS, version, groups=["g", "nowhere"])
    stable, dead = answer.groups
    assert (stable.error_code, stable.group_state, stable.protocol_type, stable.protocol_data) == (
        NONE, "Stable", "consumer", "range",
    )  # fmt: skip
    (one,) = stable.members
    assert (one.member_id, one.client_id, one.member_assignment) == (joined.member_id, "tester", b"all of it")
    assert one.group_instance_id == ("one" if version >= 4 else None)
    assert (dead.group_state, dead.error_code) == ("Dead", NOT_FOUND if version >= 6 else NONE)


async def test_authorized_operations_are_all_where_they_are_asked_for(front: Front) -> None:
    await member(front)
    asked = await front.ask(ApiKey.DESCRIBE_GROUPS, groups=["g"], include_authorized_operations=True)
    silent = await front.ask(ApiKey.DESCRIBE_GROUPS, groups=["g"])
    assert asked.groups[0].authorized_operations == 0b110101001000
    assert silent.groups[0].authorized_operations == -(2**31)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
async def test_groups_are_deleted_in_every_version(front: Front, version: int) -> None:
    await member(front)
    await commit(front, group_id="simple")
    answer = await front.ask(ApiKey.DELETE_GROUPS, version, groups_names=["g", "simple", "nowhere", "", "simple"])
    assert {one.group_id: one.error_code for one in answer.results} == {
        "g": NOT_EMPTY, "simple": NONE, "nowhere": NOT_FOUND, "": NOT_FOUND,
    }  # fmt: skip
    assert front.engine.offset_store.fetch("simple") == {}


async def test_a_deleted_group_is_gone_after_a_restart(front: Front) -> None:
    joined = await member(front)
    await commit(front, generation_id_or_member_epoch=1, member_id=joined.member_id)
    await front.ask(ApiKey.LEAVE_GROUP, group_id="g", members=[{"member_id": joined.member_id}])
    assert (await front.ask(ApiKey.DELETE_GROUPS, groups_names=["g"])).results[0].error_code == NONE
    await front.__aexit__()
    await front.__aenter__()
    assert (await front.ask(ApiKey.LIST_GROUPS)).groups == []


# -- the timer ------------------------------------------------------------------------------------------------------


async def test_empty_groups_without_offsets_are_forgotten_in_time(front: Front) -> None:
    joined = await member(front)
    await front.ask(ApiKey.LEAVE_GROUP, group_id="g", members=[{"member_id": joined.member_id}])
    await commit(front, group_id="simple")
    front.timer.stop()
    sweeping = GroupTimer(front.groups, front.engine.offset_store, sweep_ms=lambda: 5)
    sweeping.start()
    await until(lambda: front.groups.kind("g") is None)
    sweeping.stop()
    assert front.groups.kind("simple") is not None


async def test_a_timer_that_was_stopped_rings_no_more(front: Front) -> None:
    front.timer.stop()
    waiting = asyncio.ensure_future(join(front, session_timeout_ms=60))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    front.timer.start()
    assert (await waiting).error_code == NONE


async def commit(front: Front, **more: Any) -> Message:
    topics = [
        {
            "name": "t",
            "topic_id": front.engine.view.get("t").id,  # type: ignore[union-attr]
            "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}],
        }
    ]
    return await front.ask(ApiKey.OFFSET_COMMIT, **{"group_id": "g", "member_id": "", "topics": topics, **more})
