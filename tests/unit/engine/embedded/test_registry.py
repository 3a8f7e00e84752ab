from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.engine.embedded.registry import Registry, decode, encode, registry_topic, tombstone, with_settings
from levada.engine.port import TopicInfo
from levada.errors import StorageFailed


def make_topic(name: str = "t", *, partitions: int = 1, settings: dict[str, str] | None = None) -> TopicInfo:
    return TopicInfo(name=name, id=uuid4(), partitions=partitions, settings=settings or {})


@pytest.fixture
def registry() -> Registry:
    return Registry(registry_topic("cluster"))


@given(
    name=st.text("abc._-", min_size=1),
    topic_id=st.uuids(),
    partitions=st.integers(1, 100_000),
    settings=st.dictionaries(st.text(), st.text()),
    created_ms=st.integers(0, 2**53),
    replicas=st.lists(st.lists(st.text("n123", min_size=1), min_size=1, max_size=3).map(tuple)).map(tuple),
)
def test_a_record_tells_all_of_a_topic(
    name: str,
    topic_id: UUID,
    partitions: int,
    settings: dict[str, str],
    created_ms: int,
    replicas: tuple[tuple[str, ...], ...],
) -> None:
    info = TopicInfo(name=name, id=topic_id, partitions=partitions, settings=settings, placement=replicas)
    assert decode(*encode(info, created_ms)) == (info, created_ms)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"id": "x", "partitions": 1, "settings": {}}', b"\xff"])
def test_a_record_that_cannot_be_read_is_named(value: bytes) -> None:
    with pytest.raises(StorageFailed, match="record of topic b'orders'"):
        decode(b"orders", value)


def test_a_record_from_before_there_was_a_plan_has_none() -> None:
    value = b'{"id":"8d6f2a63-0f0c-4b1d-9a2e-6c65766164a1","partitions":2,"settings":{},"created_ms":5}'
    info, created_ms = decode(b"orders", value)
    assert (info.partitions, info.placement, created_ms) == (2, (), 5)
    assert encode(info, created_ms) == (b"orders", value)


def test_a_later_record_of_a_name_replaces_the_earlier(registry: Registry) -> None:
    first, second = make_topic("t", partitions=2), make_topic("t", partitions=3)
    registry.load([encode(first, 1), encode(second, 2)])
    assert registry.get("t") == second
    assert registry.by_id(first.id) is None
    assert registry.by_id(second.id) == second
    assert registry.created_ms("t") == 2


def test_a_tombstone_takes_the_topic_away(registry: Registry) -> None:
    info = make_topic("t")
    registry.load([encode(info, 1), tombstone("t"), tombstone("never there")])
    assert registry.get("t") is None
    assert registry.by_id(info.id) is None


def test_the_list_is_sorted_and_made_once_per_change(registry: Registry) -> None:
    for name in ("b", "c", "a"):
        registry.put(make_topic(name), 0)
    assert [info.name for info in registry.all()] == ["__levada.topics", "a", "b", "c"]
    assert registry.all() is registry.all()
    registry.remove("b")
    assert [info.name for info in registry.all()] == ["__levada.topics", "a", "c"]


def test_the_registry_topic_keeps_its_id_in_one_cluster() -> None:
    assert registry_topic("x") == registry_topic("x")
    assert registry_topic("x").id != registry_topic("y").id


def test_settings_are_set_and_unset_together() -> None:
    info = make_topic(settings={"retention.ms": "1", "segment.bytes": "100"})
    changed = with_settings(info, {"retention.ms": None, "max.message.bytes": "5", "never.set": None})
    assert changed.settings == {"segment.bytes": "100", "max.message.bytes": "5"}
    assert info.settings == {"retention.ms": "1", "segment.bytes": "100"}


async def test_a_watcher_is_told_of_the_next_change(registry: Registry) -> None:
    version = registry.version
    watcher = asyncio.create_task(registry.changed(version))
    await asyncio.sleep(0)
    assert not watcher.done()
    registry.put(make_topic("t"), 0)
    assert await watcher == registry.version > version
    assert await registry.changed(version) == registry.version


async def test_a_watcher_that_gave_up_is_forgotten(registry: Registry) -> None:
    watcher = asyncio.create_task(registry.changed(registry.version))
    await asyncio.sleep(0)
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)
    assert not registry._changed
