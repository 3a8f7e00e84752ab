"""Offsets that a read needed and that are no longer there: told exactly, or the end of the read."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from levada.errors import OffsetError
from levada.wire.answers import TopicPartition

if TYPE_CHECKING:
    from levada.spark.history import Held

log: Final = logging.getLogger("levada.spark")

DELETED: Final = "they were deleted before they were read"
GONE: Final = "the topic or the partition was deleted"
UNWANTED: Final = "the options no longer ask for it"
REPLACED: Final = "the topic was deleted and created again"
CUT: Final = "the log was cut back to before what was read"


class Lost(NamedTuple):
    """The offsets from `start` up to, not including, `end` of one partition; up to an end that nobody knows any more with None."""

    topic: str
    partition: int
    start: int
    end: int | None
    why: str

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}"
        if self.end is None:
            return f"everything of {place} from offset {self.start} on: {self.why}"
        what = f"offset {self.start}" if self.end == self.start + 1 else f"offsets {self.start} to {self.end - 1}"
        return f"{what} of {place}: {self.why}"

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        return cls(found["topic"], found["partition"], found["start"], found["end"], found["why"])


class DataLost(OffsetError):
    """Records that the read needed are no longer there."""

    def __init__(self, lost: Sequence[Lost]) -> None:
        told = "; ".join(map(str, lost))
        super().__init__(f"lost: {told}. With failOnDataLoss=false the read goes on behind them, and says so")
        self.lost = tuple(lost)

    def __reduce__(self) -> Any:
        return DataLost, (self.lost,)


def tell(lost: Iterable[Lost], *, fail: bool) -> None:
    """Raise DataLost, or say it in the log and let it be."""
    found = list(lost)
    if found and fail:
        raise DataLost(found)
    for one in found:
        log.warning("lost: %s", one)


def lost_in(end_offset: str | Mapping[str, Any] | None) -> list[Lost]:
    """What a batch says it has lost, by its `endOffset` in a query's progress; nothing where that is of another source."""
    told = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
    return [Lost.of_json(one) for one in told.get("lost", ())] if isinstance(told, Mapping) else []


def below(at: TopicPartition, begin: int, end: int, start: int, held: Held | None) -> list[Lost]:
    """What is lost of the offsets from `begin` up to `end`, where the log begins at `start` and `held` is kept elsewhere."""
    stop = min(end, start)
    gaps: list[tuple[int, int]] = []
    for first, last in held.stretches() if held is not None else ():
        gaps.append((begin, min(stop, first)))
        begin = max(begin, last)
    gaps.append((begin, stop))
    return [Lost(at.topic, at.partition, first, last, DELETED) for first, last in gaps if first < last]
