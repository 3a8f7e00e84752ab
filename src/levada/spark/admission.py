"""How much of what is there one batch reads, and whether it is time for a batch at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from levada.wire.answers import TopicPartition

Offsets = Mapping[TopicPartition, int]


class Limits(NamedTuple):
    """What holds for one batch; None for no limit."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    #: So long at most does a batch wait for `offsets_min`.
    delay_ms_max: int = 0


def admitted(begins: Offsets, ends: Offsets, limits: Limits, since_last_ms: float | None) -> dict[TopicPartition, int]:
    """Up to where each partition is read: its end, or less, or nothing at all while too little is there.

    `since_last_ms` is how long ago the last batch was begun, None if none was. Partitions share a limit by what they have, as in
    Spark's Kafka source, and none that has something gets nothing.
    """
    waiting = {at: ends[at] - begin for at, begin in begins.items()}
    total = sum(waiting.values())
    may_wait = since_last_ms is not None and since_last_ms < limits.delay_ms_max
    if may_wait and total < (limits.offsets_min or 0):
        return dict(begins)
    if limits.offsets_max is None or total <= limits.offsets_max:
        return {at: ends[at] for at in begins}
    return {at: begin + _share(waiting[at], total, limits.offsets_max) for at, begin in begins.items()}


def _share(waiting: int, total: int, offsets_max: int) -> int:
    share = offsets_max * waiting / total
    return min(math.ceil(share) if share < 1 else math.floor(share), waiting)
