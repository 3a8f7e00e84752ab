"""A group id has one kind at a time."""

from __future__ import annotations

import pytest

from levada.broker.streams import Kind
from levada.errors import GroupKindMismatch
from support.streams import Streams


def test_a_dynamic_group_with_members_is_not_registered() -> None:
    streams = Streams()
    member = streams.join()
    with pytest.raises(GroupKindMismatch, match="dynamic"):
        streams.register(2)
    streams.leave(member)
    assert streams.register(2).generation > member.generation
    assert streams.groups.kind("g") is Kind.FIXED


def test_a_registered_group_is_not_joined_even_without_consumers() -> None:
    streams = Streams()
    streams.register(2)
    with pytest.raises(GroupKindMismatch, match="registered with 2 consumers"):
        streams.join()


def test_a_group_with_kafkas_members_is_neither_joined_nor_registered() -> None:
    streams = Streams()
    streams.held_by_kafka.add("g")
    for attempt in (streams.join, lambda: streams.register(2), lambda: streams.attach(0)):
        with pytest.raises(GroupKindMismatch, match="Kafka's protocol"):
            attempt()
    assert streams.groups.list() == []


def test_generations_go_on_where_kafkas_ended() -> None:
    streams = Streams()
    streams.kafka_generations = {"g": 7, "h": 4}
    assert streams.join().generation == 8
    assert streams.register(2, group="h").generation == 5


def test_a_group_is_held_by_members_and_by_a_registration() -> None:
    streams = Streams()
    assert not streams.groups.holds("g")
    member = streams.join()
    assert streams.groups.holds("g")
    streams.leave(member)
    assert not streams.groups.holds("g")
    assert streams.groups.give_up("g", streams.now_ms) == 2
    assert streams.groups.kind("g") is None
    streams.register(2)
    assert streams.groups.holds("g")
