"""What became of a batch that was screened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from levada.config import TopicConfig
from levada.engine.port import Appended, At
from levada.records.batch import Batch

if TYPE_CHECKING:
    from levada.broker.dedup.screening import First


class Partition(Protocol):
    """What dedup needs of a partition: to append and to screen in one turn of the loop, so that no two copies pass each other."""

    at: At
    topic_id: UUID
    config: TopicConfig
    observer: Callable[[Batch], None] | None

    @property
    def log_end(self) -> int: ...

    @property
    def stable_end(self) -> int: ...

    def append(self, batch: Batch) -> Appended: ...

    def append_screened(self, batch: Batch, screen: Callable[[Batch, int], Batch | None]) -> Appended | None: ...

    def when_durable(self, end_offset: int) -> asyncio.Future[None] | None: ...

    def when_synced(self, end_offset: int) -> asyncio.Future[None] | None: ...


class Stored(NamedTuple):
    """Where a batch landed; None where nothing of it had to be stored. `repeats`: place in the batch → the first copy."""

    appended: Appended | None
    repeats: Mapping[int, First]
    #: How many records were brought, and whether those that were stored lie without gaps.
    brought: int
    dense: bool

    def offsets(self, partition: int) -> Iterator[tuple[int, int, bool]]:
        """(partition, offset, whether it is a repeat) of each record that was brought."""
        appended, stored = self.appended, 0
        was_there = appended is not None and appended.duplicate
        for index in range(self.brought):
            first = self.repeats.get(index)
            if first is not None:
                yield first.at.partition, first.offset, True
            elif appended is not None:
                yield partition, appended.base_offset + (stored if self.dense else index), was_there
                stored += 1
