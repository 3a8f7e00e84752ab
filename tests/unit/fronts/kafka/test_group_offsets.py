from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from levada.config import BrokerConfig
from levada.engine.port import At, Committed, TopicSpec
from levada.errors import StorageFull
from levada.fronts.kafka import notice
from levada.wire.apis import APIS, ApiKey
from support.calls import Front
from support.groups import subscription

NONE, UNKNOWN_TOPIC, TOO_LARGE, UNKNOWN_ID, UNSTABLE = 0, 3, 12, 100, 88
UNKNOWN_MEMBER, ILLEGAL_GENERATION, NOT_FOUND, REBALANCE_IN_PROGRESS = 25, 22, 69, 27


def versions(key: ApiKey) -> list[int]:
    return list(range(APIS[key].min_version, APIS[key].max_version + 1))


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    async with Front(BrokerConfig(data=tmp_path, topic={"levada.durability": "os"})) as front:
        for name in "t", "u":
            await front.engine.create(TopicSpec(name=name, partitions=3))
        yield front


def id_of(front: Front, topic: str) -> UUID:
    info = front.engine.view.get(topic)
    return info.id if info is not None else uuid4()


def entry(index: int, offset: int = 5, metadata: str | None = "", epoch: int = -1) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


async def commit(
    front: Front, entries: dict[str, list[dict[str, Any]]], version: int | None = None, **more: Any
) -> list[int]:
    """The error codes of a commit, in the order of its entries."""
    topics = [{"name": name, "topic_id": id_of(front, name), "partitions": rows} for name, rows in entries.items()]
    answer = await front.ask(
        ApiKey.OFFSET_COMMIT, version, **{"group_id": "g", "member_id": "", "topics": topics, **more}
    )
    return [row.error_code for topic in answer.topics for row in topic.partitions]


async def stable(front: Front, protocol_type: str = "consumer") -> dict[str, Any]:
    """A group of one that reads t; what names its member in a commit."""
    ask = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": protocol_type,
        "protocols": [{"name": "range", "metadata": subscription("t")}],
    }
    joined = await front.ask(ApiKey.JOIN_GROUP, 3, **ask, member_id="")
    await front.ask(
        ApiKey.SYNC_GROUP,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type=protocol_type,
        protocol_name="range",
        assignments=[{"member_id": joined.member_id, "assignment": b"x"}],
    )
    return {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}


# -- OffsetCommit ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
async def test_offsets_are_committed_in_every_version(front: Front, version: int) -> None:
    assert await commit(front, {"t": [entry(0, 5, "m", 2), entry(1, 6, None)]}, version) == [NONE, NONE]
    kept = front.engine.offset_store.fetch("g")
    assert kept[At("t", 0)]._replace(commit_ms=0) == Committed(5, 2 if version >= 6 else -1, "m", 0)
    assert kept[At("t", 1)]._replace(commit_ms=0) == Committed(6, -1, "", 0)


@pytest.mark.parametrize("version", [9, 10])
async def test_a_bad_entry_is_refused_by_name_and_the_others_are_stored(front: Front, version: int) -> None:
    codes = await commit(
        front,
        {"t": [entry(0), entry(3), entry(-1), entry(1, metadata="x" * 4097), entry(2)], "nowhere": [entry(0)]},
        version,
    )
    unknown = UNKNOWN_ID if version >= 10 else UNKNOWN_TOPIC
    assert codes == [NONE, UNKNOWN_TOPIC, UNKNOWN_TOPIC, TOO_LARGE, NONE, unknown]
    assert front.engine.offset_store.fetch("g").keys() == {At("t", 0), At("t", 2)}


async def test_answers_go_by_the_id_of_the_request(front: Front) -> None:
    ids = [id_of(front, "t"), uuid4(), UUID(int=0)]
    topics = [{"topic_id": one, "partitions": [entry(0)]} for one in ids]
    answer = await front.ask(ApiKey.OFFSET_COMMIT, group_id="g", member_id="", topics=topics)
    assert [topic.topic_id for topic in answer.topics] == ids
    assert [topic.partitions[0].error_code for topic in answer.topics] == [NONE, UNKNOWN_ID, UNKNOWN_ID]


async def test_a_commit_of_nothing_is_answered_with_nothing(front: Front) -> None:
    assert await commit(front, {}) == []


async def test_metadata_as_long_as_allowed_is_taken(front: Front) -> None:
    assert await commit(front, {"t": [entry(0, metadata="ü" * 4096)]}) == [NONE]


async def test_members_commit_in_their_generation_and_others_do_not(front: Front) -> None:
    who = await stable(front)
    assert await commit(front, {"t": [entry(0)]}, **who) == [NONE]
    assert await commit(front, {"t": [entry(0)]}) == [UNKNOWN_MEMBER]
    assert await commit(front, {"t": [entry(0)]}, **{**who, "member_id": "x"}) == [UNKNOWN_MEMBER]
    old = {**who, "generation_id_or_member_epoch": 0}
    assert await commit(front, {"t": [entry(0, 99)]}, **old) == [ILLEGAL_GENERATION]
    assert front.engine.offset_store.fetch("g")[At("t", 0)].offset == 5


async def test_a_refused_group_and_a_bad_entry_are_each_named(front: Front) -> None:
    await stable(front)
    rows = [entry(0), entry(7), entry(1, metadata="x" * 5000)]
    assert await commit(front, {"t": rows}, 9) == [UNKNOWN_MEMBER, UNKNOWN_TOPIC, UNKNOWN_MEMBER]


@pytest.mark.parametrize(("version", "code"), [(8, ILLEGAL_GENERATION), (9, NOT_FOUND), (10, NOT_FOUND)])
async def test_a_generation_of_a_group_that_is_not_there_is_refused(front: Front, version: int, code: int) -> None:
    who = {"member_id": "m", "generation_id_or_member_epoch": 3}
    assert await commit(front, {"t": [entry(0)]}, version, **who) == [code]


@pytest.mark.parametrize(("version", "retention_ms", "is_kept"), [(2, 0, False), (4, 3_600_000, True), (5, 0, True)])
async def test_an_old_client_may_say_how_long_an_offset_is_kept(
    front: Front, version: int, retention_ms: int, is_kept: bool
) -> None:
    await commit(front, {"t": [entry(0)]}, version, retention_time_ms=retention_ms)
    front.engine.offset_store.expire(front.engine.now_ms() + 1, 600_000, lambda group, topic: False)
    assert bool(front.engine.offset_store.fetch("g")) == is_kept


async def test_a_retention_for_ever_is_understood(front: Front) -> None:
    assert await commit(front, {"t": [entry(0)]}, 3, retention_time_ms=2**63 - 1) == [NONE]


async def test_a_full_disk_is_told_in_a_way_that_clients_retry(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object, **__: object) -> None:
        raise StorageFull

    monkeypatch.setattr(front.engine.offset_store, "commit", full)
    assert await commit(front, {"t": [entry(0)]}) == [15]


async def test_refused_entries_are_one_log_line(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(notice, "refused", lambda call, request, cause: lines.append(f"{call}, {request}: {cause}"))
    await commit(front, {"t": [entry(0), entry(8), entry(9)], "nowhere": [entry(0)]}, 9)
    assert lines == [
        "client tester at 10.0.0.9, OffsetCommit: topic 't' has partitions 0 to 2, not 8 (and 2 more)",
    ]


async def test_what_every_late_member_hears_is_no_log_line(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    who = await stable(front)
    monkeypatch.setattr(notice, "refused", lambda *_: pytest.fail("a log line"))
    assert await commit(front, {"t": [entry(0)]}, **{**who, "member_id": "late"}) == [UNKNOWN_MEMBER]


# -- OffsetFetch ----------------------------------------------------------------------------------------------------


def named(front: Front, version: int, topic: str, partitions: list[int]) -> dict[str, Any]:
    name = {"topic_id": id_of(front, topic)} if version >= 10 else {"name": topic}
    return {**name, "partition_indexes": partitions}


async def fetch(
    front: Front, version: int | None, topics: dict[str, list[int]] | None, *, group: str = "g", **more: Any
) -> dict[tuple[str, int], tuple[int, str, int]]:
    """(topic, partition) → (offset, metadata, error)."""
    version = APIS[ApiKey.OFFSET_FETCH].max_version if version is None else version
    asked = None if topics is None else [named(front, version, name, rows) for name, rows in topics.items()]
    one = {"group_id": group, "topics": asked}
    answer = await front.ask(ApiKey.OFFSET_FETCH, version, **(one if version < 8 else {"groups": [one]}), **more)
    found = answer if version < 8 else answer.groups[0]
    assert found.error_code == NONE
    names = {id_of(front, name): name for name in ("t", "u")}
    return {
        (topic.name if version < 10 else names.get(topic.topic_id, "?"), row.partition_index): (
            row.committed_offset, row.metadata, row.error_code,
        )
        for topic in found.topics
        for row in topic.partitions
    }  # fmt: skip


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
async def test_offsets_are_fetched_in_every_version(front: Front, version: int) -> None:
    await commit(front, {"t": [entry(0, 5, "note")]})
    assert await fetch(front, version, {"t": [0, 1]}) == {("t", 0): (5, "note", NONE), ("t", 1): (-1, "", NONE)}


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
async def test_a_group_nobody_knows_has_no_offsets_and_no_error(front: Front, version: int) -> None:
    assert await fetch(front, version, {"t": [0]}, group="nowhere") == {("t", 0): (-1, "", NONE)}


@pytest.mark.parametrize("version", [one for one in versions(ApiKey.OFFSET_FETCH) if one >= 2])
async def test_null_topics_are_all_of_them(front: Front, version: int) -> None:
    await commit(front, {"u": [entry(2, 7)], "t": [entry(0, 5), entry(1, 6)]})
    assert await fetch(front, version, None) == {
        ("t", 0): (5, "", NONE), ("t", 1): (6, "", NONE), ("u", 2): (7, "", NONE),
    }  # fmt: skip
    assert await fetch(front, version, None, group="nowhere") == {}
    assert await fetch(front, version, {}) == {}


@pytest.mark.parametrize("version", [5, 6, 7, 8, 9, 10])
async def test_the_leader_epoch_comes_back_as_it_was_committed(front: Front, version: int) -> None:
    await commit(front, {"t": [entry(0, 5, "", 4)]})
    one = {"group_id": "g", "topics": [named(front, version, "t", [0])]}
    answer = await front.ask(ApiKey.OFFSET_FETCH, version, **(one if version < 8 else {"groups": [one]}))
    found = answer if version < 8 else answer.groups[0]
    assert found.topics[0].partitions[0].committed_leader_epoch == 4


async def test_many_groups_are_fetched_at_once(front: Front) -> None:
    await commit(front, {"t": [entry(0, 5)]})
    await commit(front, {"t": [entry(0, 6)]}, group_id="h")
    ask = [{"group_id": one, "topics": None, "member_id": "", "member_epoch": 3} for one in ("g", "h", "nowhere")]
    answer = await front.ask(ApiKey.OFFSET_FETCH, groups=ask)
    offsets = {
        one.group_id: [row.committed_offset for topic in one.topics for row in topic.partitions]
        for one in answer.groups
    }
    assert offsets == {"g": [5], "h": [6], "nowhere": []}


async def test_a_topic_id_nobody_knows_is_refused_by_partition(front: Front) -> None:
    asked = [{"topic_id": uuid4(), "partition_indexes": [0, 1]}]
    answer = await front.ask(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": asked}])
    (topic,) = answer.groups[0].topics
    assert [row.error_code for row in topic.partitions] == [UNKNOWN_ID, UNKNOWN_ID]


@pytest.mark.parametrize("version", [7, 8, 10])
async def test_offsets_of_an_open_transaction_are_unstable_where_that_matters(front: Front, version: int) -> None:
    await commit(front, {"t": [entry(0, 5), entry(2, 9)]})
    producer_id, epoch = await front.engine.transactions.init_producer_id("tx", 60_000)
    await front.engine.transactions.add_offsets("tx", producer_id, epoch)
    await front.engine.offset_store.commit_transactional(
        "g", producer_id, epoch, {At("t", 0): Committed(50), At("t", 1): Committed(51)}
    )
    stable_only = await fetch(front, version, None, require_stable=True)
    assert stable_only == {("t", 0): (-1, "", UNSTABLE), ("t", 1): (-1, "", UNSTABLE), ("t", 2): (9, "", NONE)}
    assert await fetch(front, version, {"t": [0, 1]}) == {("t", 0): (5, "", NONE), ("t", 1): (-1, "", NONE)}
    await front.engine.transactions.end("tx", producer_id, epoch, True)
    after = await fetch(front, version, {"t": [0, 1]}, require_stable=True)
    assert after == {("t", 0): (50, "", NONE), ("t", 1): (51, "", NONE)}


# -- OffsetDelete ---------------------------------------------------------------------------------------------------


async def delete(front: Front, topics: dict[str, list[int]], group_id: str = "g") -> tuple[int, list[int]]:
    asked = [{"name": name, "partitions": [{"partition_index": row} for row in rows]} for name, rows in topics.items()]
    answer = await front.ask(ApiKey.OFFSET_DELETE, group_id=group_id, topics=asked)
    return answer.error_code, [row.error_code for topic in answer.topics for row in topic.partitions]


async def test_offsets_are_deleted(front: Front) -> None:
    await commit(front, {"t": [entry(0), entry(1)], "u": [entry(0)]})
    codes = [NONE, NONE, UNKNOWN_TOPIC, NONE, UNKNOWN_TOPIC]
    assert await delete(front, {"t": [0, 2, 3], "u": [0], "nowhere": [0]}) == (NONE, codes)
    assert front.engine.offset_store.fetch("g").keys() == {At("t", 1)}


async def test_offsets_of_topics_that_members_read_are_not_deleted(front: Front) -> None:
    who = await stable(front)
    await commit(front, {"t": [entry(0)], "u": [entry(0)]}, **who)
    assert await delete(front, {"t": [0], "u": [0]}) == (NONE, [86, NONE])
    assert front.engine.offset_store.fetch("g").keys() == {At("t", 0)}


async def test_offsets_of_a_group_that_is_not_there_or_whose_topics_cannot_be_told_are_not_deleted(
    front: Front,
) -> None:
    assert await delete(front, {"t": [0]}, "nowhere") == (NOT_FOUND, [])
    assert await delete(front, {"t": [0]}, "") == (24, [])
    await stable(front, protocol_type="connect")
    assert await delete(front, {"t": [0]}) == (68, [])


# -- expiry ---------------------------------------------------------------------------------------------------------


async def test_offsets_do_not_expire_while_members_read_the_topic(front: Front) -> None:
    who = await stable(front)
    await commit(front, {"t": [entry(0)], "u": [entry(0)]}, **who)
    later_ms = front.engine.now_ms() + 1_000_000
    front.engine.offset_store.expire(later_ms, 1_000, front.groups.may_read)
    assert front.engine.offset_store.fetch("g").keys() == {At("t", 0)}
    await front.ask(ApiKey.LEAVE_GROUP, group_id="g", members=[{"member_id": who["member_id"]}])
    front.engine.offset_store.expire(later_ms, 1_000_000_000, front.groups.may_read)
    assert front.engine.offset_store.fetch("g").keys() == {At("t", 0)}
    front.engine.offset_store.expire(later_ms, 1_000, front.groups.may_read)
    assert front.engine.offset_store.fetch("g") == {}
