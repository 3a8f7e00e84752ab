"""Which topics and partitions are read: `subscribe`, `subscribePattern` or `assign`, one of the three."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from levada.spark.options.reading import Given, WrongOption
from levada.wire.answers import TopicPartition

_EXAMPLE: Final = '{"orders": [0, 1]}'


class Subscribe(NamedTuple):
    """All partitions of these topics, those that will be made included."""

    topics: tuple[str, ...]


class SubscribePattern(NamedTuple):
    """All partitions of every topic whose whole name is matched, topics that will be made included. Internal topics never are."""

    pattern: str

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.pattern, topic) is not None


class Assign(NamedTuple):
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


Topics = Subscribe | SubscribePattern | Assign


def wants(wanted: Topics, at: TopicPartition) -> bool:
    """Whether this partition is read, if it is there."""
    match wanted:
        case Subscribe(names):
            return at.topic in names
        case SubscribePattern():
            return wanted.matches(at.topic)
    return at in wanted.partitions


def topics(given: Given) -> Topics:
    """Take the one that is given. WrongOption."""
    names = ("subscribe", "subscribePattern", "assign")
    found = {name: value for name in names if (value := given.text(name)) is not None}
    if len(found) != 1:
        value = ", ".join(found) or None
        raise WrongOption("subscribe, subscribePattern or assign", value, "one of the three is needed")
    ((name, value),) = found.items()
    match name:
        case "subscribe":
            wanted = tuple(dict.fromkeys(one.strip() for one in value.split(",") if one.strip()))
            if not wanted:
                raise WrongOption(name, value, "names of topics with commas between them are")
            return Subscribe(wanted)
        case "subscribePattern":
            try:
                re.compile(value)
            except re.error as error:
                raise WrongOption(name, value, f"a regular expression is ({error})") from None
            return SubscribePattern(value)
    return Assign(_partitions(given.json_object("assign", _EXAMPLE) or {}, value))


def _partitions(found: Mapping[str, Any], value: str) -> tuple[TopicPartition, ...]:
    partitions: dict[TopicPartition, None] = {}
    for topic, held in found.items():
        if not isinstance(held, list) or not held:
            raise WrongOption("assign", value, f"JSON like {_EXAMPLE} is")
        for partition in held:
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise WrongOption("assign", f"{topic}: {partition}", f"the number of a partition is, e.g. {_EXAMPLE}")
            partitions[TopicPartition(topic, partition)] = None
    if not partitions:
        raise WrongOption("assign", value, f"JSON like {_EXAMPLE} is")
    return tuple(partitions)
