"""Topics created, changed and described natively, over a real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from levada.broker.topics import Creation, Topics
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import TopicInfo, TopicSpec
from levada.engine.settings import Level
from levada.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopicName,
    PartitionsCannotShrink,
    PolicyViolation,
    ReservedName,
    UnknownTopic,
)
from support.engines import running


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[EmbeddedEngine]:
    settings = {"num.partitions": "3"}
    async with running(tmp_path, settings=settings, topic={"retention.ms": "777"}) as engine:
        yield engine


@pytest.fixture
def topics(engine: EmbeddedEngine) -> Topics:
    return Topics(engine, engine.view, engine.settings, engine.config_of)


async def test_new_same_expanded_and_never_fewer(topics: Topics) -> None:
    made, outcome = await topics.create("t", 4)
    assert (made.partitions, outcome) == (4, Creation.NEW)
    assert await topics.create("t", 4) == (made, Creation.SAME)
    more, outcome = await topics.create("t", 6)
    assert (more.partitions, more.id, outcome) == (6, made.id, Creation.EXPAND)
    with pytest.raises(PartitionsCannotShrink, match="6 partitions"):
        await topics.create("t", 3)
    assert topics.get("t").partitions == 6


async def test_without_a_number_a_new_one_has_the_brokers_and_an_old_one_its_own(topics: Topics) -> None:
    made, _ = await topics.create("t")
    assert made.partitions == 3
    await topics.expand("t", 5)
    found, outcome = await topics.create("t")
    assert (found.partitions, outcome) == (5, Creation.SAME)


async def test_creating_again_keeps_the_settings(topics: Topics) -> None:
    await topics.create("t", 1, {"retention.ms": "5"})
    for partitions in (1, 2):
        again, _ = await topics.create("t", partitions, {"retention.ms": "6"})
        assert again.settings["retention.ms"] == "5"


async def test_keys_go_by_fnv1a64_unless_the_topic_says_otherwise(topics: Topics) -> None:
    await topics.create("ours")
    await topics.create("theirs", settings={"levada.router": "murmur2"})
    assert (topics.config_of("ours").router, topics.config_of("theirs").router) == ("fnv1a64", "murmur2")


@pytest.mark.parametrize(
    ("name", "partitions", "settings", "error"),
    [
        ("a/b", 1, {}, InvalidTopicName),
        ("dlq.x", 1, {}, ReservedName),
        ("__levada.nodes", 1, {}, ReservedName),
        ("t", 0, {}, InvalidPartitions),
        ("t", 100_001, {}, InvalidPartitions),
        ("t", 1, {"retention.mss": "1"}, InvalidConfig),
        ("t", 1, {"retention.ms": "soon"}, InvalidConfig),
    ],
)
async def test_what_cannot_be_made_leaves_nothing(
    topics: Topics, name: str, partitions: int, settings: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await topics.create(name, partitions, settings)
    assert list(topics.all()) == []


async def test_many_at_once_make_one_topic(topics: Topics) -> None:
    made = await asyncio.gather(*(topics.create("t", 4) for _ in range(10)))
    assert [outcome for _, outcome in made].count(Creation.NEW) == 1
    assert len({info.id for info, _ in made}) == 1


async def test_somebody_deletes_it_while_it_is_expanded(engine: EmbeddedEngine, topics: Topics) -> None:
    before, _ = await topics.create("t", 2)
    expand = engine.expand

    async def too_late(name: str, partitions: int) -> TopicInfo:
        await engine.delete(name)
        return await expand(name, partitions)

    engine.expand = too_late  # type: ignore[method-assign]
    made, outcome = await topics.create("t", 4)
    assert (made.partitions, outcome, made.id != before.id) == (4, Creation.NEW, True)


async def test_settings_are_set_and_unset_all_or_none(topics: Topics) -> None:
    await topics.create("t", settings={"segment.ms": "100"})
    changed = await topics.alter("t", {"retention.ms": "5", "segment.ms": None})
    assert dict(changed.settings) == {"levada.router": "fnv1a64", "retention.ms": "5"}
    wrong: list[dict[str, Any]] = [{"retention.ms": "x"}, {"nonsense": "1"}, {"nonsense": None}]
    for one in wrong:
        with pytest.raises(InvalidConfig):
            await topics.alter("t", {"segment.bytes": "100", **one})
    assert dict(topics.get("t").settings) == dict(changed.settings)


async def test_every_setting_is_described_with_where_it_comes_from(engine: EmbeddedEngine, topics: Topics) -> None:
    await topics.create("t", 2, {"segment.ms": "100"})
    about = await topics.describe("t")
    shown = {each.name: (each.value, each.is_set) for each in about.settings}
    assert shown["segment.ms"] == ("100", True)
    assert shown["retention.ms"] == ("777", False), "the broker's default"
    assert shown["compression.type"] == ("producer", False)
    assert [tuple(bounds) for bounds in about.bounds] == [(0, 0, 0), (0, 0, 0)]
    await engine.alter_broker(Level.BROKER, {"log.retention.ms": "888"})
    assert ("retention.ms", "888") in [each[:2] for each in (await topics.describe("t")).settings]


async def test_the_brokers_own_are_listed_where_asked_for_and_cannot_be_deleted(
    engine: EmbeddedEngine, topics: Topics
) -> None:
    await topics.create("t")
    await engine.create(TopicSpec(name="__levada.stage", partitions=1))
    assert [info.name for info in topics.all()] == ["t"]
    assert {"t", "__levada.stage", "__levada.topics"} <= {info.name for info in topics.all(internal=True)}
    with pytest.raises(PolicyViolation, match="bookkeeping"):
        await topics.delete("__levada.topics")


async def test_deleting_can_be_forbidden_while_the_broker_runs(engine: EmbeddedEngine, topics: Topics) -> None:
    await topics.create("t")
    await engine.alter_broker(Level.BROKER, {"delete.topic.enable": "false"})
    with pytest.raises(PolicyViolation, match=r"delete\.topic\.enable"):
        await topics.delete("t")
    await engine.alter_broker(Level.BROKER, {"delete.topic.enable": None})
    await topics.delete("t")
    assert list(topics.all()) == []


async def test_what_is_not_there(topics: Topics) -> None:
    for change in (
        topics.expand("nope", 2),
        topics.alter("nope", {"retention.ms": "1"}),
        topics.delete("nope"),
        topics.describe("nope"),
    ):
        with pytest.raises(UnknownTopic, match="nope"):
            await change
