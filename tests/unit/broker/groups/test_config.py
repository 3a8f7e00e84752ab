from __future__ import annotations

import time
from pathlib import Path

import pytest

from levada.broker.groups import GroupConfig, now_ms
from levada.config import BrokerConfig


def test_the_settings_of_groups_are_the_brokers() -> None:
    settings = {
        "group.min.session.timeout.ms": "1",
        "group.max.session.timeout.ms": "2",
        "group.max.size": "3",
        "group.initial.rebalance.delay.ms": "4",
    }
    config = GroupConfig.of(BrokerConfig(data=Path("data"), settings=settings))
    assert (config.session_ms_min, config.session_ms_max, config.size_max, config.initial_delay_ms) == (1, 2, 3, 4)


def test_defaults_of_groups_and_broker_agree() -> None:
    assert GroupConfig.of(BrokerConfig(data=Path("data"))) == GroupConfig()


def test_the_clock_of_groups_does_not_follow_a_wall_clock_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    before_ms = now_ms()
    assert abs(before_ms - time.time() * 1000) < 60_000
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert 0 <= now_ms() - before_ms < 60_000
