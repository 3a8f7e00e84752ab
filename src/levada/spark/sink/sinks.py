"""`__levada.sinks`: the last batch of each sink, written in the transaction that made it visible. Key: the sink's id."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from levada.errors import TimedOut
from levada.records.batch import Batch, batches
from levada.routing import partition_for
from levada.spark.sink.claims import BatchSeen
from levada.spark.sink.own_topics import SINKS, have
from levada.spark.sink.single import opened, packed
from levada.wire.answers import EARLIEST, LATEST, TopicPartition
from levada.wire.blocking import BlockingClient

_FETCH_BYTES: Final = 8 << 20
#: So long a broker is waited for that has yet to learn how far it may be read.
_PATIENCE_S: Final = 30.0
_WAIT_MS: Final = 100
#: The type in the key of a transaction's marker: int16 version | int16 type.
_COMMIT: Final = 1


class Sinks:
    """Reads it. What one call has read, the next need not."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._tails: dict[TopicPartition, _Tail] = {}

    def last_committed(self, sink_id: str) -> BatchSeen | None:
        """What is committed now; None for a sink that has never written. TimedOut where a broker does not tell all of it."""
        at = self.place(sink_id)
        tail = self._tails.get(at)
        if tail is None:
            begin = self._client.list_offsets({at: EARLIEST})[at].offset
            tail = self._tails[at] = _Tail(begin)
        # The end as ListOffsets tells it: a new leader refuses to say until it knows it, while its fetches know less for a moment.
        # Not the last stable offset: transactions of other sinks may be open before ours.
        end = self._client.list_offsets({at: LATEST})[at].offset
        deadline = time.monotonic() + _PATIENCE_S
        while tail.position < end:
            answer = self._client.fetch(
                {at: tail.position}, max_wait_ms=_WAIT_MS, max_bytes=_FETCH_BYTES, partition_max_bytes=_FETCH_BYTES
            )[at]
            before = tail.position
            for batch in batches(answer.records):
                tail.take(batch)
            if tail.position > before:
                continue
            if answer.high_watermark >= end:
                tail.position = end  # compaction has left nothing behind this
            elif time.monotonic() > deadline:
                raise TimedOut(
                    f"{at.topic}-{at.partition} ends at offset {end} and can be read up to {answer.high_watermark}, for "
                    f"{_PATIENCE_S:.0f} s now: the last batch of sink {sink_id!r} is not known"
                )
        value = tail.settled.get(sink_id.encode())
        return None if value is None else BatchSeen.decoded(value)

    def place(self, sink_id: str) -> TopicPartition:
        """Where this sink's records lie."""
        partitions = have(self._client, SINKS)
        return TopicPartition(SINKS.name, partition_for(sink_id.encode(), "murmur2", partitions))


class _Tail:
    """A partition read so far: what is committed, and what waits for its transaction's end."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.settled: dict[bytes, bytes] = {}
        self._open: dict[int, dict[bytes, bytes]] = {}

    def take(self, batch: Batch) -> None:
        if batch.last_offset < self.position:
            return
        batch.check_crc()
        self.position = batch.next_offset
        if not batch.record_count:
            return  # compaction left it empty
        key, value = opened(batch)
        if batch.is_control:
            ended = self._open.pop(batch.producer_id, {})
            if int.from_bytes(key[2:4], "big") == _COMMIT:
                self.settled |= ended
            return
        into = self._open.setdefault(batch.producer_id, {}) if batch.is_transactional else self.settled
        into[key] = bytes(value)


def record_of(sink_id: str, seen: BatchSeen, now_ms: Callable[[], int]) -> memoryview:
    """A batch with the sink's record."""
    return packed(sink_id.encode(), seen.encoded(), now_ms())
