"""`__levada.stage`: batches set down by tasks, to be copied to their topics by the driver, or by nobody."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from levada.errors import BrokerRefused, LevadaError, RecordTooLarge
from levada.records.batch import Batch, batches
from levada.routing import murmur2
from levada.spark.sink.own_topics import STAGE, have
from levada.spark.sink.single import OVERHEAD, packed
from levada.spark.sink.staged import StageKey, unwrapped
from levada.wire.answers import TopicPartition
from levada.wire.blocking import BlockingClient
from levada.wire.calls.fetch import Ahead
from levada.wire.codes import ErrorCode
from levada.wire.fetch import Fetched

_FETCH_BYTES: Final = 8 << 20
_WAIT_MS: Final = 100
#: Requests on their way, each with a batch.
IN_FLIGHT: Final = 16
_BYTES_MAX: Final = int(STAGE.settings["max.message.bytes"])


class StageLost(LevadaError):
    """What a task staged is not there any more. The batch fails, and Spark writes it anew."""


class Piece(NamedTuple):
    """One staged batch: where it lies in the stage, and where it is to go."""

    offset: int
    topic: str
    partition: int
    rows: int
    size: int


class Source(NamedTuple):
    """What one task staged, in its order. `key` is that of the first piece."""

    key: StageKey
    #: Of the stage.
    partition: int
    pieces: Sequence[Piece]


def hold(client: BlockingClient, key: StageKey, encoded: Iterable[tuple[str, int, memoryview, int]]) -> Source:
    """Stage these batches (topic, partition, data, rows). All of a task's go to one partition, where they keep their order."""
    rest = iter(encoded)
    first = next(rest, None)
    if first is None:
        return Source(key, 0, [])
    partitions = have(client, STAGE)
    at = TopicPartition(STAGE.name, (murmur2(key.sink.encode()) + key.task) % partitions)
    kept: list[tuple[str, int, int, int]] = []

    def wrapped() -> Iterator[tuple[TopicPartition, memoryview]]:
        producer = client.init_producer_id()
        for number, (topic, partition, data, rows) in enumerate(chain((first,), rest)):
            name = key._replace(number=number).encoded()
            if len(data) + len(name) + OVERHEAD > _BYTES_MAX:
                raise RecordTooLarge(
                    f"a batch of {len(data)} bytes for {topic}-{partition} cannot be staged: {STAGE.name} takes "
                    f"{_BYTES_MAX} bytes. delivery=at_least_once needs no stage"
                )
            batch = Batch(packed(name, data, time.time_ns() // 1_000_000))
            batch.stamp_producer(*producer, number, transactional=False)
            kept.append((topic, partition, rows, len(data)))
            yield at, batch.view

    appended = client.produce_stream(wrapped(), in_flight=IN_FLIGHT)
    pieces = [Piece(one.base_offset, *rest) for one, rest in zip(appended, kept, strict=True)]
    if any(piece.offset < 0 for piece in pieces):
        raise StageLost(f"{at} knows a staged batch again, and not where it lies")
    return Source(key, at.partition, pieces)


class Looked(NamedTuple):
    """What was found in a partition of the stage on the way: whose batches, from where on, and where the partition begins."""

    log_start: int
    #: (offset, size, key)
    found: list[tuple[int, int, bytes]]


def staged(
    client: BlockingClient, sources: Iterable[Source], looked: dict[int, Looked]
) -> Iterator[tuple[TopicPartition, memoryview]]:
    """All pieces with where they go, each task's in its order. Their memory is the caller's. StageLost. `looked` is filled on the way."""
    by_partition: dict[int, dict[int, tuple[bytes, TopicPartition]]] = {}
    for source in sources:
        wanted = by_partition.setdefault(source.partition, {})
        for number, piece in enumerate(source.pieces):
            key = source.key._replace(number=number).encoded()
            wanted[piece.offset] = key, TopicPartition(piece.topic, piece.partition)
    for partition, wanted in by_partition.items():
        if wanted:
            yield from _Reading(client, TopicPartition(STAGE.name, partition), wanted, looked).pieces()


class _Reading:
    """The reading of one partition of the stage, the next Fetch under way while a piece is copied."""

    def __init__(
        self,
        client: BlockingClient,
        at: TopicPartition,
        wanted: dict[int, tuple[bytes, TopicPartition]],
        looked: dict[int, Looked],
    ) -> None:
        self._client = client
        self._at = at
        self._wanted = wanted
        self._looked = looked

    def pieces(self) -> Iterator[tuple[TopicPartition, memoryview]]:
        waiting = sorted(self._wanted, reverse=True)
        ahead = self._begin(waiting[-1])
        while waiting:
            answer = self._answer(ahead, waiting[-1])
            found = self._found(answer, waiting)
            ahead = self._begin(waiting[-1]) if waiting else None
            yield from found

    def _found(self, answer: Fetched, waiting: list[int]) -> list[tuple[TopicPartition, memoryview]]:
        """The pieces of an answer; what was found is no longer waited for."""
        looked = self._looked.setdefault(self._at.partition, Looked(answer.log_start_offset, []))
        first = waiting[-1]
        found: list[tuple[TopicPartition, memoryview]] = []
        for batch in batches(answer.records):
            if batch.base_offset < first:
                continue
            batch.check_crc()
            key, data = unwrapped(batch)
            looked.found.append((batch.base_offset, batch.size, key))
            if waiting and batch.base_offset >= waiting[-1]:
                found.append((self._piece(batch.base_offset, waiting.pop(), key), data))
            if not waiting:
                break
        if not found:
            raise self._lost(first, "it is not there any more")
        return found

    def _piece(self, offset: int, wanted: int, key: bytes) -> TopicPartition:
        expected, target = self._wanted[wanted]
        if offset != wanted or key != expected:
            raise self._lost(wanted, f"{key.decode(errors='replace')} lies at offset {offset}")
        return target

    def _lost(self, offset: int, why: str) -> StageLost:
        key = self._wanted[offset][0].decode()
        return StageLost(
            f"what was staged as {key} at offset {offset} of {self._at} is lost: {why}. Spark writes the batch anew"
        )

    def _begin(self, offset: int) -> Ahead | None:
        try:
            return self._client.begin_fetch(self._at, offset, max_wait_ms=_WAIT_MS, max_bytes=_FETCH_BYTES)
        except LevadaError:
            return None  # `_answer` asks again, and says what is wrong

    def _answer(self, ahead: Ahead | None, offset: int) -> Fetched:
        try:
            if ahead is not None:
                return self._client.end_fetch(ahead)
        except LevadaError:
            pass  # asking again, with retries, either answers or says what is wrong
        try:
            return self._client.fetch(
                {self._at: offset}, max_wait_ms=_WAIT_MS, max_bytes=_FETCH_BYTES, partition_max_bytes=_FETCH_BYTES
            )[self._at]
        except BrokerRefused as refusal:
            if refusal.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise self._lost(offset, "the stage does not reach there") from None
