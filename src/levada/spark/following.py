"""Where a stream goes on after a batch, given what the cluster has now: new partitions, and what became of the old ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from levada.spark.history import History
from levada.spark.losses import CUT, GONE, REPLACED, UNWANTED, Lost, below
from levada.spark.offsets import Bounds
from levada.spark.options.topics import Topics, wants
from levada.spark.stream_offset import StreamOffset
from levada.spark.subscription import Found
from levada.wire.answers import TopicPartition

#: Of so many partitions that are gone the position is kept: topics that come and go for years are not to fill the checkpoint.
_GONE_MAX: Final = 1_000


class Following(NamedTuple):
    """Where each partition is read on."""

    begins: Mapping[TopicPartition, int]
    #: Those that do not begin where the batch before ended.
    moved: Mapping[TopicPartition, int]
    lost: tuple[Lost, ...]


def follow(
    before: StreamOffset, wanted: Topics, there: Found, bounds: Mapping[TopicPartition, Bounds], history: History
) -> Following:
    """A partition goes on where it was. A new one begins at 0: whatever it has, it got since the stream began; a new topic at its beginning.

    Lost is what was deleted before it was read, from its first to its last offset, and with a topic that is gone, or is another of
    the same name, all of it. One that was gone and is there again, by its id the same, goes on where it was.
    """
    begins: dict[TopicPartition, int] = {}
    moved: dict[TopicPartition, int] = {}
    lost = [
        Lost(at.topic, at.partition, read, None, GONE if wants(wanted, at) else UNWANTED)
        for at, read in before.to.items()
        if at not in bounds
    ]
    known = {**_back(before, there), **before.to}
    topics = {at.topic for at in known}
    for at in there.partitions:
        start, end = bounds[at]
        read = known.get(at)
        begin = read or 0
        if at.topic not in topics:
            begin = _earliest(at, start, history)
        elif read is not None and _is_another(before, there, at.topic):
            lost.append(Lost(at.topic, at.partition, read, None, REPLACED))
            begin = 0
        elif read is not None and read > end:
            lost.append(Lost(at.topic, at.partition, end, read, CUT))
            begin = end
        hole = _hole(at, begin, start, history)
        if hole is not None:
            lost.append(hole)
            begin = hole.end or begin
        begins[at] = begin
        if begin != before.to.get(at):
            moved[at] = begin
    return Following(begins, moved, tuple(lost))


def first(begins: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, Bounds], history: History) -> Following:
    """Where a query begins: at these offsets, or behind what is lost of them."""
    holes = {at: hole for at, begin in begins.items() if (hole := _hole(at, begin, bounds[at].start, history))}
    moved = {at: holes[at].end or begin if at in holes else begin for at, begin in begins.items()}
    return Following(moved, moved, tuple(holes.values()))


def _earliest(at: TopicPartition, start: int, history: History) -> int:
    held = history.held(at) if start > 0 else None
    return start if held is None else min(start, held.start)


def _hole(at: TopicPartition, begin: int, start: int, history: History) -> Lost | None:
    """What is lost from `begin` on, if anything is. A hole further on is told by the batch that gets there."""
    if begin >= start:
        return None
    gaps = below(at, begin, start, start, history.held(at, up_to=start))
    return gaps[0] if gaps and gaps[0].start == begin else None


def gone(before: StreamOffset, there: Found) -> dict[TopicPartition, int]:
    """Where those partitions were that are not there now, the ones that were there a moment ago first. Of topics without an id nothing is kept."""
    known = {**before.to, **before.gone}
    missing = {at: read for at, read in known.items() if at not in there.partitions}
    kept = [at for at in missing if at.topic in before.ids and not _is_another(before, there, at.topic)]
    return {at: missing[at] for at in kept[:_GONE_MAX]}


def _back(before: StreamOffset, there: Found) -> dict[TopicPartition, int]:
    """Where those were that were gone and are of topics that are there again, and are the same."""
    same = {topic for topic, known in before.ids.items() if there.ids.get(topic) == known}
    return {at: read for at, read in before.gone.items() if at.topic in same}


def _is_another(before: StreamOffset, there: Found, topic: str) -> bool:
    """Whether the topic was made anew since: told by its id, where the brokers give one."""
    known = before.ids.get(topic)
    return known is not None and there.ids.get(topic, known) != known
