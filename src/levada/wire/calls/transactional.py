"""A producer that writes in transactions: sequences, epochs and both of Kafka's forms are its business.

    await producer.init()                   fences whoever had this transactional id before
    await producer.send({at: batch, …})     as often as needed; `send_stream` for many, several on their way
    await producer.send_offsets(group, {at: next offset})
    await producer.commit()                 or abort()

Batches are stamped here; give them without producer fields. After a failed send only `abort` is possible: it makes the
producer usable again, unless it was fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from levada.errors import InvalidTransactionState
from levada.records.batch import Batch
from levada.wire.answers import ALL, Appended, ByPartition, OffsetAndMetadata, ProducerId, TopicPartition
from levada.wire.calls import Calls
from levada.wire.calls.layout import keyed
from levada.wire.calls.produce import Manner
from levada.wire.calls.transactions import PRODUCE_BEFORE_TV2
from levada.wire.effects import Steps, call
from levada.wire.primitives import Buffer

_SEQUENCES = 2**31


class TransactionalCalls:
    """The state of one transactional producer. One transaction at a time, one caller at a time."""

    def __init__(self, client: Calls, transactional_id: str, transaction_timeout_ms: int = 60_000) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.producer: ProducerId | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._open = False
        #: Something failed, and what the brokers have of it is not known.
        self._failed = False

    @call
    def init(self) -> Steps[ProducerId]:
        """Take the transactional id over. What its last owner left open is aborted."""
        retry = self.client._retry(None)
        producer = yield from self.client._init_producer_id(
            self.transactional_id, self.transaction_timeout_ms, None, retry
        )
        self._end(producer)
        return producer

    @call
    def send(self, batches: ByPartition[Buffer]) -> Steps[dict[TopicPartition, Appended]]:
        """Write one batch to each of these partitions, within the transaction."""
        producer = self._usable()
        self._open = self._failed = True
        held = keyed(batches)
        yield from self._add(set(held), producer)
        stamped = {at: self._stamped(at, batch) for at, batch in held.items()}
        high = None if self.client.transaction_version >= 2 else PRODUCE_BEFORE_TV2
        retry = self.client._retry(None)
        views = {at: batch.view for at, batch in stamped.items()}
        appended = yield from self.client._produce(views, ALL, retry, self.transactional_id, high)
        for at, batch in stamped.items():
            self._sequences[at] = (batch.last_sequence + 1) % _SEQUENCES
        self._failed = False
        return appended

    @call
    def send_stream(
        self,
        partitions: Iterable[tuple[str, int]],
        batches: Iterable[tuple[tuple[str, int], Buffer]],
        *,
        in_flight: int = 5,
    ) -> Steps[list[Appended]]:
        """Write batches to these partitions within the transaction, up to `in_flight` requests ahead; answers in the order given.

        The order within a partition is kept. A batch is stamped where it lies, if it can be written to.
        """
        producer = self._usable()
        self._open = self._failed = True
        yield from self._add({TopicPartition(*at) for at in partitions}, producer)
        high = None if self.client.transaction_version >= 2 else PRODUCE_BEFORE_TV2
        manner = Manner(transactional_id=self.transactional_id, high=high)
        appended = yield from self.client._produce_stream(self._in_sequence(batches), in_flight, manner)
        self._failed = False
        return appended

    def _in_sequence(
        self, batches: Iterable[tuple[tuple[str, int], Buffer]]
    ) -> Iterator[tuple[TopicPartition, Buffer]]:
        for place, batch in batches:
            at = TopicPartition(*place)
            stamped = self._stamped(at, batch)
            self._sequences[at] = (stamped.last_sequence + 1) % _SEQUENCES
            yield at, stamped.view

    @call
    def send_offsets(
        self,
        group: str,
        offsets: ByPartition[OffsetAndMetadata | int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> Steps[None]:
        """Commit the group's offsets with the transaction."""
        producer = self._usable()
        self._open = self._failed = True
        retry = self.client._retry(None)
        if self.client.transaction_version < 2 and group not in self._groups:
            yield from self.client._add_offsets(self.transactional_id, producer, group, retry)
            self._groups.add(group)
        member = {"member_id": member_id, "generation_id": generation, "group_instance_id": instance_id}
        yield from self.client._txn_offset_commit(self.transactional_id, producer, group, offsets, member, retry)
        self._failed = False

    @call
    def commit(self) -> Steps[None]:
        """Make all of it visible, at once. Without anything sent, nothing happens."""
        producer = self._usable()
        if self._open:
            # Until the answer is here, nobody knows; after a failure `commit` may be asked for again.
            ended = yield from self.client._end_txn(self.transactional_id, producer, True, self.client._retry(None))
            self._end(ended)

    @call
    def abort(self) -> Steps[None]:
        """Undo all of it, and be ready for the next."""
        if self.producer is None or not self._open:
            return
        retry = self.client._retry(None)
        ended = yield from self.client._end_txn(self.transactional_id, self.producer, False, retry)
        if self._failed and ended == self.producer:
            # The first form leaves the epoch as it is, but our sequences may not be the brokers': begin with a new one.
            ended = yield from self.client._init_producer_id(
                self.transactional_id, self.transaction_timeout_ms, ended, retry
            )
        self._end(ended)

    def _usable(self) -> ProducerId:
        if self.producer is None:
            raise InvalidTransactionState("the transactional producer was not initialised: call init first")
        if self._failed:
            raise InvalidTransactionState("a step of the transaction failed: it can only be aborted")
        return self.producer

    def _add(self, partitions: set[TopicPartition], producer: ProducerId) -> Steps[None]:
        new = partitions - self._partitions
        if new and self.client.transaction_version < 2:
            retry = self.client._retry(None)
            yield from self.client._add_partitions(self.transactional_id, producer, sorted(new), retry)
        self._partitions |= new

    def _stamped(self, at: TopicPartition, batch: Buffer) -> Batch:
        assert self.producer is not None
        writable = memoryview(batch)
        stamped = Batch(writable if not writable.readonly else memoryview(bytearray(batch)))
        stamped.stamp_producer(*self.producer, self._sequences.get(at, 0), transactional=True)
        return stamped

    def _end(self, producer: ProducerId) -> None:
        if producer != self.producer:
            # A new epoch counts its batches from 0.
            self._sequences.clear()
        self.producer = producer
        self._partitions.clear()
        self._groups.clear()
        self._open = self._failed = False
