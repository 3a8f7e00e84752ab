from __future__ import annotations

from pathlib import Path

import pytest

from levada.config import BrokerConfig
from levada.engine.settings import Level, LiveSettings, is_changeable
from levada.errors import InvalidConfig


def live(**topic: str) -> LiveSettings:
    """Settings of a broker started with num.partitions=2 and these topic defaults, `_` for `.`."""
    defaults = {name.replace("_", "."): value for name, value in topic.items()}
    return LiveSettings(BrokerConfig(data=Path("d"), settings={"num.partitions": "2"}, topic=defaults))


def set_(settings: LiveSettings, level: Level, **changes: str | None) -> None:
    wanted = settings.changed(level, {name.replace("_", "."): value for name, value in changes.items()})
    settings.put(level, wanted)


def test_this_broker_comes_before_all_brokers_before_the_start_before_the_default() -> None:
    settings = live()
    assert settings.number("num.partitions") == 2
    assert settings.number("group.max.size") == 2**31 - 1
    set_(settings, Level.ALL_BROKERS, num_partitions="3")
    assert settings.number("num.partitions") == 3
    set_(settings, Level.BROKER, num_partitions="4")
    assert settings.number("num.partitions") == 4
    assert settings.chain("num.partitions") == [
        (Level.BROKER, "4"),
        (Level.ALL_BROKERS, "3"),
        (Level.START, "2"),
        (Level.DEFAULT, "1"),
    ]
    set_(settings, Level.BROKER, num_partitions=None)
    assert settings.number("num.partitions") == 3


def test_a_topics_default_is_set_by_its_broker_wide_name_at_every_level() -> None:
    settings = live(retention_ms="10", levada_router="fnv1a64")
    assert settings.topic_defaults == {"retention.ms": "10", "levada.router": "fnv1a64"}
    set_(settings, Level.ALL_BROKERS, log_retention_ms="20", message_max_bytes="1000")
    expected = {"retention.ms": "20", "levada.router": "fnv1a64", "max.message.bytes": "1000"}
    assert settings.topic_defaults == expected
    set_(settings, Level.ALL_BROKERS, log_retention_ms=None)
    assert settings.topic_defaults["retention.ms"] == "10"
    assert settings.chain("log.retention.ms") == [(Level.START, "10"), (Level.DEFAULT, "604800000")]


def test_whoever_watches_is_called_once_the_change_holds() -> None:
    settings = live()
    seen: list[int] = []
    settings.watch(lambda: seen.append(settings.number("num.partitions")))
    set_(settings, Level.BROKER, num_partitions="7")
    assert seen == [7]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("num.partitions", "0", "from 1 to"),
        ("num.partitions", "many", "whole number"),
        ("log.retention.ms", "soon", "log.retention.ms='soon'"),
        ("log.dirs", "/x", "cannot update these configs dynamically: log.dirs"),
        ("node.id", "1", "cannot update these configs dynamically: node.id"),
        ("log.retention.hours", "1", "log.retention.ms is set"),
        ("retention.ms", "1", "for all of them it is log.retention.ms"),
        ("num.partition", "1", "did you mean num.partitions?"),
    ],
)
def test_what_may_not_be_set_is_refused_by_name_and_changes_nothing(name: str, value: str, said: str) -> None:
    settings = live()
    with pytest.raises(InvalidConfig) as refusal:
        settings.changed(
            Level.BROKER, {"num.partitions": "9", name: value} if name != "num.partitions" else {name: value}
        )
    assert said in str(refusal.value)
    assert settings.at(Level.BROKER) == {}
    assert settings.number("num.partitions") == 2


def test_unsetting_what_is_not_set_is_fine_whatever_its_name() -> None:
    """Kafka's tools clear throttles that nobody has set."""
    assert live().changed(Level.BROKER, {"leader.replication.throttled.rate": None, "num.partitions": None}) == {}


def test_what_is_known_only_at_start_is_not_changeable() -> None:
    assert is_changeable("log.retention.ms")
    assert is_changeable("auto.create.topics.enable")
    assert not is_changeable("listeners")
    assert not is_changeable("nonsense")
