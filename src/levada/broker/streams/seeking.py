"""Where to go in a partition: an offset, a time, an end, or some way from where the group is."""

from __future__ import annotations

import enum
from typing import NamedTuple

from levada.engine.port import At, Bounds, Committed, Engine
from levada.errors import OffsetOutOfRange


class ToOffset(NamedTuple):
    """This offset, which must be within the partition."""

    offset: int


class ToTime(NamedTuple):
    """The first record at or after this time; the end where there is none."""

    timestamp_ms: int


class Shift(NamedTuple):
    """So far from where the group is, or would begin; never beyond the partition's ends."""

    by: int


class Edge(enum.Enum):
    """One of the partition's ends."""

    EARLIEST = "earliest"
    LATEST = "latest"


Target = ToOffset | ToTime | Shift | Edge


async def target_offset(engine: Engine, at: At, to: Target, committed: Committed | None) -> int:
    """The offset, from the partition's start to its end. OffsetOutOfRange with both."""
    bounds = await engine.bounds(at)
    if isinstance(to, ToOffset):
        check_range(at, to.offset, bounds)
        return to.offset
    if isinstance(to, ToTime):
        found = await engine.offset_at(at, to.timestamp_ms)
        return bounds.end if found is None else max(bounds.start, min(found.offset, bounds.end))
    if isinstance(to, Shift):
        origin = bounds.start if committed is None else committed.offset
        return max(bounds.start, min(origin + to.by, bounds.end))
    return bounds.start if to is Edge.EARLIEST else bounds.end


def check_range(at: At, offset: int, bounds: Bounds) -> None:
    if not bounds.start <= offset <= bounds.end:
        raise OffsetOutOfRange(
            f"offset {offset} of {at}: must be from {bounds.start} to {bounds.end}", start=bounds.start, end=bounds.end
        )
