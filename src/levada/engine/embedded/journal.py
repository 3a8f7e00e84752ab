"""An internal topic as its keeper sees it: replay what was written, write more, wait until it is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from levada.config import MiB
from levada.engine.embedded.partition import Partition
from levada.errors import DamagedLog
from levada.records.batch import NO_PRODUCER, Batch, batches
from levada.records.build import build
from levada.records.read import Record, read

_READ_BYTES: Final = MiB


class Journal(Protocol):
    """One-partition, compacted, written by one keeper."""

    def replay(self) -> Iterator[tuple[Batch, Iterator[Record]]]:
        """Every batch in order, control batches included; up to the damage, where the log is damaged."""
        ...

    def append(self, records: Sequence[tuple[bytes, bytes | None]], *, producer: tuple[int, int] | None = None) -> int:
        """Write one batch and return the end offset. With a producer (id, epoch) the batch is part of its transaction."""
        ...

    def append_marker(self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int) -> int:
        """End the producer's transaction here; return the end offset."""
        ...

    async def durable(self, end_offset: int) -> None:
        """Wait until everything below is as durable as the topic's policy says."""
        ...


class PartitionJournal:
    """A Journal over a partition of the embedded engine, whose topic is made when something is first written.

    `place` gives the partition, making its topic if need be, and how far the registry must be durable for that to stay.
    """

    def __init__(
        self,
        place: Callable[[], tuple[Partition, int]],
        *,
        exists: Callable[[], bool],
        now_ms: Callable[[], int],
        registry: Journal | None = None,
    ) -> None:
        self._place = place
        self._exists = exists
        self._now_ms = now_ms
        self._registry = registry
        self._registry_end = 0
        self._partition: Partition | None = None

    @property
    def partition(self) -> Partition:
        if self._partition is None:
            self._partition, self._registry_end = self._place()
        return self._partition

    def replay(self) -> Iterator[tuple[Batch, Iterator[Record]]]:
        if not self._exists():
            return
        log = self.partition.log
        offset, end = log.start_offset, log.end_offset
        while offset < end:
            try:
                data = log.read(offset, _READ_BYTES, end)
            except DamagedLog:
                # The partition reports it and takes no more writes; what came before still holds.
                self.partition.found_damage()
                return
            for batch in batches(data):
                yield batch, read(batch)
                offset = batch.next_offset
            if not data:
                return

    def append(self, records: Sequence[tuple[bytes, bytes | None]], *, producer: tuple[int, int] | None = None) -> int:
        producer_id, epoch = producer if producer is not None else (NO_PRODUCER, -1)
        batch = build(
            records,
            timestamp_ms=self._now_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=producer is not None,
        )
        return self.partition.append(Batch(memoryview(batch)), internal=True).last_offset + 1

    def append_marker(self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int) -> int:
        appended = self.partition.append_marker(
            producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch
        )
        return appended.last_offset + 1

    async def durable(self, end_offset: int) -> None:
        if self._partition is None:
            return  # nothing was written
        if self._registry is not None and self._registry_end:
            await self._registry.durable(self._registry_end)
        waiting = self._partition.when_durable(end_offset)
        if waiting is not None:
            await waiting
