"""Where the groups of a topic stand in a copy of it that has other partitions.

A group has done everything before its committed offset in each partition of the source. In a partition of the target its place is
the first record that it has not done: nothing is skipped. What it has done behind that place comes to it a second time; since
records are merged in the order of their timestamps (`order.py`) that is little, unless the group is far apart in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as f

from levada.spark.jobs.extent import Offsets
from levada.spark.jobs.order import ORDER, by_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Translated(NamedTuple):
    """A group's place in one partition of the target, and how much it will see again from there on."""

    group: str
    partition: int
    offset: int
    repeats: int


class _First(NamedTuple):
    """The first record of a target partition that a group has not done, counted from 1; one behind the last where all are."""

    number: int
    repeats: int


def translated(
    source: DataFrame, target: DataFrame, committed: Mapping[str, Offsets], target_starts: Offsets
) -> list[Translated]:
    """`source` are the records that were copied, in order (`in_order`), with the partition they went to as `target`; `target` are the
    partition and offset of all records of the target, the copied ones first. Partitions a group has not committed in count as not done.
    """
    firsts = _firsts(source, committed)
    offsets = _offsets(target, {(p, first.number) for by_target in firsts.values() for p, first in by_target.items()})
    found = []
    for group, by_target in firsts.items():
        for partition, start in sorted(target_starts.items()):
            first = by_target.get(partition, _First(1, 0))
            offset = offsets.get((partition, first.number), start)
            found.append(Translated(group, partition, offset, first.repeats))
    return found


def _firsts(source: DataFrame, committed: Mapping[str, Offsets]) -> dict[str, dict[int, _First]]:
    """By group and partition of the target."""
    number = f.row_number().over(Window.partitionBy("target").orderBy(*ORDER))
    counted = source.select("target", "partition", "offset", number.alias("number"))
    groups = list(committed)
    figures = [f.count("*").alias("records")]
    for at, group in enumerate(groups):
        undone = f.col("offset") >= by_partition(committed[group], 0)
        figures += [
            f.min(f.when(undone, f.col("number"))).alias(f"first_{at}"),
            f.count_if(~undone).alias(f"done_{at}"),
        ]
    found: dict[str, dict[int, _First]] = {group: {} for group in groups}
    for row in counted.groupBy("target").agg(*figures).collect():
        for at, group in enumerate(groups):
            first = row[f"first_{at}"] or row["records"] + 1
            found[group][row["target"]] = _First(first, row[f"done_{at}"] - (first - 1))
    return found


def _offsets(target: DataFrame, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """The offset of the n-th record of a partition, where it has so many; else the one behind its last."""
    numbers: dict[int, list[int]] = {}
    for partition, number in sorted(wanted):
        numbers.setdefault(partition, []).append(number)
    count = f.row_number().over(Window.partitionBy("partition").orderBy("offset"))
    is_wanted = f.lit(False)
    for partition, held in numbers.items():
        is_wanted = is_wanted | ((f.col("partition") == partition) & f.col("number").isin(held))
    counted = target.select("partition", "offset", count.alias("number")).where(is_wanted)
    found = {(row["partition"], row["number"]): row["offset"] for row in counted.collect()}
    ends = {row[0]: row[1] + 1 for row in target.groupBy("partition").agg(f.max("offset")).collect()}
    for partition in ends.keys() & numbers.keys():
        for number in numbers[partition]:
            found.setdefault((partition, number), ends[partition])
    return found


def advanced(places: Iterable[Translated], standing: Mapping[str, Offsets]) -> dict[str, dict[int, int]]:
    """What is to be committed: only places ahead of where a group already stands in the target, so that nobody is sent back."""
    moves: dict[str, dict[int, int]] = {}
    for place in places:
        if place.offset > standing.get(place.group, {}).get(place.partition, -1):
            moves.setdefault(place.group, {})[place.partition] = place.offset
    return moves
