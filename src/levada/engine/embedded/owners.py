"""Owners of shards, and what they change all at once.

A shard is a transactional id, and owning it is being its newest producer: the coordinator's epoch fences whoever had it
before. `transact` is one transaction from begin to end, with KIP-890's rules: every end raises the epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from levada.config import MINUTE_MS
from levada.engine.embedded.partition import Partition
from levada.engine.embedded.transactions import Transactions
from levada.engine.port import Appended, At, Committed, Owner, Write
from levada.errors import (
    Fenced,
    InvalidProducerEpoch,
    InvalidProducerMapping,
    LevadaError,
    ProducerFenced,
)
from levada.records.batch import NO_SEQUENCE, Batch, sole_batch

#: A transaction here is one call; one that takes longer than this is stuck.
TIMEOUT_MS: Final = MINUTE_MS


class ShardOwner:
    """Who keeps the state of a shard, until somebody else does."""

    def __init__(self, shard: str, producer_id: int, epoch: int) -> None:
        self.shard = shard
        self.producer_id = producer_id
        self.epoch = epoch
        #: Transactions of one owner follow one another.
        self.turn = asyncio.Lock()


class Owners:
    """Stands on the transaction coordinator."""

    def __init__(self, transactions: Transactions, partition_of: Callable[[At], Partition]) -> None:
        self._transactions = transactions
        self._partition_of = partition_of

    @asynccontextmanager
    async def own(self, shard: str) -> AsyncIterator[ShardOwner]:
        """Take the shard over: what its last owner had not finished is aborted, and it can change nothing any more."""
        timeout_ms = min(TIMEOUT_MS, self._transactions.limits.timeout_ms_max)
        producer_id, epoch = await self._transactions.init_producer_id(shard, timeout_ms)
        yield ShardOwner(shard, producer_id, epoch)

    async def transact(
        self, owner: Owner, writes: Sequence[Write], offsets: Mapping[str, Mapping[At, Committed]] | None
    ) -> list[Appended]:
        """Every write and offset, or none. Refusals come before anything is written."""
        if not isinstance(owner, ShardOwner):
            raise Fenced(f"shard {owner.shard!r} was not taken over here")
        async with owner.turn:
            with _fenced(owner):
                self._check(owner)
                admitted = [self._admit(write) for write in writes]
                if not admitted and not offsets:
                    return []
                return await self._commit(owner, admitted, offsets or {})

    def _check(self, owner: ShardOwner) -> None:
        self._transactions.missing(owner.shard, owner.producer_id, owner.epoch, frozenset())

    def _admit(self, write: Write) -> tuple[Partition, Batch]:
        partition = self._partition_of(write.at)
        return partition, partition.admit(sole_batch(write.batch))

    async def _commit(
        self,
        owner: ShardOwner,
        writes: Sequence[tuple[Partition, Batch]],
        offsets: Mapping[str, Mapping[At, Committed]],
    ) -> list[Appended]:
        appended: list[Appended] = []
        try:
            # Not a turn of the loop between the first append and the last.
            receipts = [self._append(owner, partition, batch, appended) for partition, batch in writes]
            for group, places in offsets.items():
                await self._transactions.commit_offsets(
                    owner.shard, owner.producer_id, owner.epoch, group, places, implicit=True
                )
            # What is committed must be durable before the decision to commit it is.
            for (partition, _), one, receipt in zip(writes, appended, receipts, strict=True):
                if (waiting := partition.when_durable(one.last_offset + 1)) is not None:
                    await waiting
                if receipt is not None:
                    await self._transactions.durable(receipt)
        except LevadaError:
            await self._end(owner, commit=False)
            raise
        await self._end(owner, commit=True)
        return appended

    def _append(self, owner: ShardOwner, partition: Partition, batch: Batch, appended: list[Appended]) -> int | None:
        receipt = self._transactions.on_transactional_append(
            owner.producer_id, owner.epoch, partition.at, transactional_id=owner.shard, implicit=True
        )
        batch.stamp_producer(owner.producer_id, owner.epoch, NO_SEQUENCE, transactional=True)
        appended.append(partition.append(batch, internal=True)._replace(durable=True))
        return receipt

    async def _end(self, owner: ShardOwner, *, commit: bool) -> None:
        owner.producer_id, owner.epoch = await self._transactions.end(
            owner.shard, owner.producer_id, owner.epoch, commit, tv2=True
        )


@contextmanager
def _fenced(owner: ShardOwner) -> Iterator[None]:
    try:
        yield
    except (ProducerFenced, InvalidProducerEpoch, InvalidProducerMapping) as reason:
        raise Fenced(f"shard {owner.shard!r} has another owner now: {reason}") from reason
