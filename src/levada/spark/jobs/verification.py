"""Is a copy what its source is? So many records, the same ones, and for each key in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from levada.spark.jobs.checksum import Fingerprint, fingerprint
from levada.spark.jobs.latest import snapshot
from levada.spark.jobs.order import ORDER, in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def same(
    source: DataFrame, target: DataFrame, passes: Mapping[int, Sequence[int]], *, compacts: bool = False
) -> tuple[Fingerprint, str]:
    """(what the source is, how the target differs from it; empty where it does not).

    A source that is compacted loses records while it is copied; what it promises to keep, each key's latest, is compared.
    """
    if compacts:
        source, target = snapshot(source), snapshot(target)
    ours = fingerprint(in_order(source, passes), ORDER)
    theirs = fingerprint(target, ("partition", "offset"))
    return ours, difference(ours, theirs) or _apart(target)


def difference(ours: Fingerprint, theirs: Fingerprint) -> str:
    """For a person; empty where there is none."""
    if ours.records != theirs.records:
        return f"{ours.records:,} records against {theirs.records:,}"
    if ours.content != theirs.content:
        return f"as many records, {ours.records:,}, but not the same ones"
    if ours.order != theirs.order:
        return f"the same {ours.records:,} records, but not in the same order for each key"
    return ""


def _apart(target: DataFrame) -> str:
    """Whether a key has come to lie in several partitions."""
    by_key = (
        target.where(f.col("key").isNotNull())
        .groupBy("key")
        .agg((f.min("partition") != f.max("partition")).alias("apart"))
    )
    apart = by_key.where("apart").count()
    return f"{apart:,} keys lie in several of its partitions" if apart else ""
