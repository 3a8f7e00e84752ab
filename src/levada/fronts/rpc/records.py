"""Records: from messages to what the rules take, and back."""

from __future__ import annotations

from collections.abc import Iterable

from levada.broker.publishing import NewRecord
from levada.records.read import Record
from levada.v1 import stream_pb2 as pb


def new_record(record: pb.Record) -> NewRecord:
    """A record to be published."""
    has = record.HasField
    return NewRecord(
        value=record.value if has("value") else None,
        key=record.key if has("key") else None,
        headers=[_header(header) for header in record.headers] if record.headers else (),
        timestamp_ms=record.timestamp_ms if has("timestamp_ms") else None,
        partition=record.partition if has("partition") else None,
        message_id=record.message_id if has("message_id") else None,
    )


def _header(header: pb.Header) -> tuple[str, bytes | None]:
    return header.key, header.value if header.HasField("value") else None


def stored_records(records: Iterable[Record]) -> list[pb.StoredRecord]:
    """Records that were read. A None leaves its field absent."""
    return [
        pb.StoredRecord(
            offset=offset,
            timestamp_ms=timestamp_ms,
            key=key,
            value=value,
            headers=[pb.Header(key=name, value=data) for name, data in headers] if headers else None,
        )
        for offset, timestamp_ms, key, value, headers in records
    ]
