"""Committed offsets of groups."""

from __future__ import annotations

from levada.engine.port import At, Committed, Engine
from support.homes import Home, MakeTopic


async def test_a_group_nobody_knows_has_no_offsets(engine: Engine) -> None:
    assert await engine.offsets("nobody") == {}


async def test_a_commit_is_read_back_whole(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    await engine.commit_offsets("g", {at: Committed(15, leader_epoch=0, metadata="checked ✓")})
    committed = (await engine.offsets("g"))[at]
    assert (committed.offset, committed.leader_epoch, committed.metadata) == (15, 0, "checked ✓")


async def test_a_later_commit_replaces_the_earlier_and_leaves_the_others(engine: Engine, make_topic: MakeTopic) -> None:
    await make_topic(partitions=2)
    first, second = At("t", 0), At("t", 1)
    await engine.commit_offsets("g", {first: Committed(1), second: Committed(2)})
    await engine.commit_offsets("g", {first: Committed(5)})
    await engine.commit_offsets("other", {first: Committed(9)})
    assert {at: committed.offset for at, committed in (await engine.offsets("g")).items()} == {first: 5, second: 2}
    assert {at: committed.offset for at, committed in (await engine.offsets("other")).items()} == {first: 9}


async def test_commits_outlive_the_engine(engine: Engine, make_topic: MakeTopic, home: Home) -> None:
    at = await make_topic()
    await engine.commit_offsets("g", {at: Committed(15, metadata="m")})
    await home.stop()
    engine = await home.start()
    committed = (await engine.offsets("g"))[at]
    assert (committed.offset, committed.metadata) == (15, "m")


async def test_offsets_go_with_their_topic(engine: Engine, make_topic: MakeTopic, home: Home) -> None:
    gone, kept = await make_topic("gone"), await make_topic("kept")
    await engine.commit_offsets("g", {gone: Committed(1), kept: Committed(2)})
    await engine.delete("gone")
    assert set(await engine.offsets("g")) == {kept}
    await home.stop()
    engine = await home.start()
    assert set(await engine.offsets("g")) == {kept}
