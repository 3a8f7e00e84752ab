"""Which offsets to archive next: enough of them, or those that have waited long enough, so that files are not small."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from levada.spark.archive.place import ArchiveError
from levada.spark.fetch import Range


class AheadOfLog(ArchiveError):
    """The table holds offsets that the log has never given out, so it is not this log's."""


class TailCut(ArchiveError):
    """The log was cut below what is archived of it, and written on: the table holds records that the log has others for."""


class Held(NamedTuple):
    """What the log of a partition holds, up to the last stable offset."""

    start: int
    end: int


class Limits(NamedTuple):
    """How much is archived at a time."""

    #: A partition is archived when it has so many new offsets …
    rows_min: int = 1_000_000
    #: … or when any have waited so long.
    delay_s_max: float = 600.0
    #: One task writes about so many, twice as many at most; so many tasks at most run for one commit.
    task_rows: int = 1_000_000
    tasks_max: int = 8


class Plan(NamedTuple):
    """What to archive now: ranges in order, of which those of one partition follow one another without a gap."""

    ranges: list[Range]
    #: What was deleted before it was archived.
    lost: list[Range]
    #: How many offsets wait in all, and since when those of a partition do.
    waiting: int
    since: dict[int, float]


def plan(
    topic: str,
    archived: Mapping[int, int | None],
    log: Mapping[int, Held],
    since: Mapping[int, float],
    now: float,
    limits: Limits,
    *,
    all_there_is: bool = False,
) -> Plan:
    """`archived` is the next offset of each partition; `since` what the last plan said. AheadOfLog."""
    plans = Plan([], [], 0, {})
    waiting = 0
    for partition, held in sorted(log.items()):
        begin = _begin(topic, partition, archived.get(partition), held, plans.lost)
        count = held.end - begin
        if count <= 0:
            continue
        waiting += count
        waits = plans.since[partition] = since.get(partition, now)
        if all_there_is or count >= limits.rows_min or now - waits >= limits.delay_s_max:
            _cut(plans.ranges, Range(topic, partition, begin, held.end), limits)
    return plans._replace(ranges=_fair(plans.ranges, limits.tasks_max), waiting=waiting)


def in_doubt(
    archived: Mapping[int, int | None], log: Mapping[int, Held], noted: Mapping[int, int], epochs: Mapping[int, int]
) -> dict[int, int]:
    """Whose tail may have been cut: partitions that had another leader epoch when they were archived, and which one.

    A log that is too short says so itself: see `plan`.
    """
    return {
        one: noted[one]
        for one, epoch in epochs.items()
        if one in noted and noted[one] != epoch and (archived.get(one) or 0) <= log[one].end
    }


def check_tail(topic: str, partition: int, archived: int, epoch_end: int) -> None:
    """TailCut where the leader epoch of what is archived ended before that; an end below 0 is one that nobody knows."""
    if 0 <= epoch_end < archived:
        raise TailCut(
            f"partition {partition} of {topic} is archived up to offset {archived}, and its log was cut at {epoch_end} since and "
            f"written on: offsets {epoch_end} to {archived - 1} of the table are not those of the log. Move the table away, or "
            "set levada.archive to another place"
        )


def _begin(topic: str, partition: int, archived: int | None, held: Held, lost: list[Range]) -> int:
    """Where the partition's history goes on."""
    if archived is None:
        return held.start
    if archived > held.end:
        raise AheadOfLog(
            f"partition {partition} of {topic} is archived up to offset {archived}, and its log ends at {held.end}: the log was "
            "cut, or the archive is not of this log. Move the table away, or set levada.archive to another place"
        )
    if archived < held.start:
        lost.append(Range(topic, partition, archived, held.start))
    return max(archived, held.start)


def _cut(into: list[Range], wanted: Range, limits: Limits) -> None:
    """In equal parts: a small rest would be a small file."""
    count = wanted.end - wanted.start
    parts = max(1, count // limits.task_rows)
    bounds = [wanted.start + count * number // parts for number in range(parts + 1)]
    into += [wanted._replace(start=low, end=high) for low, high in itertools.pairwise(bounds)]


def _fair(ranges: list[Range], tasks_max: int) -> list[Range]:
    """As many as may run, the first of every partition before the second of any."""
    seen: dict[int, int] = {}
    turns: list[tuple[int, Range]] = []
    for one in ranges:
        turns.append((seen.get(one.partition, 0), one))
        seen[one.partition] = seen.get(one.partition, 0) + 1
    chosen = sorted(turns, key=lambda turn: (turn[0], turn[1].partition))[:tasks_max]
    return sorted((one for _, one in chosen), key=lambda one: (one.partition, one.start))
