"""Records that could not be read by their format, put aside in `dlq.<topic>` with where they came from and why.

They are sent before the task that found them is done: a task that Spark runs again sends them again, with the same origin in
their headers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from levada.errors import BrokerRefused
from levada.records.build import build
from levada.records.pack import size_of
from levada.records.read import Record
from levada.spark.sink.own_topics import exists
from levada.wire.answers import ProducerId, TopicPartition
from levada.wire.blocking import BlockingClient
from levada.wire.codes import ErrorCode

if TYPE_CHECKING:
    import pyarrow

_BATCH_BYTES: Final = 512 << 10
#: What the headers of a dead letter may need beside its own record.
_HEADER_BYTES: Final = 16 << 10
_REASON_CHARACTERS_MAX: Final = 1_000
_BATCH_BYTES_MAX: Final = "max.message.bytes"


class DeadLetters:
    """The dead letters of one partition. The topic is made with the first one, with one partition."""

    def __init__(self, client: BlockingClient, origin: TopicPartition, group: str | None) -> None:
        self._client = client
        self._origin = origin
        self._group = group
        self._topic = f"dlq.{origin.topic}"
        self._partitions = 0
        self._producer: ProducerId | None = None
        self._sequence = 0

    def send(self, dead: pyarrow.RecordBatch) -> None:
        """Put these rows aside: key, value, offset, timestamp, headers and _error. They are stored when it returns. ClientError."""
        if self._producer is None:
            self._open()
            self._producer = self._client.init_producer_id()
        at = TopicPartition(self._topic, self._origin.partition % self._partitions)
        for records in self._batches(dead.to_pylist()):
            batch = build(
                records,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                base_sequence=self._sequence,
            )
            self._client.produce(at, batch)
            self._sequence += len(records)

    def _open(self) -> None:
        if not exists(self._client, self._topic):
            self._make()
        self._partitions = len(self._client.topics([self._topic])[self._topic].partitions)

    def _make(self) -> None:
        limit = self._client.describe_configs(self._origin.topic, keys=[_BATCH_BYTES_MAX])[_BATCH_BYTES_MAX].value
        configs = {_BATCH_BYTES_MAX: str(int(limit or 1 << 20) + _HEADER_BYTES)}
        try:
            self._client.create_topic(self._topic, 1, configs=configs)
        except BrokerRefused as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another task was faster
                raise

    def _batches(self, rows: list[dict[str, Any]]) -> Iterator[list[Record]]:
        held: list[Record] = []
        size = 0
        for row in rows:
            letter = self._letter(row)
            more = size_of(letter.key, letter.value, list(letter.headers))
            if held and size + more > _BATCH_BYTES:
                yield held
                held, size = [], 0
            held.append(letter)
            size += more
        if held:
            yield held

    def _letter(self, row: dict[str, Any]) -> Record:
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        about = {
            "topic": self._origin.topic,
            "partition": str(self._origin.partition),
            "offset": str(row["offset"]),
            "group": self._group or "",
            "attempts": "1",
            "errors": json.dumps([row["_error"][:_REASON_CHARACTERS_MAX]]),
        }
        headers += [(f"levada.dlq.{name}", value.encode()) for name, value in about.items()]
        time_ms = max(int(row["timestamp"].timestamp() * 1000), 0)
        return Record(0, time_ms, row["key"], row["value"], headers)
