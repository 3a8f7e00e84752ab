"""Administering topics with every client that can, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from support import clients, raw
from support.brokers import Broker, levada_only
from support.driver import Client, Driver, Refused, Sent
from support.wait import wait_until

SETTLE_S = 60.0


@pytest.mark.parametrize("name", clients.able("admin"))
def test_topics_are_created_expanded_and_deleted(name: str, topic: str, with_client: Callable[[str], Client]) -> None:
    """1 and 3, over the Kafka wire."""
    client = with_client(name)
    client.create(topic, 4)
    wait_until(lambda: client.topics().get(topic) == 4, SETTLE_S, "created")
    client.produce(topic, [Sent(b"%d" % index, None, index) for index in range(4)], idempotent=True)
    with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
        client.create(topic, 4)
    client.expand(topic, 6)
    wait_until(lambda: client.topics().get(topic) == 6, SETTLE_S, "expanded")
    for fewer_or_same in (3, 6):
        with pytest.raises(Refused, match="INVALID_PARTITIONS"):
            client.expand(topic, fewer_or_same)
    assert client.topics()[topic] == 6
    assert client.bounds(topic) == {**dict.fromkeys(range(4), (0, 1)), 4: (0, 0), 5: (0, 0)}
    client.delete(topic)
    wait_until(lambda: topic not in client.topics(), SETTLE_S, "deleted")
    with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.delete(topic)


@pytest.mark.parametrize("name", clients.able("admin"))
def test_settings_are_described_changed_and_refused_when_wrong(
    name: str, topic: str, with_client: Callable[[str], Client]
) -> None:
    client = with_client(name)
    client.create(topic, 1, {"retention.ms": "3600000", "cleanup.policy": "compact,delete"})
    settings = wait_until(lambda: client.configs(topic), SETTLE_S, "described")
    assert settings["retention.ms"] == "3600000"
    assert set(settings["cleanup.policy"].split(",")) == {"compact", "delete"}
    assert settings["segment.bytes"] == "1073741824", "settings at their default are listed too"
    client.alter(topic, {"retention.ms": "7200000"})
    wait_until(lambda: client.configs(topic)["retention.ms"] == "7200000", SETTLE_S, "changed")
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        client.alter(topic, {"retention.ms": "soon"})
    with pytest.raises(Refused, match=r"INVALID_CONFIG|Unrecognized configs"):
        client.alter(topic, {"no.such.setting": "1"})
    assert client.configs(topic)["retention.ms"] == "7200000"
    client.delete(topic)


@pytest.mark.parametrize("name", clients.able("admin"))
def test_a_topic_that_cannot_be_is_refused_by_the_rule_it_breaks(
    name: str, topic: str, with_client: Callable[[str], Client]
) -> None:
    client = with_client(name)
    with pytest.raises(Refused, match="INVALID_PARTITIONS"):
        client.create(topic, 0)
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        client.create(topic, 1, {"segment.bytes": "many"})
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        client.create(topic, 1, {"no.such.setting": "1"})
    assert topic not in client.topics()


BAD_NAMES = ["", "x" * 250, ".", "..", "a/b", "a b", "ü"]


@pytest.mark.parametrize("bad", BAD_NAMES)
def test_a_name_that_breaks_the_rule_is_refused_with_it(bad: str, with_client: Callable[[str], Client]) -> None:
    """4."""
    with pytest.raises(Refused, match=r"INVALID_TOPIC"):
        with_client("java-4.3").create(bad)


@levada_only
@pytest.mark.parametrize("ours", ["__levada.x", "dlq.x"])
def test_names_that_are_ours_are_refused(ours: str, with_client: Callable[[str], Client]) -> None:
    """4."""
    with pytest.raises(Refused):
        with_client("java-4.3").create(ours)
    assert ours not in with_client("librdkafka").topics()


def test_the_longest_and_the_oddest_allowed_names_are_taken(with_client: Callable[[str], Client]) -> None:
    """4."""
    client = with_client("java-4.3")
    for good in ("a.b_c-9", "L" * 249, "..."):
        client.create(good)
        wait_until(partial(has_topic, client, good), SETTLE_S, "created")
        client.produce(good, [Sent(b"v", None, 0)])
        client.delete(good)


def has_topic(client: Client, topic: str) -> bool:
    return topic in client.topics()


def test_an_empty_topic_is_there_after_kill_9(own_broker: Broker, drivers: Callable[[str], Driver], topic: str) -> None:
    """2."""
    client = Client(drivers("librdkafka"), own_broker.bootstrap)
    client.create(topic, 6)
    own_broker.kill()
    own_broker.start()
    wait_until(lambda: client.topics().get(topic) == 6, SETTLE_S, "six partitions after the restart")
    assert client.bounds(topic) == dict.fromkeys(range(6), (0, 0))


def test_a_deleted_topic_leaves_no_files_and_starts_anew_when_created_again(
    broker: Broker, admin: Client, topic: str
) -> None:
    """3."""
    admin.create(topic, 2)
    admin.produce(topic, [Sent(b"old", None, index) for index in (0, 0, 1)])
    admin.commit("readers", topic, {0: 2, 1: 1})
    first_id = topic_id(admin.bootstrap, topic)
    admin.delete(topic)
    root: Path = broker.partition_dir(topic, 0).parent
    wait_until(lambda: not list(root.glob(f"{topic}-*")), SETTLE_S, lambda: f"{list(root.glob(f'{topic}-*'))} are gone")
    wait_until(lambda: topic not in admin.topics(), SETTLE_S, "deleted")
    admin.create(topic, 2)
    wait_until(lambda: topic in admin.topics(), SETTLE_S, "created again")
    assert admin.bounds(topic) == {0: (0, 0), 1: (0, 0)}
    assert admin.committed("readers", topic) == {0: None, 1: None}
    assert admin.produce(topic, [Sent(b"new", None, 0)]) == [(0, 0)]
    assert [seen.value for seen in admin.consume(topic)] == [b"new"]
    assert topic_id(admin.bootstrap, topic) != first_id


def topic_id(bootstrap: str, topic: str) -> object:
    module = raw.schema("metadata", 12)
    wanted = module.MetadataRequestTopic(topic_id=None, name=topic)
    request = module.MetadataRequest(
        topics=(wanted,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    with raw.Raw(bootstrap) as connection:
        return connection.ask(request).topics[0].topic_id


def test_a_topic_is_made_when_a_producer_asks_for_it(topic: str, admin: Client) -> None:
    admin.produce(topic, [Sent(b"first")])
    assert admin.topics()[topic] == 1
    assert [seen.value for seen in admin.consume(topic)] == [b"first"]
