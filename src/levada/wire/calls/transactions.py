"""Producer ids and transactions, call by call. `transactional` puts them together.

Two forms, by the cluster's feature `transaction.version` (KIP-890): up to 1, partitions and groups are added to a transaction
before they are written to; from 2 on, writing adds them, and the end of a transaction gives the producer its next epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from levada.wire.answers import ByPartition, OffsetAndMetadata, ProducerId, TopicPartition
from levada.wire.apis import ApiKey
from levada.wire.calls.coordinator import GROUP, TRANSACTION, CoordinatorCalls
from levada.wire.calls.groups import as_place, offset_row
from levada.wire.calls.layout import by_topic, keyed, partitions_of, topic_rows
from levada.wire.codec import Message
from levada.wire.codes import refused
from levada.wire.effects import Steps, call
from levada.wire.retry import Retry

T = TypeVar("T")

#: The newest versions that a client of the first form may use: the next ones mean the second.
PRODUCE_BEFORE_TV2: Final = 11
_END_TXN_BEFORE_TV2: Final = 4
_TXN_OFFSET_COMMIT_BEFORE_TV2: Final = 4
#: From version 4 on AddPartitionsToTxn is for brokers.
_ADD_PARTITIONS_FOR_CLIENTS: Final = 3


class TransactionCalls(CoordinatorCalls):
    """The steps of transactions. A newer producer with the same transactional id fences this one: PRODUCER_FENCED."""

    @property
    def transaction_version(self) -> int:
        """The cluster's level of transactions: 0, 1 or 2."""
        return self.cluster.features.get("transaction.version", 0)

    @call
    def init_producer_id(
        self,
        transactional_id: str | None = None,
        *,
        transaction_timeout_ms: int = 60_000,
        producer: ProducerId | None = None,
        timeout_ms: int | None = None,
    ) -> Steps[ProducerId]:
        """A producer id. With a transactional id it is that id's, at a new epoch: older producers are fenced, what they left open is
        aborted. With the `producer` it has now, the epoch grows only if nobody else has taken over.
        """
        return (
            yield from self._init_producer_id(
                transactional_id, transaction_timeout_ms, producer, self._retry(timeout_ms)
            )
        )

    def _init_producer_id(
        self, transactional_id: str | None, transaction_timeout_ms: int, producer: ProducerId | None, retry: Retry
    ) -> Steps[ProducerId]:
        fields = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_timeout_ms,
            "producer_id": producer.producer_id if producer else -1,
            "producer_epoch": producer.epoch if producer else -1,
        }
        low = 3 if producer else None

        def read(answer: Message) -> ProducerId:
            if answer.error_code:
                raise refused(answer.error_code, f"transactional id {transactional_id}")
            return ProducerId(answer.producer_id, answer.producer_epoch)

        if transactional_id is not None:
            return (
                yield from self._ask_coordinator(
                    TRANSACTION, transactional_id, ApiKey.INIT_PRODUCER_ID, fields, read, retry, low=low
                )
            )

        def attempt(retry: Retry) -> Steps[ProducerId]:
            return read((yield from self._ask_any(ApiKey.INIT_PRODUCER_ID, fields, retry, low=low)))

        return (yield from self._retried(attempt, retry))

    @call
    def add_partitions_to_txn(
        self,
        transactional_id: str,
        producer: ProducerId,
        partitions: Iterable[tuple[str, int]],
        *,
        timeout_ms: int | None = None,
    ) -> Steps[None]:
        """Before writing to these partitions, in the first form."""
        yield from self._add_partitions(transactional_id, producer, partitions, self._retry(timeout_ms))

    def _add_partitions(
        self, transactional_id: str, producer: ProducerId, partitions: Iterable[tuple[str, int]], retry: Retry
    ) -> Steps[None]:
        rows = by_topic({TopicPartition(*at): None for at in partitions})
        fields = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.epoch,
            "v3_and_below_topics": [{"name": name, "partitions": [index for index, _ in held]} for name, held in rows],
        }

        def read(answer: Message) -> None:
            for topic in answer.results_by_topic_v3_and_below:
                for one in topic.results_by_partition:
                    if one.partition_error_code:
                        about = f"partition {topic.name}-{one.partition_index} in transaction {transactional_id}"
                        raise refused(one.partition_error_code, about)

        yield from self._in_txn(
            transactional_id, ApiKey.ADD_PARTITIONS_TO_TXN, fields, read, retry, _ADD_PARTITIONS_FOR_CLIENTS
        )

    @call
    def add_offsets_to_txn(
        self, transactional_id: str, producer: ProducerId, group: str, *, timeout_ms: int | None = None
    ) -> Steps[None]:
        """Before committing offsets of this group, in the first form."""
        yield from self._add_offsets(transactional_id, producer, group, self._retry(timeout_ms))

    def _add_offsets(self, transactional_id: str, producer: ProducerId, group: str, retry: Retry) -> Steps[None]:
        fields = {**_owner(transactional_id, producer), "group_id": group}
        read = _no_error(f"group {group} in transaction {transactional_id}")
        yield from self._in_txn(transactional_id, ApiKey.ADD_OFFSETS_TO_TXN, fields, read, retry)

    @call
    def txn_offset_commit(
        self,
        transactional_id: str,
        producer: ProducerId,
        group: str,
        offsets: ByPartition[OffsetAndMetadata | int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> Steps[None]:
        """Commit the group's offsets together with the transaction."""
        member = {"member_id": member_id, "generation_id": generation, "group_instance_id": instance_id}
        yield from self._txn_offset_commit(transactional_id, producer, group, offsets, member, self._retry(timeout_ms))

    def _txn_offset_commit(
        self,
        transactional_id: str,
        producer: ProducerId,
        group: str,
        offsets: ByPartition[OffsetAndMetadata | int],
        member: Mapping[str, Any],
        retry: Retry,
    ) -> Steps[None]:
        places = {at: as_place(value) for at, value in keyed(offsets).items()}
        topics = topic_rows(places, lambda at: offset_row(at, places[at]))
        fields = {**_owner(transactional_id, producer), **member, "group_id": group, "topics": topics}
        high = None if self.transaction_version >= 2 else _TXN_OFFSET_COMMIT_BEFORE_TV2

        def read(answer: Message) -> None:
            for at, one in partitions_of(answer):
                if one.error_code:
                    raise refused(one.error_code, f"offset of group {group} in {at}")

        yield from self._ask_coordinator(GROUP, group, ApiKey.TXN_OFFSET_COMMIT, fields, read, retry, high=high)

    @call
    def end_txn(
        self, transactional_id: str, producer: ProducerId, *, commit: bool, timeout_ms: int | None = None
    ) -> Steps[ProducerId]:
        """Commit or abort; the producer to go on with, which in the second form has another epoch."""
        return (yield from self._end_txn(transactional_id, producer, commit, self._retry(timeout_ms)))

    def _end_txn(self, transactional_id: str, producer: ProducerId, commit: bool, retry: Retry) -> Steps[ProducerId]:
        fields = {**_owner(transactional_id, producer), "committed": commit}
        check = _no_error(f"transaction {transactional_id}")

        def read(answer: Message) -> ProducerId:
            check(answer)
            return producer if answer.producer_id < 0 else ProducerId(answer.producer_id, answer.producer_epoch)

        high = None if self.transaction_version >= 2 else _END_TXN_BEFORE_TV2
        return (yield from self._in_txn(transactional_id, ApiKey.END_TXN, fields, read, retry, high))

    def _in_txn(
        self,
        transactional_id: str,
        api_key: int,
        fields: Mapping[str, Any],
        read: Callable[[Message], T],
        retry: Retry,
        high: int | None = None,
    ) -> Steps[T]:
        return (
            yield from self._ask_coordinator(TRANSACTION, transactional_id, api_key, fields, read, retry, high=high)
        )


def _owner(transactional_id: str, producer: ProducerId) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


def _no_error(about: str) -> Callable[[Message], None]:
    def read(answer: Message) -> None:
        if answer.error_code:
            raise refused(answer.error_code, about)

    return read
