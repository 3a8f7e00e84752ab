"""How far a stream has come, as Spark writes it into the checkpoint before it runs a batch.

    {"to":   {"orders": {"0": 105}},     up to where the batch reads
     "from": {"orders": {"0": 100}},     where it begins, for partitions that do not go on where the batch before it ended
     "ids":  {"orders": "1f3a…"},        which topics these are
     "gone": {"users": {"0": 7}},        where those were that are not there now: the same topic, come back, goes on
     "lost": [{"topic": "orders", "partition": 0, "start": 40, "end": 100, "why": "…"}]}    what it could not read

A query begins at `{"initial": true}`, which says nothing about offsets on purpose: Spark asks for the beginning again as long as
the first batch has not completed, and "latest" would be another place by then. What the first batch reads is in its end alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

from levada.errors import LevadaError
from levada.spark.fetch import Range
from levada.spark.losses import Lost
from levada.wire.answers import TopicPartition

INITIAL: Final[dict[str, Any]] = {"initial": True}

Offsets = Mapping[TopicPartition, int]


class StreamError(LevadaError):
    """The checkpoint does not fit the source."""


class StreamOffset(NamedTuple):
    """The end of a batch."""

    to: Offsets
    begins: Offsets
    ids: Mapping[str, str]
    lost: tuple[Lost, ...] = ()
    gone: Mapping[TopicPartition, int] = {}

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"to": _by_topic(self.to)}
        if self.begins:
            told["from"] = _by_topic(self.begins)
        told["ids"] = dict(sorted(self.ids.items()))
        if self.gone:
            told["gone"] = _by_topic(self.gone)
        if self.lost:
            told["lost"] = [one.to_json() for one in self.lost]
        return told

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Self | None:
        """None for the beginning of a query. StreamError for what is no offset of this source."""
        if told == INITIAL:
            return None
        try:
            return cls(
                _by_partition(told["to"]),
                _by_partition(told.get("from", {})),
                told.get("ids", {}),
                tuple(Lost.of_json(one) for one in told.get("lost", ())),
                _by_partition(told.get("gone", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StreamError(f"the checkpoint has {told!r}, which is no offset of format levada") from error


def ranges(start: StreamOffset | None, end: StreamOffset) -> list[Range]:
    """What the batch between these two reads. StreamError where a partition would begin after its end, rather than read nothing."""
    before: Offsets = start.to if start is not None else {}
    found = []
    for at, stop in end.to.items():
        begin = end.begins.get(at, before.get(at))
        if begin is None:
            raise StreamError(f"the checkpoint does not say where {at} begins")
        if begin > stop:
            raise StreamError(
                f"{at} would be read from offset {begin} up to {stop}: the checkpoint is not of this query"
            )
        if begin < stop:
            found.append(Range(at.topic, at.partition, begin, stop))
    return found


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    told: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        told.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return told


def _by_partition(told: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    pairs: Iterable[tuple[TopicPartition, int]] = (
        (TopicPartition(topic, int(partition)), offset)
        for topic, held in told.items()
        for partition, offset in held.items()
    )
    return dict(pairs)
