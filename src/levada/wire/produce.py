"""Produce, versions 3–13, by hand: the records stay where they lie.

A request is read into views of its records, and written as a list of buffers that names the batches without copying them.
From version 9 the bytes are compact; from 13 a topic is its id instead of its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from levada.errors import MalformedFrame
from levada.wire.apis import ApiKey, api_of
from levada.wire.endpoints import Endpoint, endpoint_tag, leader_tag
from levada.wire.primitives import (
    BROKEN,
    Buffer,
    cut_short,
    forbidden_null,
    length,
    read_length,
    read_text,
    read_topic,
    read_uvarint,
    skip_tags,
    text,
    topic,
)

FLEXIBLE: Final = 9
TOPIC_IDS: Final = 13

_ACKS_AND_TIMEOUT: Final = Struct(">hi")
_INT: Final = Struct(">i")
_INDEX_AND_SIZE: Final = Struct(">ii")
_PLACE: Final = Struct(">ihqqq")
#: A place, no record errors, no message, no tags.
_ALL_WELL: Final = Struct(">ihqqqBxx")
_PLACE_BEFORE_5: Final = Struct(">ihqq")

#: (name, or id from version 13, and (partition index, records) of each partition)
TopicRecords: TypeAlias = tuple[str | UUID, Sequence[tuple[int, Buffer | None]]]


class ProduceRequest(NamedTuple):
    """Batches to append."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str | UUID, list[tuple[int, memoryview | None]]]]


class Produced(NamedTuple):
    """The answer for one partition. A plain tuple in this order does as well, also a shorter one."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    #: −1 unless the topic stamps LogAppendTime.
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    #: (place in the batch, what is wrong with that record)
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    #: (node, leader epoch), where the answer is that another node leads.
    current_leader: tuple[int, int] | None = None


def read_request(version: int, body: memoryview) -> ProduceRequest:
    """The request in this body, its records as views of it."""
    api_of(ApiKey.PRODUCE, version)
    try:
        return _read_request(version, body)
    except BROKEN as error:
        raise MalformedFrame(f"Produce request {version} cannot be read: {error}") from error


def _read_request(version: int, body: memoryview) -> ProduceRequest:
    flexible = version >= FLEXIBLE
    transactional_id, position = read_text(body, 0, flexible)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, position)
    count, position = read_length(body, position + 6, flexible)
    if count < 0:
        raise forbidden_null("topic_data")
    read_partitions = _read_compact_partitions if flexible else _read_legacy_partitions
    topics = []
    for _ in range(count):
        name, position = read_topic(body, position, flexible, version >= TOPIC_IDS)
        count, position = read_length(body, position, flexible)
        if count < 0:
            raise forbidden_null("partition_data")
        partitions, position = read_partitions(body, position, count)
        topics.append((name, partitions))
    if flexible and body[position] and skip_tags(body, position) > len(body):
        raise MalformedFrame(f"Produce request {version} ends too soon")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_legacy_partitions(
    body: memoryview, position: int, count: int
) -> tuple[list[tuple[int, memoryview | None]], int]:
    held: list[tuple[int, memoryview | None]] = []
    for _ in range(count):
        index, size = _INDEX_AND_SIZE.unpack_from(body, position)
        position += 8
        if size < 0:
            held.append((index, None))
            continue
        start = position
        position += size
        if position > len(body):
            raise cut_short(size, len(body) - start)
        held.append((index, body[start:position]))
    return held, position


def _read_compact_partitions(
    body: memoryview, position: int, count: int
) -> tuple[list[tuple[int, memoryview | None]], int]:
    held: list[tuple[int, memoryview | None]] = []
    for _ in range(count):
        (index,) = _INT.unpack_from(body, position)
        size, position = read_uvarint(body, position + 4)
        if size == 0:
            held.append((index, None))
        else:
            start = position
            position += size - 1
            held.append((index, body[start:position]))
        # Reading the tags' count also says whether the records were all there.
        position = position + 1 if body[position] == 0 else skip_tags(body, position)
    return held, position + 1 if body[position] == 0 else skip_tags(body, position)


def write_request(
    version: int, topics: Sequence[TopicRecords], *, acks: int, timeout_ms: int, transactional_id: str | None = None
) -> list[Buffer]:
    """The body of a request, in parts: the records are not copied."""
    api_of(ApiKey.PRODUCE, version)
    flexible = version >= FLEXIBLE
    parts: list[Buffer] = []
    head = bytearray(text(transactional_id, flexible))
    head += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms) + length(len(topics), flexible)
    tags = b"\0" if flexible else b""
    for name, partitions in topics:
        head += topic(name, flexible) + length(len(partitions), flexible)
        for index, records in partitions:
            head += _INT.pack(index) + length(-1 if records is None else len(records), flexible)
            if records:
                parts += (head, records)
                head = bytearray()
            head += tags
        head += tags
    parts.append(head + tags)
    return parts


def write_response(
    version: int,
    topics: Sequence[tuple[str | UUID, Sequence[Produced]]],
    *,
    throttle_ms: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> bytes:
    """The body of a response: for each topic its partitions' answers. `endpoints` says where the leaders named in them are."""
    flexible = version >= FLEXIBLE
    write_partition = _compact_partition if flexible else _legacy_partition
    parts = [length(len(topics), flexible)]
    for name, partitions in topics:
        parts += (topic(name, flexible), length(len(partitions), flexible))
        parts += [write_partition(version, *partition) for partition in partitions]
        if flexible:
            parts.append(b"\0")
    parts.append(_INT.pack(throttle_ms))
    if flexible:
        parts.append(endpoint_tag(endpoints if version >= 10 else ()))
    return b"".join(parts)


def _compact_partition(
    version: int,
    partition: int,
    error_code: int = 0,
    base_offset: int = -1,
    log_append_time_ms: int = -1,
    log_start_offset: int = -1,
    record_errors: Sequence[tuple[int, str | None]] = (),
    error_message: str | None = None,
    current_leader: tuple[int, int] | None = None,
) -> bytes:
    if not record_errors and error_message is None and current_leader is None:
        return _ALL_WELL.pack(partition, error_code, base_offset, log_append_time_ms, log_start_offset, 1)
    place = _PLACE.pack(partition, error_code, base_offset, log_append_time_ms, log_start_offset)
    errors = b"".join(_INT.pack(place) + text(message, True) + b"\0" for place, message in record_errors)
    leader = leader_tag(0, current_leader if version >= 10 else None)
    return place + length(len(record_errors), True) + errors + text(error_message, True) + leader


def _legacy_partition(
    version: int,
    partition: int,
    error_code: int = 0,
    base_offset: int = -1,
    log_append_time_ms: int = -1,
    log_start_offset: int = -1,
    record_errors: Sequence[tuple[int, str | None]] = (),
    error_message: str | None = None,
    _current_leader: tuple[int, int] | None = None,
) -> bytes:
    if version < 5:
        return _PLACE_BEFORE_5.pack(partition, error_code, base_offset, log_append_time_ms)
    place = _PLACE.pack(partition, error_code, base_offset, log_append_time_ms, log_start_offset)
    if version < 8:
        return place
    errors = b"".join(_INT.pack(place) + text(message, False) for place, message in record_errors)
    return place + length(len(record_errors), False) + errors + text(error_message, False)
