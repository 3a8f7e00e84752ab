"""Where reading begins: at the committed offset, or by the consumer's policy."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from levada.broker.delivery.wanted import Start, Wanted
from levada.engine.port import At, Engine, Isolation, TopicView
from levada.errors import OffsetOutOfRange


class Beginnings:
    """Finds them for one consumer. A partition that was made while the consumer was there is read from its start, whatever the
    policy: at no other place has the consumer missed nothing."""

    def __init__(self, engine: Engine, view: TopicView, wanted: Wanted) -> None:
        self._engine = engine
        self._view = view
        self._wanted = wanted
        #: Topic → its id and how many partitions it had, when the consumer came.
        self._seen: dict[str, tuple[UUID, int]] = {}
        for topic in wanted.topics:
            self._is_new(At(topic, 0))

    async def kept(self) -> Mapping[At, int]:
        """What the group has committed; without a group, where its consumer said it would begin."""
        if not self._wanted.group:
            return self._wanted.offsets
        return {at: committed.offset for at, committed in (await self._engine.offsets(self._wanted.group)).items()}

    async def of(self, at: At, kept: int | None) -> int:
        """The kept offset if the partition holds it, else by policy. OffsetOutOfRange if that is to go nowhere else."""
        is_new = self._is_new(at)
        start, stable_end, end = await self._engine.bounds(at)
        if kept is not None and start <= kept <= end:
            return kept
        if self._wanted.start == Start.EARLIEST or (kept is None and is_new):
            return start
        if self._wanted.start == Start.LATEST:
            return stable_end if self._wanted.isolation == Isolation.READ_COMMITTED else end
        what = f"{at}: there is no offset to begin at" if kept is None else f"{at}: offset {kept} is out of range"
        raise OffsetOutOfRange(f"{what}; it holds {start} to {end}", start=start, end=end)

    def _is_new(self, at: At) -> bool:
        info = self._view.get(at.topic)
        if info is None:
            return False
        topic_id, partitions = self._seen.setdefault(at.topic, (info.id, info.partitions))
        return info.id != topic_id or at.partition >= partitions
