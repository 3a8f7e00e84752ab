"""From records to batches that the topic takes; whatever is wrong with one of them is found before anything is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from levada.broker.publishing.gate import RECORDS_MAX
from levada.broker.publishing.record import Headers, NewRecord
from levada.config import INT64_MAX, TopicConfig
from levada.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge
from levada.records.build import build
from levada.records.read import Record

#: Where a record's id for dedup stands, for native and Kafka publishers alike.
MESSAGE_ID: Final = "message_id"
#: A batch's header and a record's own fields, at their longest.
_OVERHEAD: Final = 128
_HEADER_OVERHEAD: Final = 10


def prepare(config: TopicConfig, records: Sequence[NewRecord], now_ms: int) -> list[Record]:
    """The records as they are to be stored. InvalidRecord, InvalidTimestamp, RecordTooLarge name the first by its place."""
    made = [_record(config, record, place, now_ms) for place, record in enumerate(records)]
    for place, record in enumerate(made):
        if _bytes_at_most(record) > config.max_message_bytes:
            _check_size(config, record, place)
    return made


def pack(config: TopicConfig, records: Sequence[Record]) -> list[bytearray]:
    """The batches of one partition, in order, none larger than the topic takes. Each record alone fits: see `prepare`."""
    batches = []
    for start in range(0, len(records), RECORDS_MAX):
        batches += _within(config, records[start : start + RECORDS_MAX])
    return batches


def _within(config: TopicConfig, records: Sequence[Record]) -> list[bytearray]:
    batch = build(records)
    if len(batch) <= config.max_message_bytes or len(records) == 1:
        return [batch]
    half = len(records) // 2
    return _within(config, records[:half]) + _within(config, records[half:])


def _bytes_at_most(record: Record) -> int:
    size = _OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _HEADER_OVERHEAD + 4 * len(name) + len(value or b"")
    return size


def _check_size(config: TopicConfig, record: Record, place: int) -> None:
    size = len(build([record]))
    if size > config.max_message_bytes:
        raise RecordTooLarge(
            f"record {place} has {size} bytes as a batch of its own, "
            f"the topic's max.message.bytes is {config.max_message_bytes}",
            index=place,
        )


def _record(config: TopicConfig, record: NewRecord, place: int, now_ms: int) -> Record:
    if config.compact and record.key is None:
        raise InvalidRecord(f"record {place} has no key, which a compacted topic needs", index=place)
    timestamp_ms = now_ms if record.timestamp_ms is None or config.log_append_time else record.timestamp_ms
    _check_time(config, timestamp_ms, place, now_ms)
    # Offsets of 0 are given anew by `build`: each record follows the one before.
    return Record(0, timestamp_ms, record.key, record.value, _headers(record))


def _headers(record: NewRecord) -> Headers:
    if record.message_id is None:
        return record.headers
    return [*(header for header in record.headers if header[0] != MESSAGE_ID), (MESSAGE_ID, record.message_id.encode())]


def _check_time(config: TopicConfig, timestamp_ms: int, place: int, now_ms: int) -> None:
    if not 0 <= timestamp_ms <= INT64_MAX:
        raise InvalidTimestamp(
            f"record {place} has timestamp {timestamp_ms}; it must be from 0 to {INT64_MAX}", index=place
        )
    if timestamp_ms - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"record {place} has timestamp {timestamp_ms}, {timestamp_ms - now_ms} ms ahead of the broker's clock; "
            f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}",
            index=place,
        )
    if now_ms - timestamp_ms > config.message_timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"record {place} has timestamp {timestamp_ms}, {now_ms - timestamp_ms} ms behind the broker's clock; "
            f"message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}",
            index=place,
        )
