"""What a topic takes: Kafka's rules for a batch that a client sends, checked before anything is stored.

In this order, as Kafka's own validator has it: size, checksum and header, control batches, timestamps, keys on a compacted
topic; then the batch is brought into the form the topic stores, by codec and by clock. The batch is opened only for
what its header cannot tell: keys, a limit on old timestamps, another codec; or when it claims more records than can be
believed of so few bytes. What it unpacks to is bounded: the loop stands still meanwhile. Records that cannot be read
under a good checksum are the sender's mistake, InvalidRecord: to send them again would not help.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NoReturn

from levada.config import INT64_MAX, MiB, TopicConfig
from levada.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, RecordTooLarge
from levada.records.batch import CONTROL, HEADER_SIZE, LOG_APPEND_TIME, NO_TIMESTAMP, RECORD_SIZE_MIN, Batch
from levada.records.compression import UNPACKED_BYTES_MAX, codec_id
from levada.records.read import Record, read
from levada.records.rewrite import recompress

_KEEP: Final = "producer"
#: A doubtful batch is unpacked up to here: its producer would have had to collect this much of next to nothing.
_DOUBTFUL_BYTES_MAX: Final = 4 * MiB
#: Any other may unpack to so many times its size, which only zstd exceeds, for data that says nothing.
_BELIEVED_TIMES: Final = 1024
#: A batch may unpack to so many times max.message.bytes, and to so much in any case.
_UNPACKED_TIMES_MAX: Final = 32
_UNPACKED_BYTES_MIN: Final = 16 * MiB


class Intake:
    """The rules of one topic, taken from its settings once."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_codec",
        "_log_append_time",
        "_plain",
        "_size_max",
        "_unpacked_bytes_max",
        "_wants_keys",
    )

    def __init__(self, config: TopicConfig) -> None:
        self._size_max = config.max_message_bytes
        self._unpacked_bytes_max = min(
            max(_UNPACKED_BYTES_MIN, _UNPACKED_TIMES_MAX * self._size_max), UNPACKED_BYTES_MAX
        )
        self._wants_keys = config.compact
        self._log_append_time = config.log_append_time
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._codec = None if config.compression_type == _KEEP else config.compression_type
        #: Nothing but the header need be looked at, and nothing be changed.
        self._plain = not (
            config.compact or config.log_append_time or self._codec is not None or self._before_max_ms != INT64_MAX
        )

    def admit(self, batch: Batch, now_ms: int) -> Batch:
        """The batch as it is to be stored: this one, or another in the topic's codec. Raises a RecordError."""
        if batch.size > self._size_max:
            self._refuse_size(batch)
        batch.check()
        if batch.is_doubtful:
            _check_count(batch)
        if batch.attributes & CONTROL:
            raise InvalidRecord("control batches are written by the broker alone")
        if not self._log_append_time and (
            batch.attributes & LOG_APPEND_TIME or batch.max_timestamp - now_ms > self._after_max_ms
        ):
            self._refuse_times(batch, now_ms)
        if self._plain:
            return batch
        try:
            return self._admit_opened(batch, now_ms)
        except CorruptBatch as reason:
            raise InvalidRecord(
                f"the batch does not hold the {batch.record_count} records it claims: {reason}"
            ) from None

    def _admit_opened(self, batch: Batch, now_ms: int) -> Batch:
        if self._wants_keys:
            self._check_keys(batch)
        if self._before_max_ms != INT64_MAX and not self._log_append_time:
            self._check_record_times(batch, now_ms)
        if self._codec is not None and codec_id(self._codec) != batch.codec:
            batch = Batch(memoryview(recompress(batch, self._codec, unpacked_bytes_max=self._limit(batch))))
            if batch.size > self._size_max:
                self._refuse_size(batch)
        if self._log_append_time:
            batch.stamp_append_time(now_ms)
        return batch

    def _read(self, batch: Batch) -> Iterator[Record]:
        return read(batch, unpacked_bytes_max=self._limit(batch))

    def _limit(self, batch: Batch) -> int:
        return min(self._unpacked_bytes_max, max(_DOUBTFUL_BYTES_MAX, _BELIEVED_TIMES * batch.size))

    def _refuse_size(self, batch: Batch) -> None:
        raise RecordTooLarge(f"the batch has {batch.size} bytes, the topic's max.message.bytes is {self._size_max}")

    def _refuse_times(self, batch: Batch, now_ms: int) -> NoReturn:
        if batch.log_append_time:
            raise InvalidTimestamp("the batch claims LogAppendTime, which only the broker sets")
        raise InvalidTimestamp(
            f"timestamp {batch.max_timestamp} is {batch.max_timestamp - now_ms} ms ahead of the broker's clock, "
            f"message.timestamp.after.max.ms is {self._after_max_ms}"
        )

    def _check_keys(self, batch: Batch) -> None:
        for index, record in enumerate(self._read(batch)):
            if record.key is None:
                raise InvalidRecord(f"record {index} has no key, which a compacted topic needs", index=index)

    def _check_record_times(self, batch: Batch, now_ms: int) -> None:
        for index, record in enumerate(self._read(batch)):
            if record.timestamp_ms != NO_TIMESTAMP and now_ms - record.timestamp_ms > self._before_max_ms:
                raise InvalidTimestamp(
                    f"record {index} has timestamp {record.timestamp_ms}, {now_ms - record.timestamp_ms} ms behind the "
                    f"broker's clock, message.timestamp.before.max.ms is {self._before_max_ms}",
                    index=index,
                )


def _check_count(batch: Batch) -> None:
    if batch.record_count * RECORD_SIZE_MIN > _DOUBTFUL_BYTES_MAX:
        raise InvalidRecord(f"the batch says it has {batch.record_count} records in {batch.size - HEADER_SIZE} bytes")
    try:
        for _ in read(batch, unpacked_bytes_max=_DOUBTFUL_BYTES_MAX):
            pass
    except CorruptBatch as reason:
        raise InvalidRecord(f"the batch does not hold the {batch.record_count} records it claims: {reason}") from None
