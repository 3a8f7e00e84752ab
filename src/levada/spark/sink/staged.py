"""One staged batch: a batch of `__levada.stage` with a single record, whose value is a whole batch of another topic.

Its key is `<sink>/<epoch>/<batch>/<task>/<attempt>/<number>` in UTF-8: whose it is, and which. Compression would be of no use.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from levada.errors import CorruptBatch
from levada.records.batch import HEADER, HEADER_SIZE, LENGTH_END, MAGIC, Batch

#: Header of the batch, and what surrounds key and value in its record, at most.
OVERHEAD: Final = HEADER_SIZE + 5 + 3 + 5 + 5 + 1
_NO_PRODUCER: Final = (-1, -1, -1)


class StageKey(NamedTuple):
    """Who staged a batch, for what. `attempt` is one of a kind, so no two batches ever have the same key."""

    sink: str
    epoch: int
    batch: int
    task: int
    attempt: str
    number: int

    def encoded(self) -> bytes:
        return "/".join(map(str, self)).encode()

    @classmethod
    def decoded(cls, key: bytes) -> StageKey:
        """ValueError where it is none."""
        sink, epoch, batch, task, attempt, number = key.decode().rsplit("/", 5)
        return cls(sink, int(epoch), int(batch), int(task), attempt, int(number))


def wrapped(key: bytes, target: memoryview, timestamp_ms: int) -> memoryview:
    """The batch to stage, in memory that can be stamped."""
    before = b"\0\0\0" + _varint(len(key)) + key + _varint(len(target))
    before = _varint(len(before) + len(target) + 1) + before
    data = bytearray(HEADER_SIZE + len(before) + len(target) + 1)
    HEADER.pack_into(
        data, 0, 0, len(data) - LENGTH_END, -1, MAGIC, 0, 0, 0, timestamp_ms, timestamp_ms, *_NO_PRODUCER, 1
    )  # fmt: skip
    data[HEADER_SIZE : HEADER_SIZE + len(before)] = before
    data[HEADER_SIZE + len(before) : -1] = target
    return memoryview(data)


def unwrapped(staged: Batch) -> tuple[bytes, memoryview]:
    """(key, the batch within). CorruptBatch where there is none."""
    payload = staged.payload
    try:
        _, at = _read_varint(payload, 0)
        size, at = _read_varint(payload, at + 3)
        key = bytes(payload[at : at + size])
        size, at = _read_varint(payload, at + size)
    except IndexError:
        size = -1
    if staged.record_count != 1 or size < HEADER_SIZE or at + size + 1 != len(payload):
        raise CorruptBatch(f"offset {staged.base_offset} of the stage holds no batch of another topic")
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
