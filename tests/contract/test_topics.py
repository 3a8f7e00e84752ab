"""Topics: made, found, changed, deleted, made again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from levada.engine.port import At, Committed, Engine, TopicSpec
from levada.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopicName,
    PartitionsCannotShrink,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from support.homes import Home, MakeTopic
from support.reading import batch_of, values


def spec(name: str = "t", partitions: int = 1, settings: Mapping[str, str] | None = None) -> TopicSpec:
    return TopicSpec(name=name, partitions=partitions, settings=settings or {})


async def test_a_topic_is_there_once_it_was_made(engine: Engine) -> None:
    view = await engine.topics()
    made = await engine.create(spec("orders", 3, {"retention.ms": "1000"}))
    assert (made.name, made.partitions, dict(made.settings)) == ("orders", 3, {"retention.ms": "1000"})
    assert view.get("orders") == view.by_id(made.id) == made
    for partition in range(3):
        assert await engine.bounds(At("orders", partition)) == (0, 0, 0)


async def test_topics_are_listed_by_name(engine: Engine) -> None:
    for name in ("b", "a", "c"):
        await engine.create(spec(name))
    names = [info.name for info in (await engine.topics()).all()]
    assert [name for name in names if not name.startswith("__")] == ["a", "b", "c"]
    assert names == sorted(names)


async def test_every_topic_has_an_id_of_its_own(engine: Engine) -> None:
    ids = {(await engine.create(spec(f"t{number}"))).id for number in range(5)}
    assert len(ids) == 5


async def test_a_name_is_given_once(engine: Engine) -> None:
    first = await engine.create(spec("t", 2))
    with pytest.raises(TopicExists, match="t already exists"):
        await engine.create(spec("t", 2))
    assert (await engine.topics()).get("t") == first


async def test_of_many_who_make_the_same_topic_one_does(engine: Engine) -> None:
    results = await asyncio.gather(*(engine.create(spec("t", n)) for n in range(1, 21)), return_exceptions=True)
    made = [result for result in results if not isinstance(result, BaseException)]
    assert len(made) == 1
    assert all(isinstance(result, TopicExists) for result in results if result is not made[0])
    assert (await engine.topics()).get("t") == made[0]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250])
async def test_a_name_that_breaks_the_rule_is_refused(engine: Engine, name: str) -> None:
    with pytest.raises(InvalidTopicName):
        await engine.create(spec(name))
    assert (await engine.topics()).get(name) is None


@pytest.mark.parametrize("name", ["a.b_c-9", "x" * 249, "t-0", "t-0-delete"])
async def test_a_name_within_the_rule_can_be_written_to(engine: Engine, make_topic: MakeTopic, name: str) -> None:
    at = await make_topic(name)
    await engine.append(at, batch_of(b"v"))
    assert await values(engine, at) == [b"v"]


@pytest.mark.parametrize("partitions", [0, -1])
async def test_a_topic_has_at_least_one_partition(engine: Engine, partitions: int) -> None:
    with pytest.raises(InvalidPartitions):
        await engine.create(spec("t", partitions))
    assert (await engine.topics()).get("t") is None


@pytest.mark.parametrize("settings", [{"no.such": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}])
async def test_a_setting_that_is_not_one_is_refused(engine: Engine, settings: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        await engine.create(spec("t", 1, settings))
    assert (await engine.topics()).get("t") is None


async def test_a_topic_grows_and_keeps_what_it_has(engine: Engine) -> None:
    made = await engine.create(spec("t", 2))
    await engine.append(At("t", 1), batch_of(b"kept"))
    grown = await engine.expand("t", 4)
    assert (grown.id, grown.partitions) == (made.id, 4)
    assert await values(engine, At("t", 1)) == [b"kept"]
    await engine.append(At("t", 3), batch_of(b"new"))
    assert await values(engine, At("t", 3)) == [b"new"]


async def test_a_topic_never_shrinks(engine: Engine) -> None:
    await engine.create(spec("t", 4))
    assert (await engine.expand("t", 4)).partitions == 4
    with pytest.raises(PartitionsCannotShrink):
        await engine.expand("t", 3)
    with pytest.raises(InvalidPartitions):
        await engine.expand("t", 0)
    info = (await engine.topics()).get("t")
    assert info is not None and info.partitions == 4


async def test_settings_are_set_and_unset(engine: Engine) -> None:
    await engine.create(spec("t", 1, {"retention.ms": "1000", "segment.bytes": "1000000"}))
    altered = await engine.alter("t", {"retention.ms": "2000", "segment.bytes": None, "max.message.bytes": "500"})
    assert dict(altered.settings) == {"retention.ms": "2000", "max.message.bytes": "500"}
    assert (await engine.topics()).get("t") == altered


async def test_settings_are_changed_all_or_none(engine: Engine) -> None:
    made = await engine.create(spec("t", 1, {"retention.ms": "1000"}))
    with pytest.raises(InvalidConfig):
        await engine.alter("t", {"retention.ms": "2000", "max.message.bytes": "many"})
    assert (await engine.topics()).get("t") == made


async def test_a_deleted_topic_is_gone(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    await engine.append(at, batch_of(b"v"))
    info = (await engine.topics()).get("t")
    assert info is not None
    await engine.delete("t")
    view = await engine.topics()
    assert view.get("t") is None and view.by_id(info.id) is None
    with pytest.raises(UnknownTopic):
        await engine.append(at, batch_of(b"v"))
    with pytest.raises(UnknownTopic):
        await engine.read(at, 0, 1000)


async def test_a_topic_made_again_is_new(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    await engine.append(at, batch_of(b"old", b"old"))
    await engine.commit_offsets("g", {at: Committed(2)})
    before = (await engine.topics()).get("t")
    await engine.delete("t")
    await make_topic()
    after = (await engine.topics()).get("t")
    assert before is not None and after is not None and before.id != after.id
    assert await engine.bounds(at) == (0, 0, 0)
    assert await engine.offsets("g") == {}
    assert (await engine.append(at, batch_of(b"new"))).base_offset == 0
    assert await values(engine, at) == [b"new"]


async def test_whoever_waits_on_a_topic_that_is_deleted_is_told(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    reader = asyncio.create_task(engine.read(at, 0, 1000, wait_ms=30_000))
    await asyncio.sleep(0.05)
    await engine.delete("t")
    with pytest.raises(UnknownTopic):
        await asyncio.wait_for(reader, 25)


async def test_what_is_not_there_is_named(engine: Engine, make_topic: MakeTopic) -> None:
    missing, outside = At("missing", 0), At("t", 1)
    await make_topic()
    with pytest.raises(UnknownTopic, match="missing"):
        await engine.expand("missing", 2)
    with pytest.raises(UnknownTopic, match="missing"):
        await engine.alter("missing", {"retention.ms": "1"})
    with pytest.raises(UnknownTopic, match="missing"):
        await engine.delete("missing")
    for at, refusal in ((missing, UnknownTopic), (outside, UnknownPartition), (At("t", -1), UnknownPartition)):
        for call in (
            engine.append(at, batch_of(b"v")),
            engine.read(at, 0, 1000),
            engine.bounds(at),
            engine.offset_at(at, 0),
            engine.trim(at, 0),
        ):
            with pytest.raises(refusal, match=at.topic):
                await call


async def test_a_change_of_topics_is_told_to_who_watches(engine: Engine) -> None:
    view = await engine.topics()
    for change in (
        lambda: engine.create(spec("t")),
        lambda: engine.expand("t", 2),
        lambda: engine.alter("t", {"retention.ms": "5"}),
        lambda: engine.delete("t"),
    ):
        before = view.version
        watcher = asyncio.create_task(view.changed(before))
        await asyncio.sleep(0)
        await change()
        assert await asyncio.wait_for(watcher, 30) > before
        assert view.version > before


async def test_topics_outlive_the_engine(engine: Engine, home: Home) -> None:
    await engine.create(spec("empty", 6))
    await engine.create(spec("set", 1, {"retention.ms": "7"}))
    await engine.create(spec("grown", 1))
    await engine.expand("grown", 3)
    await engine.alter("grown", {"segment.bytes": "9999"})
    await engine.create(spec("gone"))
    await engine.delete("gone")
    before = [info for info in (await engine.topics()).all() if not info.internal]
    await home.stop()
    engine = await home.start()
    assert [info for info in (await engine.topics()).all() if not info.internal] == before
    assert [(info.name, info.partitions) for info in before] == [("empty", 6), ("grown", 3), ("set", 1)]
