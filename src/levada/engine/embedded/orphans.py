"""Open transactions that a crash left in the partitions.

With TV2 a batch is written beside the record that adds its partition, so the one may survive without the other. Whoever
wrote it was not answered, and will send it again: then it is taken for a repeat and answered as written, so it must
still belong to the transaction. It is adopted. Only when its producer can no longer be in that transaction is it aborted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from levada.engine.embedded.markers import GONE, Markers
from levada.engine.embedded.transaction_log import TransactionLog
from levada.engine.embedded.transaction_state import PREPARED, TV2, add
from levada.engine.port import At
from levada.errors import ConcurrentTransactions, LevadaError

if TYPE_CHECKING:
    from levada.engine.embedded.partition import Partition

_log = structlog.get_logger("levada.transactions")


class Orphans:
    """Partitions that were opened with transactions in them. Nothing is decided before `start`."""

    def __init__(self, log: TransactionLog, markers: Markers, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._markers = markers
        self._now_ms = now_ms
        self._unsettled: list[Partition] = []
        self._started = False

    def start(self) -> None:
        """The log of transactions is loaded: decide."""
        self._started = True
        self.settle()

    def opened(self, partition: Partition) -> None:
        """Look at a partition that was opened."""
        if partition.log.producers.open_transactions:
            self._unsettled.append(partition)
            self.settle()

    def settle(self) -> None:
        """Decide about what is left to decide."""
        if self._started and self._unsettled:
            unsettled, self._unsettled = self._unsettled, []
            self._unsettled += [partition for partition in unsettled if not self._is_settled(partition)]

    def _is_settled(self, partition: Partition) -> bool:
        producers = partition.log.producers
        try:
            for producer_id in list(producers.open_transactions):
                producer = producers.get(producer_id)
                if producer is not None and self.is_orphan(partition.at, producer_id, producer.epoch):
                    _log.info("orphan aborted", partition=str(partition.at), producer_id=producer_id)
                    self._markers.abort(partition, producer_id, producer.epoch)
        except ConcurrentTransactions:
            return False
        except GONE:
            return True
        except LevadaError as error:
            _log.warning("open transaction not settled", partition=str(partition.at), reason=str(error))
            return False
        return True

    def is_orphan(self, at: At, producer_id: int, epoch: int) -> bool:
        """Whether nobody will end this producer's open transaction here; one that somebody may is made known to them.

        ConcurrentTransactions: it follows on one that is still ending; ask again.
        """
        entry = self._log.of_producer(producer_id)
        if entry is None:
            return True
        txn = entry.txn
        if txn.state in PREPARED:
            if txn.client_version >= TV2 and (producer_id, epoch) == txn.successor():
                raise ConcurrentTransactions
            return producer_id != txn.producer_id or at not in txn.partitions
        if (producer_id, epoch) != (txn.producer_id, txn.epoch):
            return True
        if at not in txn.partitions:
            self._log.write(add(txn, {at}, now_ms=self._now_ms(), client_version=txn.client_version))
        return False
