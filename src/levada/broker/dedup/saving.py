"""How memories get onto the shelf and back. What cannot be read counts as missing: the log has it all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from levada.broker.dedup import snapshot
from levada.broker.dedup.marks import Marks
from levada.broker.dedup.memory import Memory
from levada.broker.dedup.places import Place
from levada.errors import DamagedIndex

if TYPE_CHECKING:
    from levada.broker.dedup.dedup import Workers
    from levada.broker.dedup.shelf import Shelf
    from levada.broker.dedup.topic import Key

_log = structlog.get_logger("levada.dedup")


def snapshot_name(key: Key) -> str:
    return f"{key.topic_id or 'broker'}.{'id' if key.by_id else 'payload'}"


def marks_name(topic_id: UUID) -> str:
    return f"{topic_id}.times"


def names(topic_id: UUID, key: Key) -> list[str]:
    """What is only of use to this topic."""
    return [marks_name(topic_id), *([snapshot_name(key)] if key.topic_id is not None else [])]


# In worker threads


def load(
    shelf: Shelf, key: Key, *, ends: Mapping[Place, int], now_ms: int, window_ms: int
) -> tuple[Memory, dict[Place, int]]:
    """A memory and up to where it covers each place: a new one and nothing, where there is no snapshot that can be used."""
    name = snapshot_name(key)
    try:
        parts = shelf.parts(name)
        first = next(parts, None)
        if first is not None:
            return snapshot.decode(_again(first, parts), by_id=key.by_id, ends=ends, now_ms=now_ms, window_ms=window_ms)
    except (DamagedIndex, OSError) as reason:
        _log.warning("dedup snapshot of no use; the log is read instead", name=name, reason=str(reason))
    return Memory(by_id=key.by_id), {}


def _again(first: bytes, parts: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from parts


def load_marks(shelf: Shelf, topic_id: UUID) -> Marks:
    try:
        encoded = shelf.read(marks_name(topic_id))
        return Marks() if encoded is None else Marks.decode(encoded)
    except (DamagedIndex, OSError, ValueError) as reason:
        _log.warning("dedup times of no use", topic_id=str(topic_id), reason=str(reason))
        return Marks()


def save_marks(shelf: Shelf, topic_id: UUID, encoded: bytes) -> None:
    piece = shelf.begin(marks_name(topic_id))
    try:
        piece.write(encoded)
    except BaseException:
        piece.discard()
        raise
    piece.finish()


def remove(shelf: Shelf, these: Iterable[str]) -> None:
    for name in these:
        shelf.remove(name)


def clear(shelf: Shelf, wanted: set[str]) -> None:
    """Remove what is left of topics that are gone."""
    remove(shelf, [name for name in shelf.names() if name not in wanted])


# On the loop


async def save(
    shelf: Shelf, key: Key, memory: Memory, covered: Mapping[Place, int], window_ms: int, in_thread: Workers
) -> bool:
    """Write a snapshot while the broker goes on: copied here, a part at a time, and written in worker threads.

    False where the memory changed its shape before the end; the snapshot that was there stays.
    """
    shifts = memory.table.shifts
    piece = await in_thread(partial(shelf.begin, snapshot_name(key)))
    try:
        for part in snapshot.encode(memory, covered, window_ms):
            await in_thread(partial(piece.write, part))
            if memory.table.shifts != shifts:
                await in_thread(piece.discard)
                return False
    except BaseException:
        piece.discard()
        raise
    await in_thread(piece.finish)
    return True
