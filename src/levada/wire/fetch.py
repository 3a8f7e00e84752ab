"""Fetch, versions 4–18, the answer, by hand: a list of buffers in which the records are as they were given, uncopied.

Per partition: int32 index | int16 error | int64 high watermark | int64 last stable offset | int64 log start (5+) |
aborted transactions | int32 preferred replica (11+) | records | tags (12+): diverging epoch 0, current leader 1.
The request is in `fetch_request`; both halves are to be had from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from levada.errors import MalformedFrame
from levada.wire.apis import ApiKey, api_of
from levada.wire.endpoints import Endpoint, endpoint_tag, one_tag, read_endpoints
from levada.wire.fetch_request import (
    FLEXIBLE,
    TOPIC_IDS,
    FetchRequest,
    TopicWanted,
    Wanted,
    read_request,
    write_request,
)
from levada.wire.primitives import (
    BROKEN,
    Buffer,
    cut_short,
    length,
    read_length,
    read_tags,
    read_topic,
    topic,
    uvarint,
)

__all__ = [
    "TOPIC_IDS",
    "FetchRequest",
    "FetchResponse",
    "Fetched",
    "TopicWanted",
    "Wanted",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

_THROTTLE_4: Final = Struct(">i")
_THROTTLE_7: Final = Struct(">ihi")
_PLACE_4: Final = Struct(">ihqq")
_PLACE_5: Final = Struct(">ihqqq")
#: A place from version 12 on, null aborted transactions and the preferred replica.
_PLACE_12: Final = Struct(">ihqqqBi")
_INT: Final = Struct(">i")
_ABORTED: Final = Struct(">qq")
_EPOCH_END: Final = Struct(">iq")
_LEADER: Final = Struct(">ii")


class Fetched(NamedTuple):
    """The answer for one partition. A plain tuple in this order does as well, also a shorter one."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    #: Whole batches; the last may be cut short when another broker than Levada answers.
    records: Buffer = b""
    #: (producer id, first offset) of transactions to skip; None for a reader of uncommitted records.
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    #: (epoch, end offset): the reader's last batch is not in this log; truncate to here.
    diverging_epoch: tuple[int, int] | None = None
    #: (node, leader epoch), where the answer is that another node leads.
    current_leader: tuple[int, int] | None = None


class FetchResponse(NamedTuple):
    """An answer that was read; its records are views of the body."""

    throttle_ms: int
    error_code: int
    session_id: int
    topics: list[tuple[str | UUID, list[Fetched]]]
    endpoints: list[Endpoint]


def write_response(
    version: int,
    topics: Sequence[tuple[str | UUID, Sequence[Fetched]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> list[Buffer]:
    """The body of a response, in parts. `endpoints` says where the leaders named in it are."""
    flexible = version >= FLEXIBLE
    parts: list[Buffer] = []
    head = _THROTTLE_7.pack(throttle_ms, error_code, session_id) if version >= 7 else _THROTTLE_4.pack(throttle_ms)
    head += length(len(topics), flexible)
    write_partition = _compact_partition if flexible else _legacy_partition
    for name, partitions in topics:
        head += topic(name, flexible) + length(len(partitions), flexible)
        for partition in partitions:
            place, records, tags = write_partition(version, *partition)
            if records:
                parts += (head + place, records)
                head = tags
            else:
                head += place + tags
        if flexible:
            head += b"\0"
    if flexible:
        head += endpoint_tag(endpoints if version >= 16 else ())
    parts.append(head)
    return parts


def _compact_partition(
    _version: int,
    partition: int,
    error_code: int = 0,
    high_watermark: int = -1,
    last_stable_offset: int = -1,
    log_start_offset: int = -1,
    records: Buffer = b"",
    aborted: Sequence[tuple[int, int]] | None = None,
    preferred_read_replica: int = -1,
    diverging_epoch: tuple[int, int] | None = None,
    current_leader: tuple[int, int] | None = None,
) -> tuple[bytes, Buffer, bytes]:
    if aborted is None:
        head = _PLACE_12.pack(
            partition, error_code, high_watermark, last_stable_offset, log_start_offset, 0, preferred_read_replica
        )
    else:
        place = _PLACE_5.pack(partition, error_code, high_watermark, last_stable_offset, log_start_offset)
        skipped = b"".join(_ABORTED.pack(*transaction) + b"\0" for transaction in aborted)
        head = place + uvarint(len(aborted) + 1) + skipped + _INT.pack(preferred_read_replica)
    tags = b"\0"
    if diverging_epoch is not None or current_leader is not None:
        tags = _tags(diverging_epoch or (-1, -1), current_leader or (-1, -1))
    return head + uvarint(len(records) + 1), records, tags


def _tags(diverging_epoch: tuple[int, int], current_leader: tuple[int, int]) -> bytes:
    held = []
    if diverging_epoch != (-1, -1):
        held.append(one_tag(0, _EPOCH_END.pack(*diverging_epoch) + b"\0"))
    if current_leader != (-1, -1):
        held.append(one_tag(1, _LEADER.pack(*current_leader) + b"\0"))
    return bytes((len(held),)) + b"".join(held)


def _legacy_partition(
    version: int,
    partition: int,
    error_code: int = 0,
    high_watermark: int = -1,
    last_stable_offset: int = -1,
    log_start_offset: int = -1,
    records: Buffer = b"",
    aborted: Sequence[tuple[int, int]] | None = None,
    preferred_read_replica: int = -1,
    *_: object,
) -> tuple[bytes, Buffer, bytes]:
    if version >= 5:
        head = _PLACE_5.pack(partition, error_code, high_watermark, last_stable_offset, log_start_offset)
    else:
        head = _PLACE_4.pack(partition, error_code, high_watermark, last_stable_offset)
    head += _INT.pack(-1 if aborted is None else len(aborted))
    head += b"".join(_ABORTED.pack(*transaction) for transaction in aborted or ())
    if version >= 11:
        head += _INT.pack(preferred_read_replica)
    return head + _INT.pack(len(records)), records, b""


def read_response(version: int, body: memoryview) -> FetchResponse:
    """The answer in this body."""
    api_of(ApiKey.FETCH, version)
    try:
        return _read_response(version, body)
    except BROKEN as error:
        raise MalformedFrame(f"Fetch response {version} cannot be read: {error}") from error


def _read_response(version: int, body: memoryview) -> FetchResponse:
    flexible = version >= FLEXIBLE
    if version >= 7:
        throttle_ms, error_code, session_id = _THROTTLE_7.unpack_from(body)
        position = _THROTTLE_7.size
    else:
        (throttle_ms,), error_code, session_id = _THROTTLE_4.unpack_from(body), 0, 0
        position = _THROTTLE_4.size
    topics = []
    count, position = read_length(body, position, flexible)
    for _ in range(count):
        name, position = read_topic(body, position, flexible, version >= TOPIC_IDS)
        size, position = read_length(body, position, flexible)
        partitions = []
        for _ in range(size):
            fetched, position = _read_partition(version, body, position)
            partitions.append(fetched)
        topics.append((name, partitions))
        if flexible:
            _, position = read_tags(body, position)
    endpoints: list[Endpoint] = []
    if flexible:
        tags, position = read_tags(body, position)
        endpoints = read_endpoints(tags[0]) if 0 in tags else []
    if position > len(body):
        raise cut_short(position - len(body), 0)
    return FetchResponse(throttle_ms, error_code, session_id, topics, endpoints)


def _read_partition(version: int, body: memoryview, position: int) -> tuple[Fetched, int]:
    flexible = version >= FLEXIBLE
    log_start = -1
    if version >= 5:
        index, error, high, stable, log_start = _PLACE_5.unpack_from(body, position)
        position += _PLACE_5.size
    else:
        index, error, high, stable = _PLACE_4.unpack_from(body, position)
        position += _PLACE_4.size
    aborted, position = _read_aborted(body, position, flexible)
    preferred = -1
    if version >= 11:
        (preferred,) = _INT.unpack_from(body, position)
        position += 4
    size, position = read_length(body, position, flexible)
    records = body[position : position + max(size, 0)]
    position += len(records)
    diverging = leader = None
    if flexible:
        tags, position = read_tags(body, position)
        diverging = _EPOCH_END.unpack_from(tags[0]) if 0 in tags else None
        leader = _LEADER.unpack_from(tags[1]) if 1 in tags else None
    return Fetched(index, error, high, stable, log_start, records, aborted, preferred, diverging, leader), position


def _read_aborted(body: memoryview, position: int, flexible: bool) -> tuple[list[tuple[int, int]] | None, int]:
    count, position = read_length(body, position, flexible)
    if count < 0:
        return None, position
    aborted = []
    for _ in range(count):
        aborted.append(_ABORTED.unpack_from(body, position))
        position += _ABORTED.size
        if flexible:
            _, position = read_tags(body, position)
    return aborted, position
