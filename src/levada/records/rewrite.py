"""A batch made from another one: with fewer records, with none, or in another codec.

Offsets, producer, epoch and sequence stay those of the original, so whoever counted on them still can: a record keeps its
offset, and a producer's next sequence follows on. Such a batch has fewer records than its offsets span, which is right
for one that is stored and wrong for one that is sent (`Batch.check` refuses it, `Batch.check_crc` does not).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from levada.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Batch,
    checksum,
)
from levada.records.build import assemble
from levada.records.compression import UNPACKED_BYTES_MAX, codec_id, compress, decompress
from levada.records.read import Record, read

_NOBODY: Final = (NO_PRODUCER, -1, NO_SEQUENCE)


def keep(batch: Batch, wanted: Callable[[Record], bool], *, delete_horizon_ms: int | None = None) -> bytearray | None:
    """The batch with only its wanted records; None when none is left. Equal to the original when all are.

    `delete_horizon_ms` sets the time from which compaction may drop its tombstones, where it is not set yet.
    """
    records = [record for record in read(batch) if wanted(record)]
    if not records:
        return None
    if len(records) == batch.record_count and (delete_horizon_ms is None or batch.delete_horizon_ms is not None):
        return bytearray(batch.view)
    return with_records(batch, records, delete_horizon_ms=delete_horizon_ms)


def with_records(batch: Batch, records: Sequence[Record], *, delete_horizon_ms: int | None = None) -> bytearray:
    """The batch with these of its records, at least one, and the delete horizon it had or else the one given."""
    horizon_ms = delete_horizon_ms if batch.delete_horizon_ms is None else batch.delete_horizon_ms
    return assemble(
        records,
        attributes=batch.attributes | (0 if horizon_ms is None else DELETE_HORIZON),
        base_offset=batch.base_offset,
        base_timestamp=records[0].timestamp_ms if horizon_ms is None else horizon_ms,
        max_timestamp=max(record.timestamp_ms for record in records),
        last_offset_delta=batch.last_offset_delta,
        producer=(batch.producer_id, batch.producer_epoch, batch.base_sequence),
        leader_epoch=batch.leader_epoch,
    )


def empty(batch: Batch, *, anonymous: bool = False) -> bytearray:
    """The batch without any record: all that is left of it is its offsets and its place in the producer's sequence.

    With `anonymous` only its offsets: it belongs to no producer and no transaction any more.
    """
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return assemble(
        [],
        attributes=attributes & LOG_APPEND_TIME if anonymous else attributes,
        base_offset=batch.base_offset,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        last_offset_delta=batch.last_offset_delta,
        producer=_NOBODY if anonymous else (batch.producer_id, batch.producer_epoch, batch.base_sequence),
        leader_epoch=batch.leader_epoch,
    )


def recompress(batch: Batch, codec: str, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> bytearray:
    """The batch with the same records in another codec. CorruptBatch, InvalidRecord as for reading it."""
    number = codec_id(codec)
    if number == batch.codec or batch.record_count == 0:
        return bytearray(batch.view)
    payload = compress(number, decompress(batch.codec, batch.payload, limit=unpacked_bytes_max))
    size = HEADER_SIZE + len(payload)
    rewritten = bytearray(size)
    attributes = batch.attributes & ~CODEC_MASK | number
    HEADER.pack_into(
        rewritten, 0, batch.base_offset, size - LENGTH_END, batch.leader_epoch, batch.magic, 0, attributes,
        batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, batch.record_count,
    )  # fmt: skip
    rewritten[HEADER_SIZE:] = payload
    checksum(rewritten)
    return rewritten
