"""Telling the partitions how a transaction ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from levada.engine.embedded.offsets import OffsetStore
from levada.engine.embedded.transaction_state import TV2, State, Transaction
from levada.engine.names import CONSUMER_OFFSETS
from levada.engine.port import At
from levada.errors import (
    DamagedLog,
    Fenced,
    InvalidProducerEpoch,
    InvalidRequest,
    LevadaError,
    UnknownPartition,
    UnknownTopic,
)

if TYPE_CHECKING:
    from levada.engine.embedded.partition import Partition

#: Where the offsets of a transaction are: one partition holds those of all groups.
OFFSETS: Final = At(CONSUMER_OFFSETS, 0)

#: A partition that takes no marker any more: its topic was deleted, or its log is damaged and stays as it is.
GONE: Final = (UnknownTopic, UnknownPartition, DamagedLog)

_log = structlog.get_logger("levada.transactions")


class Markers:
    """Writes markers, in `__consumer_offsets` too, where they decide about pending offsets."""

    def __init__(
        self, partition_of: Callable[[At], Partition], offsets: OffsetStore, *, coordinator_epoch: int
    ) -> None:
        self._partition_of = partition_of
        self._offsets = offsets
        self._coordinator_epoch = coordinator_epoch

    async def write(self, txn: Transaction) -> None:
        """Put the marker of a decided transaction in all its partitions; on disk on return, also where the topic's policy
        is to lose what a power failure takes: the data may survive it, and nobody would know how the transaction ended.

        May be called again for the same transaction, after a crash or a failure. A partition that is gone is passed over.
        If one cannot take its marker now, the others do, and the reason is raised.
        """
        waiting: list[asyncio.Future[None]] = []
        failures: list[BaseException] = []
        for at in sorted(txn.partitions):
            try:
                future = self._mark(txn, at)
            except LevadaError as error:
                failures.append(error)
            else:
                waiting += [future] if future is not None else []
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        failures += [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for failure in failures:
            if not isinstance(failure, GONE):
                raise failure
            _log.info("marker left out", transactional_id=txn.transactional_id, reason=str(failure))

    def _mark(self, txn: Transaction, at: At) -> asyncio.Future[None] | None:
        partition = self._partition_of(at)
        if not self._has_marker(partition, txn):
            try:
                self._append(partition, txn.producer_id, txn.epoch, commit=txn.state is State.PREPARE_COMMIT)
            except (InvalidProducerEpoch, Fenced) as error:
                if isinstance(error, Fenced) and txn.producer_id in partition.log.producers.open_transactions:
                    raise
                # A later end of the same producer's was written here: by us, or by an administrator's `force`.
                _log.warning("marker came too late", partition=str(at), reason=str(error))
        return partition.when_synced(partition.log_end)

    @staticmethod
    def _has_marker(partition: Partition, txn: Transaction) -> bool:
        """Whether a crash came between the marker and the record that all were written.

        With TV2 the epoch tells, and it must be asked: what the producer wrote with the marker's epoch is its next
        transaction, which a second marker would end. With TV1 nothing more was written, and a second one does no harm.
        """
        producer = partition.log.producers.get(txn.producer_id)
        return txn.client_version >= TV2 and producer is not None and producer.epoch >= txn.epoch

    def abort(self, partition: Partition, producer_id: int, epoch: int) -> None:
        """End what nobody else will end."""
        self._append(partition, producer_id, epoch, commit=False)

    async def force(self, at: At, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int) -> None:
        """End a producer's transaction in one partition; durable on return. InvalidProducerEpoch; Fenced by a newer
        coordinator epoch; InvalidRequest for one that is yet to come, after which our own markers would be refused.
        """
        if coordinator_epoch > self._coordinator_epoch:
            raise InvalidRequest(
                f"coordinator epoch {coordinator_epoch} is above the broker's, {self._coordinator_epoch}"
            )
        partition = self._partition_of(at)
        self._append(partition, producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch)
        waiting = partition.when_durable(partition.log_end)
        if waiting is not None:
            await waiting

    def _append(
        self,
        partition: Partition,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int | None = None,
    ) -> None:
        partition.append_marker(
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=self._coordinator_epoch if coordinator_epoch is None else coordinator_epoch,
        )
        if partition.at == OFFSETS:
            self._offsets.complete(producer_id, commit=commit)
