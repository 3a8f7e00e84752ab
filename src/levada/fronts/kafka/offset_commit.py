"""OffsetCommit, versions 2–10.

- Each partition has its own answer: what is unknown (UNKNOWN_TOPIC_OR_PARTITION; from version 10 on, by id,
  UNKNOWN_TOPIC_ID) or too long (OFFSET_METADATA_TOO_LARGE) is refused by name, the others are stored.
- Only members commit for a group that has any, and only in its current generation: that is looked at before the length
  of the metadata, and after whether the partition exists. A commit also keeps the session alive.
- Answers when the offsets are as durable as the offsets topic's policy says.
- Versions 2–4 may ask for a retention of their own, which is honoured. Throttling is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from levada.broker.groups import now_ms
from levada.config import INT64_MAX
from levada.engine.port import At, Committed, TopicInfo
from levada.errors import (
    IllegalGeneration,
    LevadaError,
    OffsetMetadataTooLarge,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.group_error import group_codes
from levada.wire.codec import Message


class _Entry(NamedTuple):
    """One partition of the request: where it goes, or why it cannot go anywhere."""

    at: At | None
    committed: Committed
    error: LevadaError | None = None


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    entries = [entry for topic in request.topics for entry in _entries(topic, call)]
    entries = _within_the_group(request, entries, call)
    entries = await _committed(request, entries, call)
    codes = iter(group_codes(call, [entry.error for entry in entries]))
    return {
        "topics": [
            {
                "topic_id": topic.topic_id,
                "name": topic.name,
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": next(codes)}
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _within_the_group(request: Message, entries: Sequence[_Entry], call: Call) -> list[_Entry]:
    """Refuse what is not the group's own, then what is too long."""
    if all(entry.error is not None for entry in entries):
        return list(entries)
    error: LevadaError | None = None
    try:
        _check_group(request, call)
    except LevadaError as refusal:
        error = refusal
    metadata_max = call.node.config.number("offset.metadata.max.bytes")
    return [entry._replace(error=entry.error or error or _too_long(entry, metadata_max)) for entry in entries]


async def _committed(request: Message, entries: Sequence[_Entry], call: Call) -> list[_Entry]:
    """Store what can be stored, all or nothing."""
    offsets = {entry.at: entry.committed for entry in entries if entry.at is not None and entry.error is None}
    error: LevadaError | None = None
    try:
        expire_ms = -1
        if request.retention_time_ms >= 0:
            expire_ms = min(INT64_MAX, time.time_ns() // 1_000_000 + request.retention_time_ms)
        await call.node.engine.offset_store.commit(request.group_id, offsets, expire_ms=expire_ms)
    except LevadaError as failure:
        error = failure
    return [entry._replace(error=entry.error or error) for entry in entries]


def _check_group(request: Message, call: Call) -> None:
    try:
        call.node.groups.check_commit(
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
            now_ms=now_ms(),
        )
    except UnknownGroup as error:
        # Clients before version 9 do not expect GROUP_ID_NOT_FOUND here.
        raise error if call.version >= 9 else IllegalGeneration(str(error)) from error


def _entries(topic: Message, call: Call) -> Iterator[_Entry]:
    view = call.node.engine.view
    info = view.by_id(topic.topic_id) if call.version >= 10 else view.get(topic.name)
    for partition in topic.partitions:
        metadata = partition.committed_metadata or ""
        committed = Committed(partition.committed_offset, partition.committed_leader_epoch, metadata)
        if info is None:
            yield _Entry(None, committed, _unknown(topic, call))
        elif not 0 <= partition.partition_index < info.partitions:
            yield _Entry(None, committed, _no_partition(info, partition.partition_index))
        else:
            yield _Entry(At(info.name, partition.partition_index), committed)


def _unknown(topic: Message, call: Call) -> LevadaError:
    if call.version >= 10:
        return UnknownTopicId(f"there is no topic with id {topic.topic_id}")
    return UnknownTopic(f"there is no topic {topic.name!r}")


def _no_partition(info: TopicInfo, index: int) -> LevadaError:
    return UnknownPartition(f"topic {info.name!r} has partitions 0 to {info.partitions - 1}, not {index}")


def _too_long(entry: _Entry, metadata_max: int) -> LevadaError | None:
    length = len(entry.committed.metadata)
    if length <= metadata_max:
        return None
    return OffsetMetadataTooLarge(f"metadata of {length} characters: offset.metadata.max.bytes is {metadata_max}")
