"""Logs in memory that can crash: what was synced stays, of the rest any first part.

For tests of what stands on logs: the offset store and the transaction coordinator. The real partition, log and disk have
their own tests; the producer state here is the real one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence

from levada.engine.port import Appended, At
from levada.errors import LevadaError
from levada.log.producers import Producers
from levada.records.batch import Batch
from levada.records.build import build, end_marker
from levada.records.read import Record, read, read_marker


class MemoryLog:
    """Batches, and how far they are synced."""

    def __init__(self, batches: Sequence[bytes] = ()) -> None:
        self.batches: list[bytes] = []
        self.producers = Producers()
        self.end_offset = 0
        for batch in batches:
            self.add(bytearray(batch))
        self.synced_end = self.end_offset

    def add(self, data: bytearray) -> tuple[int, int]:
        """Returns the first and last offset; those of the first copy for a repeat."""
        batch = Batch(memoryview(data))
        batch.stamp(self.end_offset, 0)
        repeat = self.producers.check(batch, sequences=batch.base_sequence >= 0)
        if repeat is not None:
            return repeat.base_offset, repeat.last_offset
        self.producers.applied(batch, 0)
        self.batches.append(bytes(data))
        first, self.end_offset = self.end_offset, batch.next_offset
        return first, self.end_offset - 1

    def after_crash(self, rng: random.Random) -> MemoryLog:
        """What a restart finds."""
        unsynced = sum(Batch(memoryview(batch)).base_offset >= self.synced_end for batch in self.batches)
        lost = rng.randint(0, unsynced)
        return MemoryLog(self.batches[: len(self.batches) - lost])

    def __iter__(self) -> Iterator[Batch]:
        return (Batch(memoryview(batch)) for batch in self.batches)

    def committed(self) -> list[bytes]:
        """The values a read_committed reader sees: those below the first open transaction."""
        first_open = self.producers.first_undecided_offset
        return [value for offset, value in self._decided() if first_open is None or offset < first_open]

    def decided(self) -> list[bytes]:
        """The values a read_committed reader sees or, once others have ended, will see."""
        return [value for _, value in self._decided()]

    def _decided(self) -> list[tuple[int, bytes]]:
        seen: list[tuple[int, bytes]] = []
        held: dict[int, list[tuple[int, bytes]]] = {}
        for batch in self:
            if batch.is_control:
                marker = read_marker(batch)
                rows = held.pop(batch.producer_id, [])
                seen += rows if marker is not None and marker.commit else []
                continue
            target = held.setdefault(batch.producer_id, []) if batch.is_transactional else seen
            target += [(record.offset, record.value or b"") for record in read(batch)]
        return sorted(seen)


class MemoryPartition:
    """What the coordinator needs of a partition. Durable when `sync` is called, or at once with `eager`."""

    def __init__(self, at: At, log: MemoryLog | None = None, *, eager: bool = False) -> None:
        self.at = at
        self.log = log or MemoryLog()
        self.eager = eager
        #: Raised by every append while it is set.
        self.refusal: LevadaError | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def log_end(self) -> int:
        return self.log.end_offset

    def append(
        self,
        rows: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: tuple[int, int] | None = None,
        sequence: int = -1,
    ) -> int:
        """Returns the end offset."""
        producer_id, epoch = producer or (-1, -1)
        batch = build(
            rows,
            timestamp_ms=0,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=producer is not None,
        )
        return self._add(batch).last_offset + 1

    def append_marker(self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int) -> Appended:
        return self._add(
            end_marker(
                commit=commit,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=0,
            )
        )

    def _add(self, batch: bytearray) -> Appended:
        if self.refusal is not None:
            raise self.refusal
        appended = Appended(*self.log.add(batch))
        if self.eager:
            self.sync()
        return appended

    def when_durable(self, end_offset: int) -> asyncio.Future[None] | None:
        if end_offset <= self.log.synced_end:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end_offset, future))
        return future

    #: There is but one policy here.
    when_synced = when_durable

    def sync(self) -> None:
        self.log.synced_end = self.log.end_offset
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_result(None)


class MemoryJournal:
    """A journal over such a partition."""

    def __init__(self, partition: MemoryPartition) -> None:
        self.partition = partition

    def replay(self) -> Iterator[tuple[Batch, Iterator[Record]]]:
        for batch in list(self.partition.log):
            yield batch, read(batch)

    def append(self, records: Sequence[tuple[bytes, bytes | None]], *, producer: tuple[int, int] | None = None) -> int:
        return self.partition.append(records, producer=producer)

    def append_marker(self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int) -> int:
        appended = self.partition.append_marker(
            producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch
        )
        return appended.last_offset + 1

    async def durable(self, end_offset: int) -> None:
        waiting = self.partition.when_durable(end_offset)
        if waiting is not None:
            await waiting


def memory_journal(*, eager: bool = True) -> MemoryJournal:
    return MemoryJournal(MemoryPartition(At("journal", 0), eager=eager))
