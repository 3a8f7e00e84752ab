"""Broker-wide settings as they stand now: what was changed while running, over what was given at start, over our defaults.

Everything is under its broker-wide name: the names of `BROKER_SETTINGS`, and for the defaults of topics the names Kafka
gives them (`log.retention.ms` is the default of `retention.ms`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from levada.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    Setting,
    coarse_names,
    topic_names_by_synonym,
)
from levada.errors import InvalidConfig, nearest


class Level(enum.Enum):
    """Who set a value, strongest first. Only the first two change while the broker runs."""

    BROKER = "this broker"
    ALL_BROKERS = "all brokers"
    START = "file, environment or flags"
    DEFAULT = "default"


_RUNNING: Final = (Level.BROKER, Level.ALL_BROKERS)


class LiveSettings:
    """The one place that says what a broker-wide setting is. `watch` is called after every change."""

    def __init__(self, config: BrokerConfig) -> None:
        start = {**config.settings, **{_broker_wide(name): value for name, value in config.topic.items()}}
        self._levels: dict[Level, Mapping[str, str]] = {Level.BROKER: {}, Level.ALL_BROKERS: {}, Level.START: start}
        self._now: Mapping[str, str] = start
        self._watchers: list[Callable[[], None]] = []
        self.topic_defaults: Mapping[str, str] = dict(config.topic)

    def text(self, name: str) -> str:
        return self._now[name] if name in self._now else known(name).default

    def number(self, name: str) -> int:
        return int(self.text(name))

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def at(self, level: Level) -> Mapping[str, str]:
        """What was set at this level, and nothing else."""
        return self._levels[level]

    def chain(self, name: str) -> list[tuple[Level, str]]:
        """Every value the setting has, from the one that counts down to the default."""
        given = [(level, settings[name]) for level, settings in self._levels.items() if name in settings]
        return [*given, (Level.DEFAULT, known(name).default)]

    def changed(self, level: Level, changes: Mapping[str, str | None]) -> Mapping[str, str]:
        """What the level would say with these set or, where None, unset. Changes nothing. InvalidConfig.

        Unsetting what is not set is fine, whatever its name: Kafka's tools clear settings nobody has set.
        """
        for name, value in changes.items():
            if value is not None:
                check(name, value)
        merged = {**self._levels[level], **changes}
        return {name: value for name, value in merged.items() if value is not None}

    def put(self, level: Level, settings: Mapping[str, str]) -> None:
        """Have the level say this from now on."""
        assert level in _RUNNING, f"{level} is fixed while the broker runs"
        self._levels[level] = dict(settings)
        self._now = {name: value for at in reversed(self._levels) for name, value in self._levels[at].items()}
        self.topic_defaults = {
            name: self._now[_broker_wide(name)] for name in TOPIC_SETTINGS if _broker_wide(name) in self._now
        }
        for called in tuple(self._watchers):
            called()

    def watch(self, called: Callable[[], None]) -> None:
        self._watchers.append(called)


def known(name: str) -> Setting:
    """The setting of this broker-wide name. InvalidConfig, which suggests what may have been meant."""
    if name in BROKER_SETTINGS:
        return BROKER_SETTINGS[name]
    short = topic_names_by_synonym().get(name, name)
    if short in TOPIC_SETTINGS and _broker_wide(short) == name:
        return replace(TOPIC_SETTINGS[short], name=name)
    if short in TOPIC_SETTINGS:
        raise InvalidConfig(f"{name} is a setting of topics; for all of them it is {TOPIC_SETTINGS[short].synonym}")
    raise InvalidConfig(f"unknown broker setting {name!r}{nearest(name, _names())}")


def is_changeable(name: str) -> bool:
    """May it be changed while the broker runs?"""
    return name in topic_names_by_synonym() or (name in BROKER_SETTINGS and not BROKER_SETTINGS[name].read_only)


def check(name: str, value: str) -> None:
    """InvalidConfig, unless this may be set while the broker runs."""
    if name in coarse_names():
        raise InvalidConfig(f"{name} is read only when the broker starts; while it runs, {coarse_names()[name]} is set")
    setting = known(name)
    if not is_changeable(name):
        raise InvalidConfig(f"cannot update these configs dynamically: {name}; it is {setting.doc}")
    setting.validate(value)


def _names() -> set[str]:
    return {*BROKER_SETTINGS, *topic_names_by_synonym()}


def _broker_wide(topic_setting: str) -> str:
    return TOPIC_SETTINGS[topic_setting].synonym or topic_setting
