"""The smallest pieces of Kafka's encoding: lengths, strings, UUIDs, tagged fields that nobody here knows.

Compact (`flexible`) lengths are unsigned varints, stored + 1 so that 0 can mean null: 7 bits a byte, lowest first, the top bit set
on all but the last, at most 5 bytes. Before that a string's length was an int16 and an array's an int32, −1 for null.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, TypeAlias
from uuid import UUID

from levada.errors import MalformedFrame

Buffer: TypeAlias = bytes | bytearray | memoryview

#: What reading outside the bytes, or nonsense within them, raises before it is called MalformedFrame.
BROKEN: Final = (struct.error, IndexError, ValueError, OverflowError)
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NO_TAGS: Final[dict[int, memoryview]] = {}
_SMALL: Final = tuple(bytes((n,)) for n in range(128))


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    if value < 128:
        return _SMALL[value]
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """(value, where the next field begins)."""
    value = data[position]
    if value < 128:
        return value, position + 1
    return long_uvarint(data, value, position + 1)


def long_uvarint(data: Buffer, first: int, position: int) -> tuple[int, int]:
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


def skip_tags(data: Buffer, position: int) -> int:
    """Where the tagged fields that begin here end, whatever they hold."""
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
    return position


def read_tags(data: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    """(the tagged fields that begin here, where they end)."""
    if data[position] == 0:
        return _NO_TAGS, position + 1
    count, position = read_uvarint(data, position)
    tags = {}
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        tags[tag] = data[position : position + size]
        position += size
    return tags, position


@lru_cache(maxsize=8192)
def uuid_of(raw: bytes) -> UUID:
    """A UUID from its 16 bytes. Few topics, many mentions: the answers are remembered."""
    return UUID(bytes=raw)


def read_text(data: Buffer, position: int, flexible: bool) -> tuple[str | None, int]:
    """(a string or null, where the next field begins)."""
    if flexible:
        size, position = read_uvarint(data, position)
        size -= 1
        if size > 32767:
            raise MalformedFrame(f"a string is {size} bytes long")
    else:
        (size,) = _INT16.unpack_from(data, position)
        position += 2
    if size < 0:
        return None, position
    end = position + size
    if end > len(data):
        raise cut_short(size, len(data) - position)
    return str(data[position:end], "utf-8", "replace"), end


def read_some_text(data: Buffer, position: int, flexible: bool, name: str) -> tuple[str, int]:
    """The same where null is not allowed."""
    value, position = read_text(data, position, flexible)
    if value is None:
        raise forbidden_null(name)
    return value, position


def text(value: str | None, flexible: bool) -> bytes:
    """The bytes of a string, or of null."""
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = value.encode()
    if len(raw) > 32767:
        raise ValueError(f"a string is {len(raw)} bytes long, more than Kafka's 32767")
    return (uvarint(len(raw) + 1) if flexible else _INT16.pack(len(raw))) + raw


def read_length(data: Buffer, position: int, flexible: bool) -> tuple[int, int]:
    """(how many elements an array has, −1 for null; where its first begins). Never more than there are bytes left."""
    if flexible:
        size, position = read_uvarint(data, position)
        size -= 1
    else:
        (size,) = _INT32.unpack_from(data, position)
        position += 4
    if size > len(data) - position:
        raise cut_short(size, len(data) - position)
    return size, position


def length(size: int, flexible: bool) -> bytes:
    """The bytes of the length of an array, or of bytes."""
    return uvarint(size + 1) if flexible else _INT32.pack(size)


def read_topic(data: Buffer, position: int, flexible: bool, by_id: bool) -> tuple[str | UUID, int]:
    """(a topic's name or id, where the next field begins)."""
    if by_id:
        raw = bytes(data[position : position + 16])
        return uuid_of(raw), position + 16
    return read_some_text(data, position, flexible, "a topic's name")


@lru_cache(maxsize=8192)
def topic(name_or_id: str | UUID, flexible: bool) -> bytes:
    """The bytes of a topic's name or id."""
    return text(name_or_id, flexible) if isinstance(name_or_id, str) else name_or_id.bytes


def cut_short(claimed: int, held: int) -> MalformedFrame:
    return MalformedFrame(f"the frame claims {claimed} more elements where it has only {held} more bytes")


def forbidden_null(name: str) -> MalformedFrame:
    return MalformedFrame(f"{name} may not be null")
