"""Ranges of partitions cut into as many parts as there are to be tasks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from levada.spark.fetch import Range


def split(ranges: Iterable[Range], *, parts_min: int | None = None, offsets_max: int | None = None) -> list[Range]:
    """The same offsets in ranges of at most `offsets_max`, and about `parts_min` of them at least, larger ranges cut into more.

    As Spark's Kafka source does: without either, a task is a partition of a topic. Empty ranges are left out.
    """
    held = [one for one in ranges if one.start < one.end]
    total = sum(one.end - one.start for one in held)
    parts: list[Range] = []
    for one in held:
        size = one.end - one.start
        count = -(-size // offsets_max) if offsets_max else 1
        if parts_min and parts_min > len(held):
            count = max(count, round(parts_min * size / total))
        parts += _cut(one, min(count, size))
    return parts


def _cut(one: Range, count: int) -> list[Range]:
    """In `count` parts whose sizes differ by one at most."""
    size = one.end - one.start
    edges = [one.start + size * part // count for part in range(count + 1)]
    return [one._replace(start=start, end=end) for start, end in pairwise(edges)]
