"""A batch without its repeats."""

from __future__ import annotations

from collections.abc import Container

from levada.records.batch import CODEC_MASK, HEADER, HEADER_SIZE, LENGTH_END, Batch, checksum
from levada.records.build import build
from levada.records.compression import NAMES, compress
from levada.records.read import read


def with_holes(batch: Batch, kept: bytes, kept_count: int, max_timestamp: int) -> bytearray:
    """The batch with these of its records, which keep their bytes: offsets, timestamps and sequences are what they were."""
    payload = compress(batch.attributes & CODEC_MASK, kept)
    size = HEADER_SIZE + len(payload)
    cut = bytearray(size)
    HEADER.pack_into(
        cut, 0, batch.base_offset, size - LENGTH_END, batch.leader_epoch, batch.magic, 0, batch.attributes,
        batch.last_offset_delta, batch.base_timestamp, max_timestamp, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, kept_count,
    )  # fmt: skip
    cut[HEADER_SIZE:] = payload
    checksum(cut)
    return cut


def dense(batch: Batch, repeats: Container[int]) -> bytearray:
    """A new batch of the records that are no repeats, one offset after the other. For one that no producer counts on."""
    kept = [record._replace(offset=0) for index, record in enumerate(read(batch)) if index not in repeats]
    made = build(kept, codec=NAMES[batch.codec])
    fresh = Batch(memoryview(made))
    if batch.log_append_time:
        fresh.stamp_append_time(batch.max_timestamp)
    return made
