"""How a transaction ends: decided, told to its partitions, done.

    the decision (Prepare*)  →  a marker in every partition, `__consumer_offsets` among them  →  Complete*

Each step is begun when the one before is durable. So a crash leaves a transaction either undecided, and then none of it is
ever seen by read_committed, or decided, and then the markers that are missing are written after the restart. Complete* is
written only when every marker is durable: after it, nobody knows any more how the transaction ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from levada.config import SECOND_MS
from levada.engine.embedded.markers import Markers
from levada.engine.embedded.transaction_log import Entry, TransactionLog
from levada.engine.embedded.transaction_state import PREPARED, TRANSACTION_VERSION, complete, prepare
from levada.errors import ConcurrentTransactions, ShuttingDown

#: Pause before markers that could not be written are tried again.
_RETRY_MS: Final = 5 * SECOND_MS

_log = structlog.get_logger("levada.transactions")


class TransactionEnds:
    """Decides ends and carries them out. `on_complete` is called after each."""

    def __init__(
        self, log: TransactionLog, markers: Markers, next_producer_id: Callable[[], int], now_ms: Callable[[], int]
    ) -> None:
        self._log = log
        self._markers = markers
        self._next_producer_id = next_producer_id
        self._now_ms = now_ms
        self.on_complete: Callable[[], None] | None = None

    def decide(self, entry: Entry, *, commit: bool, client_version: int) -> int:
        """Write the outcome and begin to carry it out. Returns the decision's receipt: once durable, it stands."""
        prepared = prepare(
            entry.txn,
            commit=commit,
            client_version=client_version,
            now_ms=self._now_ms(),
            new_producer_id=self._next_producer_id,
        )
        receipt = self._log.write(prepared)
        self.carry_out(entry)
        return receipt

    def abort(self, entry: Entry, reason: str) -> None:
        """Take an open transaction from its producer, who is fenced by it."""
        _log.info("transaction aborted", transactional_id=entry.txn.transactional_id, reason=reason)
        self.decide(entry, commit=False, client_version=TRANSACTION_VERSION)

    def carry_out(self, entry: Entry) -> asyncio.Task[None]:
        """Do what was decided, if it is not being done. It goes on whether or not anybody waits."""
        if entry.ending is None:
            entry.ending = asyncio.get_running_loop().create_task(self._carry_out(entry))
            entry.ending.add_done_callback(_report)
        return entry.ending

    async def done(self, entry: Entry) -> None:
        """Wait until the decided end is carried out. ConcurrentTransactions if it cannot be now."""
        if entry.txn.state not in PREPARED:
            return
        task = self.carry_out(entry)
        await asyncio.wait([task])
        if task.cancelled():
            raise ShuttingDown
        if task.exception() is not None:
            raise ConcurrentTransactions(f"{entry.txn.transactional_id!r}: {task.exception()}")

    async def _carry_out(self, entry: Entry) -> None:
        try:
            await self._log.durable(entry.receipt)
            await self._markers.write(entry.txn)
            self._log.write(complete(entry.txn, self._now_ms()))
        finally:
            entry.ending = None
            entry.retry_ms = self._now_ms() + _RETRY_MS
        if self.on_complete is not None:
            self.on_complete()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("a transaction could not be finished yet", kind=type(error).__name__, reason=str(error))
