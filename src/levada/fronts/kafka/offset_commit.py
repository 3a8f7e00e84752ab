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
from typing import Any, Final

from levada.broker.groups import now_ms
from levada.config import INT64_MAX
from levada.errors import IllegalGeneration, LevadaError, UnknownGroup, UnknownTopic, UnknownTopicId
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.group_error import group_codes
from levada.fronts.kafka.offset_entries import Entry, all_with, entries, short_enough, storable
from levada.wire.codec import Message

_BY_ID_FROM: Final = 10


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    found = [entry for topic in request.topics for entry in _entries(topic, call)]
    found = _within_the_group(request, found, call)
    found = await _committed(request, found, call)
    codes = iter(group_codes(call, [entry.error for entry in found]))
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


def _entries(topic: Message, call: Call) -> Iterator[Entry]:
    view = call.node.engine.view
    if call.version >= _BY_ID_FROM:
        unknown = UnknownTopicId(f"there is no topic with id {topic.topic_id}")
        return entries(topic.partitions, view.by_id(topic.topic_id), unknown)
    return entries(topic.partitions, view.get(topic.name), UnknownTopic(f"there is no topic {topic.name!r}"))


def _within_the_group(request: Message, found: Sequence[Entry], call: Call) -> list[Entry]:
    """Refuse what is not the group's own, then what is too long."""
    if not storable(found):
        return list(found)
    error: LevadaError | None = None
    try:
        _check_group(request, call)
    except LevadaError as refusal:
        error = refusal
    return short_enough(all_with(error, found), call)


async def _committed(request: Message, found: Sequence[Entry], call: Call) -> list[Entry]:
    """Store what can be stored, all or nothing."""
    error: LevadaError | None = None
    try:
        expire_ms = -1
        if request.retention_time_ms >= 0:
            expire_ms = min(INT64_MAX, time.time_ns() // 1_000_000 + request.retention_time_ms)
        await call.node.engine.offset_store.commit(request.group_id, storable(found), expire_ms=expire_ms)
    except LevadaError as failure:
        error = failure
    return all_with(error, found)


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
