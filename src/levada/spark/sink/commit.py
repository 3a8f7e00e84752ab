"""One Spark batch made visible: one transaction copies what was staged, and says so in `__levada.sinks`.

The transactional id is the sink's id. `InitProducerId` aborts what a dead driver left open and fences one that still runs. What fails on the
way, a broker that restarts among it, is aborted and begun anew: the sink's record tells whether the try before succeeded after all.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Final

from levada.config import MINUTE_MS
from levada.errors import BrokerRefused, ConnectionLost, LevadaError, TimedOut, Unreachable
from levada.spark.options.cluster import Cluster
from levada.spark.sink.claims import Asking, BatchSeen, SinkFenced, Verdict, claimed, verdict, written
from levada.spark.sink.freeing import free
from levada.spark.sink.sinks import Sinks, record_of
from levada.spark.sink.stage import IN_FLIGHT, Looked, Source, staged
from levada.spark.sink.transactions import await_visible
from levada.wire.blocking import BlockingClient, BlockingTransactionalProducer
from levada.wire.codes import RETRIABLE, ErrorCode

__all__ = ["BatchSeen", "Commit", "Sinks", "transaction_timeout_ms"]

_TRIES: Final = 3
_AWAY: Final = (Unreachable, ConnectionLost, TimedOut)
_TIMEOUT_MS_MIN: Final = MINUTE_MS
_TIMEOUT_MS_LEAST: Final = 2_000
#: What brokers allow unless told otherwise (`transaction.max.timeout.ms`).
_TIMEOUT_MS_MAX: Final = 15 * MINUTE_MS
#: A copy that is slower than this takes longer than its transaction may.
_BYTES_PER_MS: Final = 2_000
#: So long is a commit waited for that brokers have yet to tell all partitions of.
_VISIBLE_S: Final = 10.0
_FENCED: Final = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
#: The transaction is gone or broken; a new one may do.
_BEGIN_ANEW: Final = RETRIABLE | frozenset(
    (
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    )
)


def transaction_timeout_ms(size: int) -> int:
    """How long the transaction that copies so many bytes may take before brokers abort it by themselves."""
    return min(_TIMEOUT_MS_MIN + size // _BYTES_PER_MS, _TIMEOUT_MS_MAX)


class Commit:
    """The making visible of one batch, on the driver."""

    def __init__(self, cluster: Cluster, asking: Asking, sources: Sequence[Source], *, counted: bool) -> None:
        """Not `counted`: a write that nobody will repeat under this id, which has no record in `__levada.sinks`."""
        self._cluster = cluster
        self._asking = asking
        self._sources = [source for source in sources if source.pieces]
        self._counted = counted
        #: The end of the transaction was asked for.
        self._ending = False

    def run(self) -> bool:
        """Whether this made the batch visible; False if it is already, or has no rows. SinkFenced, StageLost, WrongOption, ClientError."""
        if not self._sources:
            return False
        for left in range(_TRIES - 1, -1, -1):
            try:
                with self._cluster.client() as client, self._cluster.client() as reading:
                    return self._once(client, reading)
            except LevadaError as error:
                if not (left and self._may_try_again(error)):
                    raise self._named(error) from error
        raise AssertionError("the last try returns or raises")

    def _once(self, client: BlockingClient, reading: BlockingClient) -> bool:
        asking, sinks = self._asking, Sinks(client)
        # First without taking over: who is fenced must not disturb who is not.
        if self._counted and verdict(sinks.last_committed(asking.sink), asking) is Verdict.DONE:
            return False
        producer = self._producer(client)
        seen: BatchSeen | None = None
        if self._counted:
            seen = sinks.last_committed(asking.sink)
            now = verdict(seen, asking)
            if now is Verdict.DONE:
                return False
            if now is Verdict.CLAIM:
                seen = claimed(seen, asking)
                producer.send({sinks.place(asking.sink): record_of(asking.sink, seen, _now_ms)})
                producer.commit()
        looked: dict[int, Looked] = {}
        try:
            self._copy(producer, reading, looked)
            if seen is not None:
                record = record_of(asking.sink, written(seen, asking), _now_ms)
                producer.send({sinks.place(asking.sink): record})
            self._ending = True
            producer.commit()
        except _AWAY:
            raise  # whoever comes next takes the id over, and so aborts it
        except LevadaError:
            with contextlib.suppress(LevadaError):
                producer.abort()
            raise
        with contextlib.suppress(LevadaError):  # it is committed, whatever goes wrong from here on
            await_visible(client, asking.sink, _VISIBLE_S)
            free(client, sinks, asking, looked)
        return True

    def _producer(self, client: BlockingClient) -> BlockingTransactionalProducer:
        """The owner of the sink's id, from now on. Brokers that allow transactions less time than ours would like get their way."""
        timeout_ms = transaction_timeout_ms(sum(piece.size for source in self._sources for piece in source.pieces))
        while True:
            producer = client.transactional_producer(self._asking.sink, transaction_timeout_ms=timeout_ms)
            try:
                producer.init()
            except BrokerRefused as refusal:
                if refusal.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT or timeout_ms < _TIMEOUT_MS_LEAST:
                    raise
                timeout_ms //= 2
            else:
                return producer

    def _copy(
        self, producer: BlockingTransactionalProducer, reading: BlockingClient, looked: dict[int, Looked]
    ) -> None:
        targets = {(piece.topic, piece.partition) for source in self._sources for piece in source.pieces}
        producer.send_stream(sorted(targets), staged(reading, self._sources, looked), in_flight=IN_FLIGHT)

    def _may_try_again(self, error: LevadaError) -> bool:
        if self._ending and not self._counted:
            return False  # it may be visible, and no record says so
        match error:
            case Unreachable() | ConnectionLost() | TimedOut():
                return True
            case BrokerRefused(code=code):
                # Fenced by whom? The sink's record says so at the next try, unless it is not theirs but still ours.
                return code in _BEGIN_ANEW or (code in _FENCED and self._counted)
        return False

    def _named(self, error: LevadaError) -> LevadaError:
        match error:
            case BrokerRefused(code=code) if code in _FENCED:
                return SinkFenced(
                    f"sink {self._asking.sink!r}: another producer uses this id and has fenced batch {self._asking.batch} of this run ({error})"
                )
        return error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
