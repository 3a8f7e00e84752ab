"""From the log to the memory of it: every record that was appended within the window, a piece at a time."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from levada.broker.dedup.marks import Marks
from levada.broker.dedup.memory import Memory
from levada.broker.dedup.places import Place
from levada.config import MiB
from levada.engine.port import Bounds, Engine
from levada.errors import CorruptBatch, DamagedLog, InvalidRecord, OffsetOutOfRange
from levada.records.batch import Batch, batches

_CHUNK: Final = MiB

_log = structlog.get_logger("levada.dedup")


class Written(Protocol):
    """A partition as far as it is written."""

    @property
    def log_end(self) -> int: ...

    def when_durable(self, end_offset: int) -> asyncio.Future[None] | None: ...


async def rebuild(
    engine: Engine,
    memory: Memory,
    place: Place,
    partition: Written,
    marks: Marks,
    *,
    covered: int,
    now_ms: int,
    window_ms: int,
) -> int:
    """Have the memory know the partition up to its end. What lies below `covered` it knows already. Returns how many batches it read.

    Nobody may publish to the partition meanwhile.
    """
    replay = _Replay(engine, memory, place, marks, now_ms, window_ms)
    try:
        offset = max(covered, await replay.start())
        while offset < partition.log_end:
            # Of what is not visible yet nothing can be read.
            if (waiting := partition.when_durable(partition.log_end)) is not None:
                await waiting
            offset = await replay.piece(offset)
    except DamagedLog as reason:
        # Beyond the damage nothing can be read or written.
        _log.warning("not all messages are remembered", partition=str(place.at), reason=str(reason))
    return replay.batches


class _Replay:
    def __init__(self, engine: Engine, memory: Memory, place: Place, marks: Marks, now_ms: int, window_ms: int) -> None:
        self._engine = engine
        self._memory = memory
        self._place = place
        self._marks = marks
        self._now_ms = now_ms
        self._window_ms = window_ms
        self._cutoff_ms = now_ms - window_ms
        self.batches = 0

    async def start(self) -> int:
        """Where the window begins in the log."""
        at = self._place.at
        bounds: Bounds = await self._engine.bounds(at)
        known = self._marks.start(at.partition, self._cutoff_ms)
        if known is None:
            first = self._marks.first(at.partition)
            if first is not None and first <= bounds.start:
                return bounds.start
            # What was appended before the first note is told by its timestamp alone.
            found = await self._engine.offset_at(at, self._cutoff_ms + 1)
            known = bounds.end if found is None else found.offset
            known = known if first is None else min(known, first)
        return max(bounds.start, known)

    async def piece(self, offset: int) -> int:
        """Read on from here; returns where to go on."""
        try:
            found = await self._engine.read(self._place.at, offset, _CHUNK)
        except OffsetOutOfRange as moved:
            return max(offset + 1, moved.start)  # retention was faster
        end = found.bounds.end
        for batch in batches(found.batches):
            self._remember(batch)
            end = batch.next_offset
        await asyncio.sleep(0)
        return end

    def _remember(self, batch: Batch) -> None:
        self.batches += 1
        partition = self._place.at.partition
        time_ms = self._marks.time(partition, batch.base_offset, batch.max_timestamp, self._now_ms)
        if time_ms <= self._cutoff_ms and not batch.is_control:
            return
        try:
            self._memory.replay(self._place, batch, time_ms, self._window_ms)
        except (CorruptBatch, InvalidRecord) as reason:
            _log.warning("a batch is not remembered", partition=str(self._place.at), reason=str(reason))
