"""Produce, versions 3–13; 0–2 are advertised and refused (KAFKA-18659).

- The records are looked at, stamped and written where they were received; nothing is copied.
- Each partition succeeds or fails on its own. Exactly one batch per partition.
- acks 1 and −1 are answered when every partition is as durable as its topic says, or at the request's timeout; acks 0 is
  never answered, and closes the connection when something was refused, as in Kafka: the client learns of it no other way.
- A repeat of a producer's batch is answered with the first one's offset.
- Where the topic remembers messages (levada.dedup), those that were seen before are left out of the batch; the others keep their
  offsets and sequences. The answer waits for the first copies as well, and the first request for the memory (screened.py).
- A transactional batch is written only once its partition is part of the transaction: up to version 11 the client has
  added it, from 12 on (KIP-890) it is added here, which waits for the transaction log once per partition.
"""

from __future__ import annotations

import asyncio
from functools import partial
from struct import Struct
from time import perf_counter_ns
from typing import Final, NamedTuple
from uuid import UUID

from levada.broker.topics import BOOKKEEPING_TOPICS
from levada.engine.embedded.partition import Partition
from levada.engine.port import At
from levada.errors import (
    InvalidRecord,
    InvalidTopicName,
    LevadaError,
    RecordError,
    ShuttingDown,
    TimedOut,
    UnsupportedCompression,
)
from levada.fronts.kafka import notice, screened
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import NONE, UNSUPPORTED_VERSION, code_of
from levada.fronts.kafka.reply import Body, HangUp, Later
from levada.records.batch import Batch
from levada.records.compression import CODECS
from levada.wire.produce import Produced, ProduceRequest, read_request, write_response

_INVALID_REQUIRED_ACKS: Final = 21
_TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
_OLDEST: Final = 3
#: From this version on records may be compressed with zstd.
_ZSTD_FROM: Final = 7
_ZSTD: Final = CODECS["zstd"]
#: From these on a batch adds its partition to its transaction, and the client knows TRANSACTION_ABORTABLE.
_IMPLICIT_FROM: Final = 12
_ABORTABLE_FROM: Final = 11

#: Of requests that wait for nothing, one in 64 is timed and counts for all: timing every one would cost 4 % of them. A client
#: numbers its requests, and its first Produce is about the fourth.
_TIMED: Final = 4

#: The answers, topic by topic, as the wire takes them.
Rows = list[tuple[str | UUID, list[Produced]]]


def serve(body: memoryview, call: Call) -> Body | Later | None:
    if call.version < _OLDEST:
        return _refuse_version(body, call)
    if call.correlation_id & 63 == _TIMED:
        return _timed(body, call)
    request = read_request(call.version, body)
    if request.acks not in (-1, 0, 1):
        return _refuse_acks(request, call)
    return _append(request, call)


def _timed(body: memoryview, call: Call) -> Body | Later | None:
    """The same and, if that was all, count how long it took. An answer that waits for something counts that itself."""
    begun_ns = perf_counter_ns()
    request = read_request(call.version, body)
    if request.acks not in (-1, 0, 1):
        return _refuse_acks(request, call)
    answer = _append(request, call)
    if not (answer is None or isinstance(answer, Later)):
        call.node.publish_latency.observe(perf_counter_ns() - begun_ns, 64)
    return answer


class _NoTransactionalId(Exception):
    """Kafka's answer to this is that the transactional id is not the client's to use; no other part of us knows that."""


class _Wait(NamedTuple):
    """One partition that is written and not yet durable, and its place among the answers."""

    topic: int
    place: int
    future: asyncio.Future[None]


class _Begun(NamedTuple):
    """What has become of a request that had to wait for a topic's memory."""

    rows: Rows
    #: Of the topic that is being written to.
    row: list[Produced]
    waits: list[_Wait]
    refusals: list[str]
    #: Topics, and partitions of the one after them, that were done with before the rest.
    topics: int
    partitions: int
    #: Why the memory could not be loaded.
    failure: LevadaError | None = None


def _append(request: ProduceRequest, call: Call, begun: _Begun | None = None) -> Body | Later | None:
    """Append everything, now. The answer waits for what is not durable yet. Of one that was `begun`, the request is the rest."""
    rows: Rows = [] if begun is None else begun.rows
    row: list[Produced] = [] if begun is None else begun.row
    waits: list[_Wait] = [] if begun is None else begun.waits
    refusals: list[str] = [] if begun is None else begun.refusals
    for topic, partitions in request.topics:
        for index, records in partitions:
            try:
                partition = _partition(topic, index, call)
                if partition.remembers and screened.is_cold(partition, call):
                    if begun is not None and begun.failure is not None:
                        raise begun.failure
                    so_far = _Begun(rows, row, waits, refusals, len(rows), len(row))
                    return _append_later(_rest(request, so_far, begun), call, so_far, partition.at)
                batch = _batch(records, call.version)
                receipt = _join(batch, partition, request, call) if batch.is_transactional else None
                if not partition.remembers:
                    appended = partition.append(batch)
                else:
                    appended, firsts = screened.append(batch, partition, call)
                    waits += [_Wait(len(rows), len(row), first) for first in firsts if request.acks]
                written = partition.when_durable(appended.last_offset + 1) if request.acks else None
            except (LevadaError, _NoTransactionalId) as error:
                refusals.append(f"{topic}-{index}: {error}")
                row.append(_refused(index, error))
                continue
            if written is not None:
                waits.append(_Wait(len(rows), len(row), written))
            if receipt is not None and request.acks:
                added = asyncio.ensure_future(call.node.engine.transactions.durable(receipt))
                waits.append(_Wait(len(rows), len(row), added))
            row.append(Produced(index, NONE, appended.base_offset, appended.timestamp_ms, appended.start_offset))
        rows.append((topic, row))
        row = []
    return _answer(request, call, rows, waits, refusals)


def _rest(request: ProduceRequest, so_far: _Begun, before: _Begun | None) -> ProduceRequest:
    """What is left of a request, of which what was done `before` is not a part."""
    topics, partitions = so_far.topics, so_far.partitions
    if before is not None:
        topics -= before.topics
        partitions -= before.partitions if not topics else 0
    (name, wanted), *others = request.topics[topics:]
    return request._replace(topics=[(name, wanted[partitions:]), *others])


def _append_later(rest: ProduceRequest, call: Call, so_far: _Begun, at: At) -> Later:
    """Go on with the rest once the partition's memory is at hand. It is copied: the frame it lies in is used again."""
    copied = [
        (name, [(index, None if records is None else memoryview(bytearray(records))) for index, records in partitions])
        for name, partitions in rest.topics
    ]
    rest = rest._replace(topics=copied)

    def go_on(failure: LevadaError | None) -> Body | Later | None:
        return _append(rest, call, so_far._replace(failure=failure))

    return screened.Opening(call, at, go_on)


def _join(batch: Batch, partition: Partition, request: ProduceRequest, call: Call) -> int | None:
    """Have the partition in the batch's transaction. A receipt where the transaction log does not durably say so yet."""
    if request.transactional_id is None:
        raise _NoTransactionalId("the batch is transactional and the request names no transactional id")
    return call.node.engine.transactions.on_transactional_append(
        batch.producer_id,
        batch.producer_epoch,
        partition.at,
        transactional_id=request.transactional_id,
        implicit=call.version >= _IMPLICIT_FROM,
        abortable=call.version >= _ABORTABLE_FROM,
    )


def _answer(
    request: ProduceRequest, call: Call, rows: Rows, waits: list[_Wait], refusals: list[str]
) -> Body | Later | None:
    if refusals:
        notice.refused(call, "Produce", "; ".join(refusals))
        if request.acks == 0:
            raise HangUp(f"Produce with acks=0 was refused: {refusals[0]}")
    if request.acks == 0:
        return None
    if waits:
        return Durable(call, rows, waits, request.timeout_ms)
    return write_response(call.version, rows)


def _partition(topic: str | UUID, index: int, call: Call) -> Partition:
    engine = call.node.engine
    partition = engine.partition_by_id(topic, index) if isinstance(topic, UUID) else engine.partition(topic, index)
    if partition.at.topic in BOOKKEEPING_TOPICS:
        raise InvalidTopicName(f"topic {partition.at.topic} is the broker's own bookkeeping and takes no records")
    return partition


def _batch(records: memoryview | None, version: int) -> Batch:
    if records is None or not len(records):
        raise InvalidRecord("there are no records; exactly one batch is expected")
    batch = Batch(records)
    if batch.size != len(records):
        raise InvalidRecord(f"{len(records)} bytes of records hold more than one batch of {batch.size} bytes")
    if version < _ZSTD_FROM and batch.codec == _ZSTD:
        raise UnsupportedCompression(f"Produce version {version} takes no zstd; {_ZSTD_FROM} and later do")
    return batch


def _refused(index: int, error: Exception) -> Produced:
    code = _TRANSACTIONAL_ID_AUTHORIZATION_FAILED if isinstance(error, _NoTransactionalId) else code_of(error)
    one = error.index if isinstance(error, RecordError) else None
    return Produced(index, code, record_errors=() if one is None else [(one, str(error))], error_message=str(error))


class Durable(Later):
    """An answer that waits until its partitions are durable: one count, no task."""

    __slots__ = ("_begun_ns", "_open", "_rows", "_timer", "_waits")

    def __init__(self, call: Call, rows: Rows, waits: list[_Wait], timeout_ms: int) -> None:
        super().__init__(call)
        self._begun_ns = perf_counter_ns()
        self._rows = rows
        self._waits = waits
        self._open = len(waits)
        self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._timed_out)
        for wait in waits:
            wait.future.add_done_callback(partial(self._done, wait))

    def _done(self, wait: _Wait, future: asyncio.Future[None]) -> None:
        error = ShuttingDown() if future.cancelled() else future.exception()
        if self.frame is not None:
            return
        if error is not None:
            self._refuse(wait, error)
        self._open -= 1
        if not self._open:
            self._timer.cancel()
            self._tell()

    def _timed_out(self) -> None:
        late = TimedOut("the records are written; they were not durable before the request's timeout")
        for wait in self._waits:
            if not wait.future.done():
                self._refuse(wait, late)
        self._tell()

    def _tell(self) -> None:
        self.call.node.publish_latency.observe(perf_counter_ns() - self._begun_ns)
        self.answer(write_response(self.call.version, self._rows))

    def _refuse(self, wait: _Wait, error: BaseException) -> None:
        topic, row = self._rows[wait.topic]
        index = row[wait.place].partition
        notice.refused(self.call, "Produce", f"{topic}-{index}: {error}")
        row[wait.place] = Produced(index, code_of(error), error_message=str(error))

    def drop(self) -> None:
        super().drop()
        self.frame = b""
        self._timer.cancel()


def _refuse_acks(request: ProduceRequest, call: Call) -> Body:
    notice.refused(call, "Produce", f"acks={request.acks}: must be -1, 0 or 1")
    rows = [
        (topic, [Produced(index, _INVALID_REQUIRED_ACKS) for index, _ in partitions])
        for topic, partitions in request.topics
    ]
    return write_response(call.version, rows)


_NULL_TRANSACTIONAL_ID: Final = b"\xff\xff"
_COUNT: Final = Struct(">i")
_NAME: Final = Struct(">h")
_OLD_ROW: Final = (Struct(">ihq"), Struct(">ihq"), Struct(">ihqq"))


def _refuse_version(body: memoryview, call: Call) -> bytes:
    """Versions 0–2: as 3 without the transactional id. Each partition is answered with UNSUPPORTED_VERSION."""
    request = read_request(_OLDEST, memoryview(_NULL_TRANSACTIONAL_ID + bytes(body)))
    notice.refused(call, "Produce", f"version {call.version} is no longer spoken; {_OLDEST} and later are")
    out = bytearray(_COUNT.pack(len(request.topics)))
    row = _OLD_ROW[call.version]
    for topic, partitions in request.topics:
        name = str(topic).encode()
        out += _NAME.pack(len(name)) + name + _COUNT.pack(len(partitions))
        for index, _ in partitions:
            out += row.pack(index, UNSUPPORTED_VERSION, -1, *([-1] if call.version == 2 else []))
    if call.version >= 1:
        out += _COUNT.pack(0)
    return bytes(out)
