"""From records to a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from levada.errors import InvalidRecord
from levada.records import compiled
from levada.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    checksum,
)
from levada.records.compression import codec_id, compress
from levada.records.read import ABORT, COMMIT, MARKER_KEY, MARKER_VALUE, Record

#: key, value and, where there are any, headers of a new record; its offset and timestamp are the batch's to give.
NewRecord = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]

_INT32_MAX: Final = 2**31 - 1


def build(
    records: Iterable[Record | NewRecord],
    *,
    codec: str = "none",
    base_offset: int = 0,
    timestamp_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
) -> bytearray:
    """A batch of these records, in a buffer that can be stamped.

    Tuples (key, value[, headers]) get offsets from `base_offset` on and `timestamp_ms`. A Record keeps its own timestamp,
    and its own offset too if that lies after the record before it (a Record at offset 0 in a batch at 500 becomes 500).
    InvalidRecord for no records, or for a batch beyond 2 GiB.
    """
    placed = _place(records, base_offset, timestamp_ms)
    if not placed:
        raise InvalidRecord("a batch needs at least one record")
    attributes = codec_id(codec) | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    return assemble(
        placed,
        attributes=attributes,
        base_offset=base_offset,
        base_timestamp=placed[0].timestamp_ms,
        max_timestamp=max(record.timestamp_ms for record in placed),
        last_offset_delta=placed[-1].offset - base_offset,
        producer=(producer_id, producer_epoch, base_sequence),
        leader_epoch=leader_epoch,
    )


def _place(records: Iterable[Record | NewRecord], base_offset: int, timestamp_ms: int) -> list[Record]:
    placed = []
    next_offset = base_offset
    for record in records:
        if isinstance(record, Record):
            if record.offset < next_offset:
                record = record._replace(offset=next_offset)
        else:
            headers = record[2] if len(record) == 3 else ()
            record = Record(next_offset, timestamp_ms, record[0], record[1], headers)
        next_offset = record.offset + 1
        placed.append(record)
    return placed


def end_marker(
    *, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytearray:
    """The control batch that ends a producer's transaction in a partition (EndTxnMarker, version 0)."""
    key = MARKER_KEY.pack(0, COMMIT if commit else ABORT)
    return build(
        [(key, MARKER_VALUE.pack(0, coordinator_epoch))],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def assemble(
    records: Sequence[Record],
    *,
    attributes: int,
    base_offset: int,
    base_timestamp: int,
    max_timestamp: int,
    last_offset_delta: int,
    producer: tuple[int, int, int],
    leader_epoch: int,
) -> bytearray:
    """A batch with every header field chosen by the caller; the records may be none. `attributes` name the codec."""
    body = encode(records, base_offset, base_timestamp)
    payload = compress(attributes & CODEC_MASK, body) if records else b""
    size = HEADER_SIZE + len(payload)
    if size - LENGTH_END > _INT32_MAX:
        raise InvalidRecord(f"the batch would have {size} bytes; {_INT32_MAX} is the most")
    batch = bytearray(size)
    HEADER.pack_into(
        batch, 0, base_offset, size - LENGTH_END, leader_epoch, MAGIC, 0, attributes, last_offset_delta,
        base_timestamp, max_timestamp, *producer, len(records),
    )  # fmt: skip
    batch[HEADER_SIZE:] = payload
    checksum(batch)
    return batch


def encode(records: Sequence[Record], base_offset: int, base_timestamp: int) -> memoryview:
    """The records' bytes, uncompressed and without a batch header."""
    # The builder takes its base timestamp from the first record it is given, and −1 for "not yet": give it one at 0,
    # every other as a difference to the base, and cut that first one away.
    builder = compiled.builder()(
        magic=MAGIC, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=_INT32_MAX,
    )  # fmt: skip
    builder.append(0, 0, None, None, [])
    start = builder.size()
    append = builder.append
    for offset, timestamp_ms, key, value, headers in records:
        if append(offset - base_offset, timestamp_ms - base_timestamp, key, value, list(headers)) is None:
            raise InvalidRecord(f"the batch would have more than {_INT32_MAX} bytes")
    return memoryview(builder.build())[start:]
