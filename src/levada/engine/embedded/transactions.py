"""The transaction coordinator: who may write under a transactional id, and how its transactions end.

A change is decided by `transaction_state`, written to `__transaction_state`, and in memory before the loop turns; it is
answered when it is durable. How the engine wires it:

    transactions = Transactions(journal, partition_of, offset_store, next_producer_id, now_ms, limits, coordinator_epoch=…)
    transactions.load(); offset_store.load(); transactions.start()
    transactions.opened(partition)     # for every partition when it was opened, also before load()
    transactions.tick(now_ms)          # every transaction.abort.timed.out.transaction.cleanup.interval.ms
    await transactions.close()         # before the logs are closed
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

import structlog

from levada.config import HOUR_MS
from levada.engine.embedded.markers import OFFSETS, Markers
from levada.engine.embedded.offsets import OffsetStore
from levada.engine.embedded.orphans import Orphans
from levada.engine.embedded.transaction_ends import TransactionEnds
from levada.engine.embedded.transaction_limits import TransactionLimits
from levada.engine.embedded.transaction_log import Entry, TransactionLog
from levada.engine.embedded.transaction_state import (
    NO_EPOCH,
    NO_PRODUCER,
    PREPARED,
    TRANSACTION_VERSION,
    TV1,
    TV2,
    Ending,
    State,
    Transaction,
    add,
    check_ending,
    check_initializing,
    check_producer,
    initialize,
)
from levada.engine.port import At, Committed
from levada.errors import (
    InvalidProducerEpoch,
    InvalidProducerMapping,
    InvalidRequest,
    InvalidTransactionState,
    LevadaError,
    ProducerFenced,
    TransactionAbortable,
    UnknownTransactionalId,
)

if TYPE_CHECKING:
    from levada.engine.embedded.journal import Journal
    from levada.engine.embedded.partition import Partition

__all__ = ["TRANSACTION_VERSION", "Transactions"]

#: Pause between looks for ids that nobody uses any more.
_FORGET_MS: Final = HOUR_MS

_log = structlog.get_logger("levada.transactions")


class Transactions:
    """All transactional ids of this broker.

    An older epoch is ProducerFenced in every call, a wrong producer id InvalidProducerMapping. A call that finds the last
    transaction still ending waits for it; ConcurrentTransactions only when its markers cannot be written.
    """

    def __init__(
        self,
        journal: Journal,
        partition_of: Callable[[At], Partition],
        offsets: OffsetStore,
        next_producer_id: Callable[[], int],
        now_ms: Callable[[], int],
        limits: TransactionLimits,
        *,
        coordinator_epoch: int,
    ) -> None:
        markers = self._markers = Markers(partition_of, offsets, coordinator_epoch=coordinator_epoch)
        self.limits = limits
        self._offsets = offsets
        self._next_producer_id = next_producer_id
        self._now_ms = now_ms
        self._log = TransactionLog(journal)
        self._ends = TransactionEnds(self._log, markers, next_producer_id, now_ms)
        self._orphans = Orphans(self._log, markers, now_ms)
        self._ends.on_complete = self._orphans.settle
        self._forget_at_ms = 0

    # Life

    def load(self) -> None:
        """Read the state of every id back."""
        self._log.load()

    def start(self) -> None:
        """Go on with what a crash cut short: write the markers of what was decided, look at what was opened meanwhile."""
        for entry in self._log.open():
            if entry.txn.state in PREPARED:
                self._ends.carry_out(entry)
        self._orphans.start()

    def opened(self, partition: Partition) -> None:
        """A partition was opened: what a crash left open in it is adopted or aborted."""
        self._orphans.opened(partition)

    async def close(self) -> None:
        """Wait for the ends that are being carried out."""
        ending = [entry.ending for entry in self._log.open() if entry.ending is not None]
        if ending:
            await asyncio.wait(ending)

    def tick(self, now_ms: int) -> None:
        """Abort what took too long, try again what failed, and forget ids that have been idle for long."""
        for entry in self._log.open():
            deadline = _deadline(entry)
            if deadline is not None and deadline < now_ms:
                self._overdue(entry)
        self._orphans.settle()
        if now_ms >= self._forget_at_ms:
            self._forget_at_ms = now_ms + _FORGET_MS
            expiration_ms = self.limits.id_expiration_ms
            self._log.forget([txn for txn in self.all() if txn.is_idle(now_ms, expiration_ms)])

    def _overdue(self, entry: Entry) -> None:
        if entry.txn.state in PREPARED:
            self._ends.carry_out(entry)
            return
        try:
            self._ends.abort(entry, "it timed out")
        except LevadaError as error:  # the disk is full: the next tick tries again
            _log.warning("not aborted", transactional_id=entry.txn.transactional_id, reason=str(error))

    async def durable(self, receipt: int) -> None:
        """Wait until what gave this receipt is durable."""
        await self._log.durable(receipt)

    # Producers

    async def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, producer_id: int = NO_PRODUCER, epoch: int = NO_EPOCH
    ) -> tuple[int, int]:
        """A producer id and epoch to write with. Whoever had the id before is fenced, and what it left open aborted.

        A producer that goes on after an error names what it had (KIP-360), and is fenced if somebody else has it now.
        Without a transactional id it is a new producer id, for idempotence alone. InvalidTransactionTimeout.
        """
        if (producer_id == NO_PRODUCER) != (epoch == NO_EPOCH):
            raise InvalidRequest(f"producer id {producer_id} and epoch {epoch} are named together, or neither is")
        if transactional_id is None:
            return self._next_producer_id(), 0
        if not transactional_id:
            raise InvalidRequest("the transactional id is empty")
        self.limits.check_timeout(timeout_ms)
        expected = None if producer_id == NO_PRODUCER else (producer_id, epoch)
        txn = initialize(
            await self._at_rest(transactional_id, timeout_ms, expected),
            timeout_ms=timeout_ms,
            expected=expected,
            now_ms=self._now_ms(),
            new_producer_id=self._next_producer_id,
        )
        await self._log.durable(self._log.write(txn))
        return txn.producer_id, txn.epoch

    async def _at_rest(self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None) -> Transaction:
        """The id with no transaction open; one that is, is aborted."""
        while (entry := self._log.find(transactional_id)) is not None:
            if entry.txn.state not in PREPARED:
                check_initializing(entry.txn, expected)
                if entry.txn.state is not State.ONGOING:
                    return entry.txn
                self._ends.abort(entry, "its producer began anew")
            await self._ends.done(entry)
        return Transaction(
            transactional_id=transactional_id,
            producer_id=self._next_producer_id(),
            timeout_ms=timeout_ms,
            update_ms=self._now_ms(),
        )

    # Partitions and offsets

    async def add_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, ats: AbstractSet[At], *, tv2: bool = False
    ) -> None:
        """Partitions join the transaction, all of them; the first ones begin it. The caller knows that they exist."""
        entry = await self._at_hand(transactional_id)
        check_producer(entry.txn, producer_id, epoch)
        self._add(entry, ats, TV2 if tv2 else TV1)
        await self._log.durable(entry.receipt)

    async def add_offsets(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        """Offsets are about to join the transaction, of whatever group."""
        await self.add_partitions(transactional_id, producer_id, epoch, {OFFSETS})

    def missing(self, transactional_id: str, producer_id: int, epoch: int, ats: AbstractSet[At]) -> AbstractSet[At]:
        """Which of these partitions are not in the producer's transaction."""
        entry = self._log.get(transactional_id)
        check_producer(entry.txn, producer_id, epoch)
        return ats - entry.txn.partitions

    def on_transactional_append(
        self,
        producer_id: int,
        epoch: int,
        at: At,
        *,
        transactional_id: str | None = None,
        implicit: bool = False,
        abortable: bool = True,
    ) -> int | None:
        """A batch of a transaction is about to be appended: is it in its producer's transaction?

        With `implicit` (TV2: Produce 12+) the partition joins it. Without, it must have been added before, or it is
        TransactionAbortable; InvalidTransactionState for clients that do not know that one (not `abortable`: Produce
        before 11). An older epoch is InvalidProducerEpoch, as producers expect it here. Append before the loop turns,
        so that no marker comes between. Returns None, or a receipt: acknowledge the batch after `await durable(receipt)`.
        """
        entry = self._log.of_producer(producer_id)
        if entry is None or (transactional_id is not None and entry.txn.transactional_id != transactional_id):
            raise InvalidProducerMapping(f"producer id {producer_id} does not belong to {transactional_id!r}")
        txn = entry.txn
        if not (txn.state is State.ONGOING and txn.epoch == epoch and at in txn.partitions):
            self._admit(entry, producer_id, epoch, at, implicit=implicit, abortable=abortable)
        return None if self._log.is_durable(entry.receipt) else entry.receipt

    async def commit_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        group: str,
        offsets: Mapping[At, Committed],
        *,
        implicit: bool = False,
        abortable: bool = True,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Offsets join the transaction: committed if it commits. Durable on return; refusals as for a batch.

        `implicit` is TxnOffsetCommit 5+, `abortable` 4+. `check` raises if the group does not let them; it is called once
        the transaction lets them, in the turn of the loop in which they are written.
        """
        entry = await self._at_hand(transactional_id)
        self._admit(entry, producer_id, epoch, OFFSETS, implicit=implicit, abortable=abortable, check=check)
        receipt = entry.receipt
        await self._offsets.commit_transactional(group, producer_id, epoch, offsets)
        await self._log.durable(receipt)

    def _admit(
        self,
        entry: Entry,
        producer_id: int,
        epoch: int,
        at: At,
        *,
        implicit: bool,
        abortable: bool,
        check: Callable[[], None] | None = None,
    ) -> None:
        try:
            check_producer(entry.txn, producer_id, epoch)
        except ProducerFenced as error:
            raise InvalidProducerEpoch(str(error)) from None
        if not implicit and (entry.txn.state is not State.ONGOING or at not in entry.txn.partitions):
            refusal = TransactionAbortable if abortable else InvalidTransactionState
            raise refusal(f"{at} was not added to the transaction of {entry.txn.transactional_id!r}")
        if check is not None:
            check()
        if implicit:
            self._add(entry, {at}, TV2)

    def _add(self, entry: Entry, ats: AbstractSet[At], client_version: int) -> None:
        if entry.txn.state is not State.ONGOING or not ats <= entry.txn.partitions:
            self._log.write(add(entry.txn, ats, now_ms=self._now_ms(), client_version=client_version))

    # Ends

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, *, tv2: bool = False
    ) -> tuple[int, int]:
        """Commit or abort. Returns the producer id and epoch to go on with (TV1: the same as before).

        A repeated call is answered as the first. InvalidTransactionState when there is nothing to end, or it ended the
        other way. Returns when the markers are durable, one sync later than Kafka answers: the next transaction must
        wait for them anyway, and whoever is told "committed" can read it. Where they cannot be written now (the disk is
        full), it returns all the same, because the outcome stands, and `tick` tries again.
        """
        client_version = TV2 if tv2 else TV1
        entry = await self._at_hand(transactional_id)
        ending = check_ending(entry.txn, producer_id, epoch, commit=commit, client_version=client_version)
        if ending is Ending.REPEATED:
            return entry.txn.producer_id, entry.txn.epoch
        receipt = self._ends.decide(entry, commit=commit, client_version=client_version)
        successor = entry.txn.successor()
        carried_out = self._ends.carry_out(entry)
        await self._log.durable(receipt)
        await asyncio.wait([carried_out])
        return successor

    async def force_marker(self, at: At, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int) -> None:
        """An administrator ends what is open in one partition, whatever the coordinator thinks of it; durable on return.

        InvalidProducerEpoch for an older epoch than the partition has seen; Fenced for an older coordinator epoch,
        InvalidRequest for one above the broker's.
        """
        await self._markers.force(at, producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch)

    async def _at_hand(self, transactional_id: str) -> Entry:
        """The id, once its last transaction has ended. Act on it before the loop turns again."""
        while (entry := self._log.get(transactional_id)).txn.state in PREPARED:
            await self._ends.done(entry)
        return entry

    # Questions

    def all(self) -> Collection[Transaction]:
        """Every transactional id as it is now."""
        return [entry.txn for entry in self._log.entries()]

    def get(self, transactional_id: str) -> Transaction:
        """UnknownTransactionalId."""
        entry = self._log.find(transactional_id)
        if entry is None:
            raise UnknownTransactionalId(f"there is no transactional id {transactional_id!r}")
        return entry.txn


def _deadline(entry: Entry) -> int | None:
    if entry.txn.state in PREPARED:
        return entry.retry_ms if entry.ending is None else None
    return entry.txn.deadline_ms
