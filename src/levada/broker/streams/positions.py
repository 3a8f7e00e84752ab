"""Where each group stands: its committed offsets, and how far behind it is. Over the engine port, for groups of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from levada.broker.streams.coordinator import StreamGroups
from levada.broker.streams.seeking import Target, target_offset
from levada.engine.port import At, Committed, Engine, TopicInfo, TopicView
from levada.errors import (
    LevadaError,
    OffsetMetadataTooLarge,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
)


class Place(NamedTuple):
    """A group's place in one partition."""

    at: At
    #: The next offset to read; None where nothing was committed.
    committed: int | None
    start: int
    end: int
    #: How many offsets are between the group and the end; from the start where nothing was committed.
    lag: int
    metadata: str = ""
    #: Who reads it now.
    member_id: str = ""


class Committer(NamedTuple):
    """Who commits: a member, or by its number a consumer of a fixed group that is not attached."""

    member_id: str = ""
    generation: int = 0
    consumer: int | None = None


#: Nobody in particular: an administrator, or a reader that manages itself.
ANYBODY: Final = Committer()


class Positions:
    """Committed offsets with what they mean; what an awaited call returns from is durable."""

    def __init__(
        self,
        engine: Engine,
        groups: StreamGroups,
        metadata_max: int = 4096,
        owners: Callable[[str], Mapping[At, str]] | None = None,
    ) -> None:
        """`owners` says who reads what of groups of all kinds; without it, native ones are known."""
        self._engine = engine
        self._owners = owners or groups.owners
        self._groups = groups
        self.metadata_max = metadata_max

    async def committed(self, group_id: str, topic: str | None = None) -> list[Place]:
        """Every partition of this topic; without one, of all topics the group has offsets in or reads. UnknownTopic."""
        view = await self._engine.topics()
        offsets, owners = await self._engine.offsets(group_id), self._owners(group_id)
        if topic is not None:
            wanted = set(_partitions(view, topic))
        else:
            reads = [name for name in self._groups.topics(group_id) if view.get(name) is not None]
            wanted = {at for name in reads for at in _partitions(view, name)}
            wanted |= {at for at in offsets.keys() | owners.keys() if _exists(view, at)}
        return [await self._place(at, offsets.get(at), owners.get(at, "")) for at in sorted(wanted)]

    async def commit(
        self, group_id: str, offsets: Mapping[At, Committed], by: Committer = ANYBODY, now_ms: int | None = None
    ) -> Mapping[At, LevadaError]:
        """Store these offsets; those that are refused are named with the reason, and all others are stored.

        A member commits only what it owns, in its own generation. An offset is from 0 to the partition's end: what is
        below the start was read before it was deleted. Where nothing can be stored at all, StorageError.
        """
        errors: dict[At, LevadaError] = {}
        good: dict[At, Committed] = {}
        view = await self._engine.topics()
        for at, committed in offsets.items():
            try:
                await self._check(view, at, committed)
            except LevadaError as error:
                errors[at] = error
            else:
                good[at] = committed
        # At the very end, and with nothing awaited after it: whoever is fenced meanwhile commits nothing.
        for at in list(good):
            try:
                self._groups.check_commit(
                    group_id, by.member_id, by.generation, at, consumer=by.consumer, now_ms=now_ms
                )
            except LevadaError as error:
                errors[at] = error
                del good[at]
        if good:
            await self._engine.commit_offsets(group_id, good)
        return errors

    async def seek(
        self, group_id: str, topic: str, partitions: Sequence[int], to: Target, *, now_ms: int, dry_run: bool = False
    ) -> Mapping[At, int]:
        """Set the group's offsets in these partitions of a topic, or in all of them, and say to what.

        All or none. Running native members go on from there. UnknownTopic, UnknownPartition, OffsetOutOfRange with the
        range, GroupKindMismatch while Kafka's members hold the group. `dry_run` only says what it would do.
        """
        self._groups.check_seek(group_id)
        view = await self._engine.topics()
        wanted = [At(topic, index) for index in sorted(set(partitions))] or _partitions(view, topic)
        for at in wanted:
            _check_exists(view, at)
        before = await self._engine.offsets(group_id)
        offsets = {at: await target_offset(self._engine, at, to, before.get(at)) for at in wanted}
        if not dry_run:
            self._groups.check_seek(group_id)
            await self._set(group_id, offsets)
            self._groups.moved(group_id, offsets, now_ms)
            # A commit that was taken while ours was on its way to the disk is of what was read before.
            await self._set(group_id, offsets)
        return offsets

    async def _set(self, group_id: str, offsets: Mapping[At, int]) -> None:
        """Commit those of these offsets that are not so already."""
        stored = await self._engine.offsets(group_id)
        changed = {at: offset for at, offset in offsets.items() if at not in stored or stored[at].offset != offset}
        if changed:
            await self._engine.commit_offsets(group_id, {at: Committed(offset) for at, offset in changed.items()})

    async def _place(self, at: At, committed: Committed | None, member_id: str) -> Place:
        start, _, end = await self._engine.bounds(at)
        if committed is None:
            return Place(at, None, start, end, end - start, "", member_id)
        lag = max(0, end - max(start, committed.offset))
        return Place(at, committed.offset, start, end, lag, committed.metadata, member_id)

    async def _check(self, view: TopicView, at: At, committed: Committed) -> None:
        _check_exists(view, at)
        length = len(committed.metadata)
        if length > self.metadata_max:
            raise OffsetMetadataTooLarge(
                f"metadata of {length} characters: offset.metadata.max.bytes is {self.metadata_max}"
            )
        bounds = await self._engine.bounds(at)
        if not 0 <= committed.offset <= bounds.end:
            raise OffsetOutOfRange(
                f"offset {committed.offset} of {at}: must be from 0 to {bounds.end}", start=bounds.start, end=bounds.end
            )


def _info(view: TopicView, topic: str) -> TopicInfo:
    info = view.get(topic)
    if info is None:
        raise UnknownTopic(f"there is no topic {topic!r}")
    return info


def _partitions(view: TopicView, topic: str) -> list[At]:
    return [At(topic, index) for index in range(_info(view, topic).partitions)]


def _check_exists(view: TopicView, at: At) -> None:
    count = _info(view, at.topic).partitions
    if not 0 <= at.partition < count:
        raise UnknownPartition(f"topic {at.topic!r} has partitions 0 to {count - 1}, not {at.partition}")


def _exists(view: TopicView, at: At) -> bool:
    info = view.get(at.topic)
    return info is not None and 0 <= at.partition < info.partitions
