"""A batch with one record, uncompressed. Its value may be large: it is copied once to be packed, and not at all to be looked at."""

from __future__ import annotations

from typing import Final

from levada.errors import CorruptBatch
from levada.records.batch import HEADER, HEADER_SIZE, LENGTH_END, MAGIC, Batch

#: Header of the batch, and what surrounds key and value in its record, at most.
OVERHEAD: Final = HEADER_SIZE + 5 + 3 + 5 + 5 + 1
_NO_PRODUCER: Final = (-1, -1, -1)


def packed(key: bytes, value: bytes | memoryview, timestamp_ms: int) -> memoryview:
    """The batch, in memory that can be stamped. Its checksum is that of whoever stamps it."""
    before = b"\0\0\0" + _varint(len(key)) + key + _varint(len(value))
    before = _varint(len(before) + len(value) + 1) + before
    data = bytearray(HEADER_SIZE + len(before) + len(value) + 1)
    HEADER.pack_into(
        data, 0, 0, len(data) - LENGTH_END, -1, MAGIC, 0, 0, 0, timestamp_ms, timestamp_ms, *_NO_PRODUCER, 1
    )  # fmt: skip
    data[HEADER_SIZE : HEADER_SIZE + len(before)] = before
    data[HEADER_SIZE + len(before) : -1] = value
    return memoryview(data)


def opened(batch: Batch) -> tuple[bytes, memoryview]:
    """Key and value of a batch's only record, which has both and no headers. CorruptBatch where it is not such a batch."""
    payload = batch.payload
    try:
        _, at = _read_varint(payload, 0)
        _, at = _read_varint(payload, at + 1)
        _, at = _read_varint(payload, at)
        size, at = _read_varint(payload, at)
        key = bytes(payload[at : at + size])
        size, at = _read_varint(payload, at + size)
    except IndexError:
        size = -1
    if batch.record_count != 1 or batch.codec or size < 0 or at + size + 1 != len(payload):
        raise CorruptBatch(f"the batch at offset {batch.base_offset} is not one record with a key and a value")
    return key, payload[at : at + size]


def _varint(value: int) -> bytes:
    """Zigzag, of a number that is not negative."""
    rest, out = value << 1, bytearray()
    while rest >= 128:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """(the number, where it ends). IndexError."""
    found, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found >> 1 ^ -(found & 1), at
        shift += 7
