"""How much of a topic a job reads: from where to where, in each partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

from levada.errors import InvalidRequest, OffsetOutOfRange
from levada.spark.history import history_of
from levada.spark.losses import Lost, below
from levada.spark.offsets import Logs
from levada.spark.options.positions import Times
from levada.wire.answers import TopicPartition
from levada.wire.blocking import BlockingClient

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SAYS: Final = (
    'earliest, latest, an offset, offsets such as {"0": 120, "1": 98}, or a time such as 2026-01-31T12:00:00Z'
)

#: So often something is read once more whose beginning retention has taken; each time there is less of it.
_TRIES_MAX: Final = 10

#: Partition → offset.
Offsets = Mapping[int, int]
#: Partition → from this offset up to, not including, that.
Ranges = Mapping[int, tuple[int, int]]


class Moment(NamedTuple):
    """The first record at or after this time, in each partition."""

    timestamp_ms: int


Where = Literal["earliest", "latest"] | int | Moment | Offsets


def where(text: str, option: str) -> Where:
    """As a person says it. InvalidRequest, naming what can be said."""
    match text:
        case "earliest" | "latest":
            return text
    if text.isdecimal():
        return int(text)
    if text.startswith("{"):
        return _offsets(text, option)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{option} {text!r}: must be {_SAYS}") from None
    return Moment(((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1))


def _offsets(text: str, option: str) -> Offsets:
    try:
        offsets = {int(partition): offset for partition, offset in json.loads(text).items()}
    except (ValueError, AttributeError):
        raise InvalidRequest(f"{option} {text!r}: must be {_SAYS}") from None
    for partition, offset in offsets.items():
        if partition < 0 or isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise InvalidRequest(f"{option}: partition {partition}: {offset!r} is no offset; from 0 on they are")
    return offsets


class Left(NamedTuple):
    """What is still there of some offsets, and what is not. Where something is lost in the middle of a partition, the next `ranges` go on behind it."""

    ranges: Sequence[Ranges]
    lost: Sequence[Lost]


class History:
    """What there is of a topic now, its archive included: where each partition begins, and up to where it can be read."""

    def __init__(self, client: BlockingClient, topic: str, partitions: int) -> None:
        at = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._topic = topic
        self._archive = history_of(client, [topic])
        self._logs = Logs(client, at, self._archive, read_committed=True)
        self.starts: Offsets = {one.partition: self._logs.earliest(one) for one in at}
        self.ends: Offsets = {one.partition: self._logs.bounds[one].end for one in at}
        #: Where the log itself begins; below it, records come from the archive.
        self.log_starts: Offsets = {one.partition: self._logs.bounds[one].start for one in at}

    def resolve(self, at: Where, option: str) -> dict[int, int]:
        """The offset of each partition; one that is said for all of them is kept within what each holds. OffsetOutOfRange."""
        if isinstance(at, Moment):
            times = self._logs.resolve(Times(option, at.timestamp_ms, True), None)
            return {one.partition: offset for one, offset in times.items()}
        return placed(at, self.starts, self.ends, option)

    def left(self, starts: Offsets, ends: Offsets) -> Left:
        """Of what lies between the two, what log and archive hold, and what neither does any more."""
        lost = {p: self._lost(p, start, end) for p, (start, end) in between(starts, ends).items()}
        stretches = {p: list(around(starts[p], ends[p], gone)) for p, gone in lost.items()}
        turns = zip_longest(*([(p, one) for one in held] for p, held in stretches.items()))
        ranges = [dict(one for one in turn if one is not None) for turn in turns]
        return Left(ranges, [one for gone in lost.values() for one in gone])

    def _lost(self, partition: int, start: int, end: int) -> list[Lost]:
        at, log_start = TopicPartition(self._topic, partition), self.log_starts[partition]
        held = self._archive.held(at, up_to=min(end, log_start)) if start < log_start else None
        return below(at, start, end, log_start, held)


class Begins(Protocol):
    """What there is of a topic at one moment."""

    starts: Offsets
    log_starts: Offsets


_Held = TypeVar("_Held", bound=Begins)
_T = TypeVar("_T")


def steadily(look: Callable[[], _Held], work: Callable[[_Held], _T]) -> _T:
    """Work with what there is now; where it fails, and retention has taken some of that meanwhile, with what there is then."""
    for _ in range(_TRIES_MAX - 1):
        held = look()
        try:
            return work(held)
        except Exception:
            now = look()
            if (now.starts, now.log_starts) == (held.starts, held.log_starts):
                raise
    return work(look())


def placed(at: Where, starts: Offsets, ends: Offsets, option: str) -> dict[int, int]:
    """See `History.resolve`."""
    if at == "earliest":
        return dict(starts)
    if at == "latest":
        return dict(ends)
    if isinstance(at, int):
        return {p: max(starts[p], min(at, ends[p])) for p in starts}
    assert isinstance(at, Mapping)
    for partition, offset in at.items():
        if partition not in starts:
            raise OffsetOutOfRange(f"{option}: there is no partition {partition}; 0 to {len(starts) - 1} are")
        low, high = starts[partition], ends[partition]
        if not low <= offset <= high:
            raise OffsetOutOfRange(
                f"{option}: partition {partition} has no offset {offset}; {low} to {high} are", start=low, end=high
            )
    if missing := sorted(set(starts) - set(at)):
        raise OffsetOutOfRange(f"{option}: no offset is given for partition {missing[0]}; each needs one")
    return dict(at)


def between(starts: Offsets, ends: Offsets) -> dict[int, tuple[int, int]]:
    """The partitions in which something lies between the two."""
    return {p: (starts[p], ends[p]) for p in sorted(ends) if starts[p] < ends[p]}


def around(start: int, end: int, lost: Iterable[Lost]) -> Iterator[tuple[int, int]]:
    """What of these offsets is not lost, in order."""
    for one in lost:
        if start < one.start:
            yield start, one.start
        start = end if one.end is None else one.end
    if start < end:
        yield start, end


def size(ranges: Ranges) -> int:
    """How many offsets these are: at least as many as there are records."""
    return sum(end - start for start, end in ranges.values())
