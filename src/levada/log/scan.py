"""Walking a segment file batch by batch: by headers alone, or with every checksum verified."""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from levada.config import KiB, MiB
from levada.log.disk import File, WouldBlock
from levada.records.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_END, MAGIC, Batch

HEADERS_CHUNK: Final = 8 * KiB
BATCHES_CHUNK: Final = MiB
#: How far a batch that follows another may lie ahead of it in offsets: what one segment can hold.
_AHEAD_MAX: Final = 2**31
_LENGTH: Final = Struct(">8xi")


class Unreadable(Exception):
    """No batch can be read at this position."""

    def __init__(self, position: int, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.offset = offset
        self.reason = reason


class Head(NamedTuple):
    """What a batch's header says, and where it lies in its file."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int

    @property
    def end(self) -> int:
        return self.position + self.size


def head_of(buffer: bytes | bytearray | memoryview, at: int, position: int, end: int, expected: int) -> Head:
    """Read the header at `at` in the buffer, which lies at `position` of a file that ends at `end`.

    Unreadable unless it is one of a batch that fits the file and does not begin before the expected offset.
    """
    base_offset, length, _, magic, _, _, last_delta, _, max_timestamp, _, _, _, _ = HEADER.unpack_from(buffer, at)
    size = LENGTH_END + length
    if magic != MAGIC:
        raise Unreadable(position, expected, f"magic {magic} where {MAGIC} should be")
    if size < HEADER_SIZE or position + size > end:
        raise Unreadable(position, expected, f"a batch of {size} bytes where {end - position} are left")
    if base_offset < expected or last_delta < 0:
        raise Unreadable(
            position, expected, f"offsets {base_offset} to {base_offset + last_delta} where {expected} should follow"
        )
    return Head(position, size, base_offset, base_offset + last_delta, max_timestamp)


def last_offset_in(buffer: bytes | bytearray | memoryview, at: int) -> int:
    """The last offset that the header there gives; any number if there is none."""
    header = HEADER.unpack_from(buffer, at)
    return int(header[0] + header[6])


def heads(
    file: File,
    position: int,
    end: int,
    expected: int,
    *,
    dense: bool = False,
    nowait: bool = False,
    chunk: int = HEADERS_CHUNK,
) -> Iterator[Head]:
    """The headers from one batch on to the end. Unreadable where the chain breaks; WouldBlock with `nowait`.

    `expected` is the first one's offset or, where the walk begins in the middle of a file, one that is not above it.
    `dense`: each batch begins at the offset after the one before. Only compaction leaves gaps.
    """
    buffer: bytes | bytearray = b""
    start = position
    exact = dense and position == 0
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(buffer):
            buffer = file.pread(position, min(chunk, end - position), nowait=nowait)
            start, at = position, 0
            if len(buffer) < HEADER_SIZE:
                if nowait and len(buffer) < end - position:
                    raise WouldBlock
                raise Unreadable(position, expected, f"{len(buffer)} bytes where a header has {HEADER_SIZE}")
        head = head_of(buffer, at, position, end, expected)
        if exact and head.base_offset != expected:
            raise Unreadable(position, expected, f"offset {head.base_offset} where {expected} should follow")
        yield head
        exact = dense
        expected = head.last_offset + 1
        position += head.size


def whole_batches(
    file: File, position: int, end: int, expected: int, *, dense: bool, chunk: int = BATCHES_CHUNK
) -> Iterator[tuple[int, Batch]]:
    """(position, batch) of every batch up to the end, its checksum verified. Unreadable at the first that is not whole.

    `expected` is the first one's offset; with `dense`, each of the others begins at the offset after the one before.
    """
    view = memoryview(b"")
    start = position
    needed = HEADER_SIZE
    while position < end:
        at = position - start
        if at + needed > len(view):
            view = memoryview(file.pread(position, min(max(chunk, needed), end - position)))
            start, at = position, 0
            if len(view) < needed:
                raise Unreadable(position, expected, f"{len(view)} bytes where at least {needed} should be")
        size = LENGTH_END + _LENGTH.unpack_from(view, at)[0]
        if size < HEADER_SIZE or position + size > end:
            raise Unreadable(position, expected, f"a batch of {size} bytes where {end - position} are left")
        if at + size > len(view):
            needed = size
            continue
        batch = Batch(view[at : at + size])
        check(batch, position, expected, dense=dense)
        yield position, batch
        expected = batch.next_offset
        position += size
        needed = HEADER_SIZE


def check(batch: Batch, position: int, expected: int, *, dense: bool) -> None:
    """Unreadable unless the checksum matches and the batch begins at the expected offset or, if not `dense`, after it."""
    if batch.magic != MAGIC:
        raise Unreadable(position, expected, f"magic {batch.magic} where {MAGIC} should be")
    base_offset = batch.base_offset
    if (base_offset != expected and (dense or base_offset < expected)) or batch.last_offset_delta < 0:
        raise Unreadable(
            position, expected, f"offsets {base_offset} to {batch.last_offset} where {expected} should follow"
        )
    if crc32c(batch.view[CRC_START:]) != batch.crc:
        raise Unreadable(position, expected, f"the checksum of the batch at offset {expected} does not match")


def batch_follows(file: File, position: int, end: int, expected: int) -> bool:
    """True when a whole batch with a later offset lies somewhere behind this position, where none can be read.

    Tells a write that was torn, after which there is nothing, from damage in the middle. The broken batch's own length
    may be what is broken, so every byte is looked at.
    """
    highs = {(expected >> 32) & 0xFFFFFFFF, ((expected + _AHEAD_MAX) >> 32) & 0xFFFFFFFF}
    starts = b"|".join(re.escape(high.to_bytes(4, "big")) for high in sorted(highs))
    # A header: the upper half of an offset, then 12 bytes that can be anything, then the magic.
    pattern = re.compile(b"(?s)(?=(?:" + starts + b").{12}\x02)")
    position += 1
    while position + HEADER_SIZE <= end:
        window = file.pread(position, min(BATCHES_CHUNK, end - position))
        for match in pattern.finditer(window):
            if _is_batch(file, position + match.start(), end, expected):
                return True
        if len(window) <= HEADER_SIZE:
            break
        position += len(window) - HEADER_SIZE + 1
    return False


def _is_batch(file: File, position: int, end: int, expected: int) -> bool:
    header = file.pread(position, HEADER_SIZE)
    if len(header) < HEADER_SIZE:
        return False
    try:
        head = head_of(header, 0, position, end, expected + 1)
        if head.last_offset > expected + _AHEAD_MAX:
            return False
        check(Batch(memoryview(file.pread(position, head.size))), position, head.base_offset, dense=True)
    except Unreadable:
        return False
    return True
