"""RecordBatches of rows → record batches of their partitions, with no Python per row.

    encoder = Encoder(columns, targets.of, topic="orders")
    for rows in iterator:
        for encoded in encoder.add(rows):
            ...
    for encoded in encoder.rest():
        ...

Rows keep their order within a partition. A batch is handed out when the next row would make it larger than its topic takes, or than
BATCH_BYTES; the rest when there are no more rows, or when more than PENDING_BYTES_MAX would wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from levada.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge, UnknownPartition, UnknownTopic
from levada.records.batch import HEADER, HEADER_SIZE, LENGTH_END, MAGIC, checksum
from levada.records.compression import NONE, codec_id, compress
from levada.spark.sink import routers
from levada.spark.sink.places import Bytes, Ints, no_places, places_of
from levada.spark.sink.records import SLACK, Rows, headers_of, measure, no_headers
from levada.spark.sink.rows import Columns
from levada.spark.sink.targets import Target

BATCH_BYTES: Final = 1 << 20
PENDING_BYTES_MAX: Final = 64 << 20
_ROOM_MIN: Final = 16 << 10
_NO_PRODUCER: Final = (-1, -1, -1)


class Encoded(NamedTuple):
    """A whole batch that belongs to nobody yet, in memory that can be stamped."""

    topic: str
    partition: int
    data: memoryview
    rows: int


class _Draft:
    """A partition's batch under way: `out[:at]` is used, the header's place left free."""

    __slots__ = ("at", "base_time", "codec", "count", "limit", "max_time", "out", "partition", "target")

    def __init__(self, target: Target, partition: int, codec: int) -> None:
        self.target = target
        self.partition = partition
        self.codec = codec
        self.limit = min(target.bytes_max, BATCH_BYTES)
        self.out: Bytes = np.empty(0, np.uint8)
        self.at = HEADER_SIZE
        self.count = 0
        self.base_time = self.max_time = -1

    def make_room(self, size: int) -> None:
        if len(self.out) < size:
            grown: Bytes = np.empty(max(size, min(2 * len(self.out), self.limit), _ROOM_MIN), np.uint8)
            grown[HEADER_SIZE : self.at] = self.out[HEADER_SIZE : self.at]
            self.out = grown

    def finish(self) -> Encoded:
        """The batch; the draft is empty again. RecordTooLarge where one record alone is more than the topic takes."""
        data, codec = self._packed()
        if len(data) > self.target.bytes_max:
            raise RecordTooLarge(
                f"a row for {self.target.topic}-{self.partition} makes a batch of {len(data)} bytes; "
                f"the topic's max.message.bytes is {self.target.bytes_max}"
            )
        HEADER.pack_into(
            data, 0, 0, len(data) - LENGTH_END, -1, MAGIC, 0, codec, self.count - 1, self.base_time, self.max_time,
            *_NO_PRODUCER, self.count,
        )  # fmt: skip
        checksum(data)
        done = Encoded(self.target.topic, self.partition, data, self.count)
        self.out = np.empty(0, np.uint8)
        self.at, self.count = HEADER_SIZE, 0
        return done

    def _packed(self) -> tuple[memoryview, int]:
        plain = self.out.data[: self.at]
        if self.codec == NONE:
            return plain, NONE
        payload = compress(self.codec, plain[HEADER_SIZE:])
        if HEADER_SIZE + len(payload) >= len(plain):
            return plain, NONE
        data = bytearray(HEADER_SIZE + len(payload))
        data[HEADER_SIZE:] = payload
        return memoryview(data), self.codec


class Encoder:
    """What one task writes."""

    def __init__(
        self,
        columns: Columns,
        target_of: Callable[[str], Target],
        *,
        topic: str | None = None,
        codec: str | None = None,
        keyless_from: int = 0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Without a `topic` the rows name theirs. Rows without a key begin at partition `keyless_from`, modulo their topic's number."""
        self._columns = columns
        self._target_of = target_of
        self._topic = topic
        self._codec = codec
        self._keyless_from = keyless_from
        self._now_ms = now_ms
        #: By topic, its row in the table.
        self._topics: dict[str, int] = {}
        self._table: routers.Table = np.empty((0, routers.WIDTH), np.int64)
        self._drafts: list[_Draft] = []
        self._pending = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[Encoded]:
        """Take these rows; the batches that are full now. UnknownTopic, UnknownPartition, RecordTooLarge, InvalidTimestamp, InvalidRecord."""
        if not batch.num_rows:
            return
        rows = self._rows(batch)
        slots = self._slots(batch, rows)
        starts: Ints = np.empty(len(self._drafts) + 1, np.int64)
        order = routers.grouped(slots, starts)
        for slot in np.flatnonzero(np.diff(starts)):
            yield from self._write(self._drafts[slot], rows, order, int(starts[slot]), int(starts[slot + 1]))
        if self._pending > PENDING_BYTES_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[Encoded]:
        """The batches that are not full."""
        for draft in self._drafts:
            if draft.count:
                yield self._finish(draft)

    def _write(self, draft: _Draft, rows: Rows, order: Ints, begin: int, end: int) -> Iterator[Encoded]:
        needed = int(rows.sizes[order[begin:end]].sum()) + SLACK * (end - begin)
        while begin < end:
            if not draft.count:
                row = order[begin]
                draft.base_time = draft.max_time = int(rows.times[row])
                first = HEADER_SIZE + int(rows.sizes[row]) + SLACK
            else:
                first = 0
            draft.make_room(max(min(draft.at + needed, draft.limit), first))
            done, at, max_time = rows.fill(order, begin, end, draft.out, draft, draft.limit)
            draft.count += done - begin
            self._pending += at - draft.at
            draft.at, draft.max_time = at, max_time
            begin = done
            if begin < end:
                yield self._finish(draft)

    def _finish(self, draft: _Draft) -> Encoded:
        self._pending -= draft.at - HEADER_SIZE
        return draft.finish()

    def _rows(self, batch: pa.RecordBatch) -> Rows:
        columns, count = self._columns, batch.num_rows
        keys = no_places(count) if columns.key is None else places_of(batch.column(columns.key))
        values = places_of(batch.column(columns.value))
        headers = no_headers(count) if columns.headers is None else headers_of(batch.column(columns.headers))
        sizes: Ints = np.empty(count, np.int64)
        nameless = measure(
            keys.size, values.size, headers.at, headers.number, headers.names.size, headers.values.size, sizes
        )
        if nameless >= 0:
            raise InvalidRecord("a header of a row has no key; only its value may be null", index=int(nameless))
        return Rows(keys, values, headers, self._times(batch), sizes)

    def _times(self, batch: pa.RecordBatch) -> Ints:
        """In ms; now, where a row has none."""
        now = self._now_ms()
        if self._columns.timestamp is None:
            return np.full(batch.num_rows, now, np.int64)
        column = batch.column(self._columns.timestamp)
        times: Ints = column.cast(pa.int64()).fill_null(now * 1000).to_numpy(zero_copy_only=False) // 1000
        if int(times.min()) < 0:
            raise InvalidTimestamp(
                f"a row's timestamp is {int(times.min())} ms; a record's is at least 0, 1970-01-01 UTC"
            )
        return times

    def _slots(self, batch: pa.RecordBatch, rows: Rows) -> Ints:
        topics = self._topic_numbers(batch)
        chosen = self._chosen(batch)
        slots: Ints = np.empty(batch.num_rows, np.int64)
        row = routers.route(*rows.keys, topics, chosen, self._table, slots)
        if row >= 0:
            target = self._target_of(list(self._topics)[topics[row]])
            raise UnknownPartition(
                f"a row says partition {chosen[row]} of topic {target.topic!r}, which has {target.partitions}: "
                f"0 to {target.partitions - 1} are allowed"
            )
        return slots

    def _chosen(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int32]]:
        if self._columns.partition is None:
            return np.full(batch.num_rows, routers.NOT_CHOSEN, np.int32)
        column = batch.column(self._columns.partition)
        chosen: np.ndarray[Any, np.dtype[np.int32]] = column.fill_null(routers.NOT_CHOSEN).to_numpy(
            zero_copy_only=False
        )
        return np.ascontiguousarray(chosen) if chosen.flags.writeable else chosen.copy()

    def _topic_numbers(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int32]]:
        """For each row its topic's row in the table."""
        if self._topic is not None:
            return np.full(batch.num_rows, self._number(self._topic), np.int32)
        column = batch.column(self._columns.topic)
        if column.null_count:
            raise UnknownTopic("a row has no topic: its column 'topic' is null, and there is no option topic")
        encoded = column.dictionary_encode()
        numbers = np.array([self._number(str(name)) for name in encoded.dictionary.to_pylist()], np.int32)
        found: np.ndarray[Any, np.dtype[np.int32]] = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def _number(self, topic: str) -> int:
        number = self._topics.get(topic)
        if number is None:
            target = self._target_of(topic)
            number = self._topics[topic] = len(self._topics)
            line = np.empty((1, routers.WIDTH), np.int64)
            line[0, routers.PARTITIONS] = target.partitions
            line[0, routers.ROUTER] = routers.NUMBERS[target.router]
            line[0, routers.ALL_TO_ZERO] = target.keyless == "zero"
            line[0, routers.NEXT] = self._keyless_from % target.partitions
            line[0, routers.FIRST_SLOT] = len(self._drafts)
            self._table = np.concatenate((self._table, line))
            codec = codec_id(self._codec or target.codec or "none")
            self._drafts += [_Draft(target, partition, codec) for partition in range(target.partitions)]
        return number
