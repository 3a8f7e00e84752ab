"""The state of every transactional id: the last record under its key in `__transaction_state`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog

from levada.engine.embedded.internal_records import Unknown
from levada.engine.embedded.transaction_records import key_of, transaction_of, transactional_id_of, value_of
from levada.engine.embedded.transaction_state import NO_PRODUCER, Transaction
from levada.errors import InvalidProducerMapping, InvalidRequest

if TYPE_CHECKING:
    from levada.engine.embedded.journal import Journal

_log = structlog.get_logger("levada.transactions")


class Entry:
    """One transactional id: its state, how far the journal was when it came, and the end that is being carried out."""

    __slots__ = ("ending", "receipt", "retry_ms", "txn")

    def __init__(self, txn: Transaction, receipt: int) -> None:
        self.txn = txn
        self.receipt = receipt
        self.ending: asyncio.Task[None] | None = None
        #: When an end that could not be carried out is tried again.
        self.retry_ms = 0


class TransactionLog:
    """Writes states and knows the newest of each id. What is written is in memory at once, and durable after `durable`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._entries: dict[str, Entry] = {}
        self._by_producer: dict[int, Entry] = {}
        self._open: dict[str, Entry] = {}
        self._durable_end = 0

    def load(self) -> None:
        """Read everything back."""
        for batch, records in self._journal.replay():
            for record in () if batch.is_control else records:
                try:
                    transactional_id = transactional_id_of(record.key or b"")
                    if record.value is None:
                        self._drop(transactional_id)
                    else:
                        self._install(transaction_of(transactional_id, record.value), record.offset + 1)
                except Unknown as reason:
                    _log.warning("record passed over", offset=record.offset, reason=str(reason))

    # Reading

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def open(self) -> list[Entry]:
        """Ids with a transaction that is open or ending."""
        return list(self._open.values())

    def find(self, transactional_id: str) -> Entry | None:
        return self._entries.get(transactional_id)

    def get(self, transactional_id: str) -> Entry:
        """InvalidRequest for no id; InvalidProducerMapping for one that has no producer."""
        if not transactional_id:
            raise InvalidRequest("the transactional id is empty")
        entry = self._entries.get(transactional_id)
        if entry is None:
            raise InvalidProducerMapping(f"there is no producer for {transactional_id!r}")
        return entry

    def of_producer(self, producer_id: int) -> Entry | None:
        """Whose producer id this is, or will be once its end is carried out."""
        return self._by_producer.get(producer_id)

    # Writing

    def write(self, txn: Transaction) -> int:
        """The id's new state. Returns a receipt."""
        receipt = self._journal.append([(key_of(txn.transactional_id), value_of(txn))])
        self._install(txn, receipt)
        return receipt

    def forget(self, idle: Iterable[Transaction]) -> None:
        """These ids are no more."""
        transactional_ids = [txn.transactional_id for txn in idle]
        if transactional_ids:
            self._journal.append([(key_of(transactional_id), None) for transactional_id in transactional_ids])
        for transactional_id in transactional_ids:
            self._drop(transactional_id)

    def is_durable(self, receipt: int) -> bool:
        """Whether somebody has waited for this, or for something later, already."""
        return receipt <= self._durable_end

    async def durable(self, receipt: int) -> None:
        """Wait until what gave this receipt is durable."""
        if receipt > self._durable_end:
            await self._journal.durable(receipt)
            self._durable_end = max(self._durable_end, receipt)

    def _install(self, txn: Transaction, receipt: int) -> None:
        entry = self._entries.get(txn.transactional_id)
        if entry is None:
            entry = self._entries[txn.transactional_id] = Entry(txn, receipt)
        elif entry.txn.producer_id != txn.producer_id:
            self._by_producer.pop(entry.txn.producer_id, None)
        entry.txn, entry.receipt = txn, receipt
        self._by_producer[txn.producer_id] = entry
        if txn.next_producer_id != NO_PRODUCER:
            self._by_producer[txn.next_producer_id] = entry
        if txn.is_open:
            self._open[txn.transactional_id] = entry
        else:
            self._open.pop(txn.transactional_id, None)

    def _drop(self, transactional_id: str) -> None:
        entry = self._entries.pop(transactional_id, None)
        if entry is not None:
            self._by_producer.pop(entry.txn.producer_id, None)
            self._open.pop(transactional_id, None)
