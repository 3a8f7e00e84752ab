"""Fetch, versions 4–18, the request, by hand: partitions are tuples.

From version 12 the bytes are compact; from 13 a topic is its id instead of its name. Versions grew by fields, never shrank:
log start (5), sessions (7), leader epoch (9), rack (11), last fetched epoch (12); from 15 the replica id is in a tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from levada.errors import MalformedFrame
from levada.wire.apis import ApiKey, api_of
from levada.wire.primitives import (
    BROKEN,
    Buffer,
    cut_short,
    forbidden_null,
    length,
    read_length,
    read_some_text,
    read_topic,
    read_uvarint,
    skip_tags,
    text,
    topic,
)

FLEXIBLE: Final = 12
TOPIC_IDS: Final = 13

#: (partition, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes); −1 where not said.
Wanted: TypeAlias = tuple[int, int, int, int, int, int]
#: (name, or id from version 13, and its partitions)
TopicWanted: TypeAlias = tuple[str | UUID, Sequence[Wanted]]

_INT: Final = Struct(">i")
_LIMITS: Final = Struct(">iiib")
_SESSION: Final = Struct(">ii")
_WANTED_4: Final = Struct(">iqi")
_WANTED_5: Final = Struct(">iqqi")
_WANTED_9: Final = Struct(">iiqqi")
#: The last byte is the count of tags, which a consumer leaves at 0.
_WANTED_12: Final = Struct(">iiqiqix")


class FetchRequest(NamedTuple):
    """What a consumer wants to read. `replica_id` is −1 unless a broker asks."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[str | UUID, list[Wanted]]]
    forgotten: list[tuple[str | UUID, list[int]]]
    rack_id: str


def read_request(version: int, body: Buffer) -> FetchRequest:
    """The request in this body."""
    api_of(ApiKey.FETCH, version)
    try:
        return _read_request(version, memoryview(body))
    except BROKEN as error:
        raise MalformedFrame(f"Fetch request {version} cannot be read: {error}") from error


def _read_request(version: int, body: memoryview) -> FetchRequest:
    flexible = version >= FLEXIBLE
    replica_id, position = -1, 0
    if version < 15:
        (replica_id,) = _INT.unpack_from(body)
        position = 4
    max_wait_ms, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(body, position)
    position += _LIMITS.size
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(body, position)
        position += _SESSION.size
    topics, position = _read_topics(version, body, position)
    forgotten: list[tuple[str | UUID, list[int]]] = []
    if version >= 7:
        forgotten, position = _read_forgotten(version, body, position)
    rack_id = ""
    if version >= 11:
        rack_id, position = read_some_text(body, position, flexible, "rack_id")
    if flexible and body[position]:
        replica_id = _read_replica(body, position, replica_id)
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics, forgotten, rack_id
    )


def _read_topics(version: int, body: memoryview, position: int) -> tuple[list[tuple[str | UUID, list[Wanted]]], int]:
    flexible = version >= FLEXIBLE
    count, position = _read_count(body, position, flexible, "topics")
    topics = []
    for _ in range(count):
        name, position = read_topic(body, position, flexible, version >= TOPIC_IDS)
        wanted, position = _read_wanted(version, body, position)
        topics.append((name, wanted))
        if flexible:
            position = position + 1 if body[position] == 0 else skip_tags(body, position)
    return topics, position


def _read_wanted(version: int, body: memoryview, position: int) -> tuple[list[Wanted], int]:
    count, position = _read_count(body, position, version >= FLEXIBLE, "partitions")
    if version >= FLEXIBLE:
        return _read_compact_wanted(body, position, count)
    layout = _WANTED_9 if version >= 9 else _WANTED_5 if version >= 5 else _WANTED_4
    end = position + count * layout.size
    if end > len(body):
        raise cut_short(count, len(body) - position)
    rows = layout.iter_unpack(body[position:end])
    if version >= 9:
        return [(index, epoch, offset, -1, start, size) for index, epoch, offset, start, size in rows], end
    if version >= 5:
        return [(index, -1, offset, -1, start, size) for index, offset, start, size in rows], end
    return [(index, -1, offset, -1, -1, size) for index, offset, size in rows], end


def _read_compact_wanted(body: memoryview, position: int, count: int) -> tuple[list[Wanted], int]:
    size = _WANTED_12.size
    end = position + count * size
    if end <= len(body) and body[position + size - 1 : end : size].tobytes().count(0) == count:
        return list(_WANTED_12.iter_unpack(body[position:end])), end
    # Somebody tags partitions, so they are not all of one size.
    wanted = []
    for _ in range(count):
        wanted.append(_WANTED_12.unpack_from(body, position))
        position = skip_tags(body, position + size - 1)
    return wanted, position


def _read_forgotten(version: int, body: memoryview, position: int) -> tuple[list[tuple[str | UUID, list[int]]], int]:
    flexible = version >= FLEXIBLE
    count, position = _read_count(body, position, flexible, "forgotten_topics_data")
    forgotten = []
    for _ in range(count):
        name, position = read_topic(body, position, flexible, version >= TOPIC_IDS)
        size, position = _read_count(body, position, flexible, "partitions")
        end = position + 4 * size
        if end > len(body):
            raise cut_short(size, len(body) - position)
        forgotten.append((name, [index for (index,) in _INT.iter_unpack(body[position:end])]))
        position = skip_tags(body, end) if flexible else end
    return forgotten, position


def _read_count(body: memoryview, position: int, flexible: bool, name: str) -> tuple[int, int]:
    count, position = read_length(body, position, flexible)
    if count < 0:
        raise forbidden_null(name)
    return count, position


def _read_replica(body: memoryview, position: int, replica_id: int) -> int:
    """The replica id from the request's tags, where tag 1 holds (replica id, replica epoch)."""
    count, position = read_uvarint(body, position)
    for _ in range(count):
        tag, position = read_uvarint(body, position)
        size, position = read_uvarint(body, position)
        if tag == 1:
            (replica_id,) = _INT.unpack_from(body, position)
        position += size
    if position > len(body):
        raise MalformedFrame("the tagged fields end too soon")
    return replica_id


def write_request(
    version: int,
    topics: Sequence[TopicWanted],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[tuple[str | UUID, Sequence[int]]] = (),
    rack_id: str = "",
) -> bytes:
    """The body of a consumer's request."""
    api_of(ApiKey.FETCH, version)
    flexible = version >= FLEXIBLE
    tags = b"\0" if flexible else b""
    out = bytearray(_INT.pack(-1) if version < 15 else b"")
    out += _LIMITS.pack(max_wait_ms, min_bytes, max_bytes, isolation_level)
    if version >= 7:
        out += _SESSION.pack(session_id, session_epoch)
    out += length(len(topics), flexible)
    for name, partitions in topics:
        out += topic(name, flexible) + length(len(partitions), flexible)
        for wanted in partitions:
            out += _wanted(version, *wanted)
        out += tags
    if version >= 7:
        out += length(len(forgotten), flexible)
        for name, indexes in forgotten:
            out += topic(name, flexible) + length(len(indexes), flexible)
            out += b"".join(map(_INT.pack, indexes)) + tags
    if version >= 11:
        out += text(rack_id, flexible)
    return bytes(out + tags)


def _wanted(version: int, index: int, epoch: int, offset: int, last_epoch: int, start: int, size: int) -> bytes:
    if version >= FLEXIBLE:
        return _WANTED_12.pack(index, epoch, offset, last_epoch, start, size)
    if version >= 9:
        return _WANTED_9.pack(index, epoch, offset, start, size)
    return _WANTED_5.pack(index, offset, start, size) if version >= 5 else _WANTED_4.pack(index, offset, size)
