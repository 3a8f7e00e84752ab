"""Where a read begins and ends, as it is said: `earliest`, `latest`, `group`, an offset or a time for each partition, or one time for all.

A time comes before times by partition, and these before offsets, where several are given, as in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from levada.spark.options.reading import Given, WrongOption
from levada.wire.answers import EARLIEST, LATEST, TopicPartition

Word = Literal["earliest", "latest", "group"]
WORDS: Final[tuple[Word, ...]] = get_args(Word)

_OFFSETS: Final = '{"orders": {"0": 23, "1": -2}}'
_TIMES: Final = '{"orders": {"0": 1735689600000}}'


class At(NamedTuple):
    """The same word for every partition."""

    option: str
    word: Word


class Offsets(NamedTuple):
    """An offset for each partition; −1 is its end, −2 its beginning."""

    option: str
    offsets: Mapping[TopicPartition, int]


class Times(NamedTuple):
    """The first record at or after a time in ms: one for all partitions, or one for each."""

    option: str
    times: Mapping[TopicPartition, int] | int
    #: Where a partition has none so late: its end, or an error.
    or_latest: bool


Position = At | Offsets | Times


def starting(given: Given) -> Position | None:
    """Where to begin; None where nothing is said of it. WrongOption."""
    or_latest = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"
    return _position(given, "starting", or_latest=or_latest)


def ending(given: Given) -> Position | None:
    """Where to end; None where nothing is said of it. WrongOption."""
    return _position(given, "ending", or_latest=True)


def _position(given: Given, which: str, *, or_latest: bool) -> Position | None:
    # All three are looked at, whichever is used: what is wrong is told.
    time = given.number(f"{which}Timestamp")
    times = given.json_object(f"{which}OffsetsByTimestamp", _TIMES)
    offsets = _offsets(given, f"{which}Offsets")
    by_time = _numbers(f"{which}OffsetsByTimestamp", times, _TIMES, low=0) if times is not None else None
    if time is not None:
        return Times(f"{which}Timestamp", time, or_latest)
    if by_time is not None:
        return Times(f"{which}OffsetsByTimestamp", by_time, or_latest)
    return offsets


def _offsets(given: Given, name: str) -> Position | None:
    value = given.text(name)
    if value is None:
        return None
    for word in WORDS:
        if value.lower() == word:
            return At(name, word)
    if not value.startswith("{"):
        raise WrongOption(name, value, f"{', '.join(WORDS)}, or JSON like {_OFFSETS} is")
    found = given.json_object(name, _OFFSETS) or {}
    return Offsets(name, _numbers(name, found, _OFFSETS, low=EARLIEST))


def _numbers(name: str, found: Mapping[str, Any], example: str, *, low: int) -> dict[TopicPartition, int]:
    """{"topic": {"0": number}} by partition."""
    numbers: dict[TopicPartition, int] = {}
    for topic, held in found.items():
        if not isinstance(held, dict) or not held:
            raise WrongOption(name, str(held), f"an object with the partitions of {topic} is, e.g. {example}")
        for partition, number in held.items():
            if not partition.isdecimal():
                raise WrongOption(name, f"{topic}: {partition}", f"the number of a partition is, e.g. {example}")
            if isinstance(number, bool) or not isinstance(number, int) or number < low:
                least = f"from {low} on" if low == 0 else f"from 0 on, {LATEST} (latest) or {EARLIEST} (earliest)"
                raise WrongOption(name, f"{topic}-{partition}: {number}", f"a number {least} is")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers
