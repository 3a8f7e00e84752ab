"""Transactions ⇄ records of `__transaction_state`."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from levada.engine.embedded.internal_records import TRANSACTION_KEY, TRANSACTION_VALUE, read, write
from levada.engine.embedded.transaction_state import State, Transaction
from levada.engine.port import At
from levada.errors import CorruptBatch

#: The first version with the tagged fields that TV2 needs.
_VERSION: Final = 1


def key_of(transactional_id: str) -> bytes:
    return write(TRANSACTION_KEY, 0, {"transactional_id": transactional_id})


def value_of(txn: Transaction) -> bytes:
    """As Kafka's TransactionLogValue. An empty transaction has null for its partitions."""
    partitions = [
        {"topic": topic, "partition_ids": [at.partition for at in ats]}
        for topic, ats in groupby(sorted(txn.partitions), key=lambda at: at.topic)
    ]
    return write(
        TRANSACTION_VALUE,
        _VERSION,
        {
            "producer_id": txn.producer_id,
            "previous_producer_id": txn.previous_producer_id,
            "next_producer_id": txn.next_producer_id,
            "producer_epoch": txn.epoch,
            "transaction_timeout_ms": txn.timeout_ms,
            "transaction_status": txn.state,
            "transaction_partitions": None if txn.state is State.EMPTY else partitions,
            "transaction_last_update_timestamp_ms": txn.update_ms,
            "transaction_start_timestamp_ms": txn.start_ms,
            "client_transaction_version": txn.client_version,
        },
    )


def transactional_id_of(key: bytes) -> str:
    """CorruptBatch; Unknown."""
    transactional_id: str = read(TRANSACTION_KEY, key)["transactional_id"]
    return transactional_id


def transaction_of(transactional_id: str, value: bytes) -> Transaction:
    """CorruptBatch; Unknown."""
    fields = read(TRANSACTION_VALUE, value)
    try:
        state = State(fields["transaction_status"])
    except ValueError as error:
        raise CorruptBatch(f"the transaction {transactional_id!r} has an unknown state: {error}") from None
    return Transaction(
        transactional_id=transactional_id,
        producer_id=fields["producer_id"],
        previous_producer_id=fields["previous_producer_id"],
        next_producer_id=fields["next_producer_id"],
        epoch=fields["producer_epoch"],
        timeout_ms=fields["transaction_timeout_ms"],
        state=state,
        partitions=frozenset(
            At(row["topic"], partition)
            for row in fields["transaction_partitions"] or ()
            for partition in row["partition_ids"]
        ),
        start_ms=fields["transaction_start_timestamp_ms"],
        update_ms=fields["transaction_last_update_timestamp_ms"],
        client_version=fields["client_transaction_version"],
    )
