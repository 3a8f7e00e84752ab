"""Batches straight to their topics, by an idempotent producer: each task's once and in order, a repeated task's again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from levada.records.batch import Batch
from levada.wire.answers import ProducerId, TopicPartition
from levada.wire.blocking import BlockingClient

if TYPE_CHECKING:
    from levada.spark.sink.encode import Encoded

IN_FLIGHT: Final = 16
_SEQUENCES: Final = 2**31


def write(client: BlockingClient, encoded: Iterable[Encoded]) -> int:
    """Append all of them; how many rows they have."""
    written = 0

    def stamped() -> Iterator[tuple[TopicPartition, memoryview]]:
        nonlocal written
        producer: ProducerId | None = None
        sequences: dict[TopicPartition, int] = {}
        for one in encoded:
            producer = producer or client.init_producer_id()
            at = TopicPartition(one.topic, one.partition)
            sequence = sequences.get(at, 0)
            Batch(one.data).stamp_producer(*producer, sequence, transactional=False)
            sequences[at] = (sequence + one.rows) % _SEQUENCES
            written += one.rows
            yield at, one.data

    client.produce_stream(stamped(), in_flight=IN_FLIGHT)
    return written
