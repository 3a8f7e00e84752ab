"""The smallest pieces of Kafka's encoding: unsigned varints, UUIDs, tagged fields that nobody here knows.

An unsigned varint is 7 bits a byte, lowest first, the top bit set on all but the last, at most 5 bytes. Compact lengths are
stored + 1, so that 0 can mean null.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final
from uuid import UUID

from levada.errors import MalformedFrame

#: What reading outside the bytes, or nonsense within them, raises before it is called MalformedFrame.
BROKEN: Final = (struct.error, IndexError, ValueError, OverflowError)
_SMALL: Final = tuple(bytes((n,)) for n in range(128))


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """(value, where the next field begins)."""
    value = data[position]
    if value < 128:
        return value, position + 1
    return long_uvarint(data, value, position + 1)


def long_uvarint(data: bytes | memoryview, first: int, position: int) -> tuple[int, int]:
    """The same where the first byte was read already and says that more follow."""
    value, shift = first & 127, 7
    while shift < 35:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFF_FFFF:
                break
            return value, position
        shift += 7
    raise MalformedFrame("a varint is longer than 32 bits")


def skip_tags(data: bytes | memoryview, position: int) -> int:
    """Where the tagged fields that begin here end, whatever they hold."""
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
    return position


@lru_cache(maxsize=8192)
def uuid_of(raw: bytes) -> UUID:
    """A UUID from its 16 bytes. Few topics, many mentions: the answers are remembered."""
    return UUID(bytes=raw)


def cut_short(claimed: int, held: int) -> MalformedFrame:
    return MalformedFrame(f"the frame claims {claimed} more elements where it has only {held} more bytes")


def forbidden_null(name: str) -> MalformedFrame:
    return MalformedFrame(f"{name} may not be null")
