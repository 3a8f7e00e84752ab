"""From a client's rows to a batch: `build` for whoever packs records by the hundred thousand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from levada.records import compiled
from levada.records.batch import CODEC_MASK, HEADER, HEADER_SIZE, LENGTH_END, MAGIC, Batch, checksum
from levada.records.compression import NONE, compress

#: Timestamp, key, value and headers of a record. The batch's base timestamp is the first one's: none is negative.
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

#: What a record needs at most beside its key, value and headers: its length, attributes, timestamp, offset, three more lengths.
ROW_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
HEADER_OVERHEAD: Final = 10
_INT32_MAX: Final = 2**31 - 1


def pack(rows: Iterable[Row], *, codec: int = NONE, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes | bytearray:
    """A batch of at least one row, offsets from 0 on. `producer` is its id, epoch and the sequence of the first record."""
    producer_id, epoch, sequence = producer
    builder = compiled.builder()(
        magic=MAGIC, compression_type=0, is_transactional=0, producer_id=producer_id, producer_epoch=epoch,
        base_sequence=sequence, batch_size=_INT32_MAX,
    )  # fmt: skip
    append = builder.append
    for offset, (timestamp_ms, key, value, headers) in enumerate(rows):
        append(offset, timestamp_ms, key, value, headers)
    plain: bytearray = builder.build()
    return plain if codec == NONE else _compressed(plain, codec)


def _compressed(plain: bytearray, codec: int) -> bytearray:
    batch = Batch(memoryview(plain))
    payload = compress(codec, batch.payload)
    packed = bytearray(HEADER_SIZE + len(payload))
    HEADER.pack_into(
        packed, 0, 0, len(packed) - LENGTH_END, -1, MAGIC, 0, batch.attributes & ~CODEC_MASK | codec, batch.last_offset_delta,
        batch.base_timestamp, batch.max_timestamp, batch.producer_id, batch.producer_epoch, batch.base_sequence,
        batch.record_count,
    )  # fmt: skip
    packed[HEADER_SIZE:] = payload
    checksum(packed)
    return packed


def size_of(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> int:
    """At most so many bytes does the record need in a batch."""
    size = ROW_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        # A character is at most four bytes.
        size += HEADER_OVERHEAD + 4 * len(name) + (len(content) if content is not None else 0)
    return size
