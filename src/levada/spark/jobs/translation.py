"""Where the groups of a topic stand in a copy of it that has other partitions.

A group has done everything before its committed offset in each partition of the source. In a partition of the target its place is
the first record that it has not done: nothing is skipped. What it has done behind that place comes to it a second time; since
records are merged in the order of their timestamps (`order.py`) that is little, unless the group is far apart in the source.

What a group has not done is looked for in the target record by record, not counted off: the source may have lost others since it was
copied, to compaction or retention. Of records that are the same in everything, the last ones are those not done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from levada.spark.jobs.extent import Offsets
from levada.wire.answers import OffsetAndMetadata

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What a place says that a job has committed; whoever reads there replaces it.
_MARK: Final = "levada repartition "


class Translated(NamedTuple):
    """A group's place in one partition of the target, and how much it will see again from there on, at most."""

    group: str
    partition: int
    offset: int
    repeats: int


class Places(NamedTuple):
    """All groups' places. `missing`: by group, how many records it has not done that are not in the target; none, if it is whole."""

    found: Sequence[Translated]
    missing: Mapping[str, int]


def is_behind(committed: Offsets, begins: Offsets, starts: Offsets, ends: Offsets) -> bool:
    """Whether the source has lost records that were copied and that the group has not done: from `begins` to `ends` it was copied, and
    it now begins at `starts`. Nobody can tell where those are in the target. What a group has not committed in, it has not done.
    """
    return any(max(committed.get(p, 0), begins[p]) < min(starts[p], ends[p]) for p in ends)


def undone(committed: Iterable[Offsets], starts: Offsets, ends: Offsets) -> dict[int, tuple[int, int]]:
    """The ranges that some group has not done."""
    groups = list(committed)
    first = {p: max(starts[p], min((group.get(p, 0) for group in groups), default=ends[p])) for p in ends}
    return {p: (first[p], end) for p, end in sorted(ends.items()) if first[p] < end}


def translated(
    source: DataFrame,
    target: DataFrame,
    committed: Mapping[str, Offsets],
    starts: Offsets,
    behind: Collection[str] = (),
) -> Places:
    """`source` are all records that some group has not done, with the partition they went to as `target`; `target` are the records of
    the copy, which begins at `starts`. Groups that are `behind` are placed there.
    """
    firsts, missing = _firsts(source, target, committed)
    firsts |= {group: dict(starts) for group in behind}
    sizes = _sizes(target, firsts)
    found = []
    for group, by_partition in firsts.items():
        for partition, start in sorted(starts.items()):
            end, records = sizes.get(partition, (start, {}))
            not_done = missing[group].met.get(partition, 0) if group in missing else 0
            offset = by_partition.get(partition, end)
            found.append(Translated(group, partition, offset, records.get(group, 0) - not_done))
    return Places(found, {group: held.missing for group, held in missing.items() if held.missing})


class _Met(NamedTuple):
    """Of what a group has not done, how many records are in each partition of the target, and how many nowhere."""

    met: Mapping[int, int]
    missing: int


def _firsts(
    source: DataFrame, target: DataFrame, committed: Mapping[str, Offsets]
) -> tuple[dict[str, dict[int, int]], dict[str, _Met]]:
    """By group and partition of the target the first offset not done, where there is one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from levada.spark.jobs.checksum import RECORD, content

    groups = list(committed)
    if not groups:
        return {}, {}
    here = source.select("target", "partition", "offset", content(*RECORD).alias("content"))
    counts = [f.count_if(_is_undone(committed[group])).alias(f"undone_{at}") for at, group in enumerate(groups)]
    wanted = here.groupBy("target", "content").agg(*counts).persist()
    try:
        total = wanted.agg(*(f.sum(f"undone_{at}") for at in range(len(groups)))).collect()[0]
        there = target.select(f.col("partition").alias("target"), "offset", content(*RECORD).alias("content"))
        last_first = Window.partitionBy("target", "content").orderBy(f.desc("offset"))
        met = there.join(wanted, ["target", "content"]).withColumn("rank", f.row_number().over(last_first))
        figures = []
        for at in range(len(groups)):
            is_undone = f.col("rank") <= f.col(f"undone_{at}")
            figures += [f.min(f.when(is_undone, f.col("offset"))), f.count_if(is_undone)]
        rows = met.groupBy("target").agg(*figures).collect() if any(total) else []
    finally:
        wanted.unpersist()
    firsts: dict[str, dict[int, int]] = {}
    found: dict[str, _Met] = {}
    for at, group in enumerate(groups):
        firsts[group] = {row[0]: row[1 + 2 * at] for row in rows if row[1 + 2 * at] is not None}
        here_met = {row[0]: row[2 + 2 * at] for row in rows}
        found[group] = _Met(here_met, (total[at] or 0) - sum(here_met.values()))
    return firsts, found


def _is_undone(committed: Offsets) -> Column:
    from pyspark.sql import functions as f

    from levada.spark.jobs.order import by_partition

    return f.col("offset") >= by_partition(committed, 0)


def _sizes(target: DataFrame, firsts: Mapping[str, Offsets]) -> dict[int, tuple[int, dict[str, int]]]:
    """By partition of the target, the offset behind its last record, and how many lie from each group's first on."""
    from pyspark.sql import functions as f

    from levada.spark.jobs.order import by_partition

    groups = list(firsts)
    behind = [f.count_if(f.col("offset") >= by_partition(firsts[group], 2**63 - 1)) for group in groups]
    rows = target.groupBy("partition").agg(f.max("offset") + 1, *behind).collect()
    return {row[0]: (row[1], dict(zip(groups, row[2:], strict=True))) for row in rows}


def mark(committed: Offsets) -> str:
    """What a group's place is committed with: the same while the group stands where it stands in the source."""
    stands = json.dumps(sorted(committed.items()))
    return _MARK + hashlib.sha256(stands.encode()).hexdigest()[:16]


def advanced(
    places: Iterable[Translated], standing: Mapping[str, Mapping[int, OffsetAndMetadata]], marks: Mapping[str, str]
) -> dict[str, dict[int, int]]:
    """What is to be committed. A place that an earlier run has committed stays while the group has not moved in the source, and follows
    it where it has, also back. Where somebody else has committed, the group is only moved on, never back.
    """
    moves: dict[str, dict[int, int]] = {}
    for place in places:
        there = standing.get(place.group, {}).get(place.partition)
        if there is None or _is_moved(place, there, marks[place.group]):
            moves.setdefault(place.group, {})[place.partition] = place.offset
    return moves


def _is_moved(place: Translated, there: OffsetAndMetadata, as_now: str) -> bool:
    if there.metadata.startswith(_MARK):
        return there.metadata != as_now
    return place.offset > there.offset
