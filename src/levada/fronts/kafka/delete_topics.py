"""DeleteTopics, versions 1–6.

- By name, or from version 6 by topic id. Files, offsets and producer state go with the topic.
- The broker's own bookkeeping topics cannot be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from levada.broker.topics import check_deletable
from levada.engine.port import TopicInfo
from levada.errors import InvalidRequest, LevadaError, UnknownTopic, UnknownTopicId
from levada.fronts.kafka.answers import OK, refused, repeated
from levada.fronts.kafka.call import Call

TOPIC_DELETION_DISABLED = 73
NO_ID = UUID(int=0)


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    wanted = _wanted(request, call)
    if not call.node.settings.flag("delete.topic.enable"):
        code = {"error_code": TOPIC_DELETION_DISABLED, "error_message": "delete.topic.enable is false on this broker"}
        return {"responses": [{"name": name, "topic_id": topic_id, **code} for name, topic_id in wanted]}
    twice = repeated(str(item) for item in wanted)
    return {"responses": [await _answer(name, topic_id, call, twice) for name, topic_id in dict.fromkeys(wanted)]}


def _wanted(request: Any, call: Call) -> list[tuple[str | None, UUID]]:
    if call.version < 6:
        return [(name, NO_ID) for name in request.topic_names]
    return [(topic.name, topic.topic_id or NO_ID) for topic in request.topics]


async def _answer(name: str | None, topic_id: UUID, call: Call, twice: set[str]) -> Mapping[str, Any]:
    try:
        if str((name, topic_id)) in twice:
            raise InvalidRequest("a topic stands more than once in the request")
        info = _find(name, topic_id, call)
        check_deletable(info.name)
        await call.node.engine.delete(info.name)
        return {"name": info.name, "topic_id": info.id, **OK}
    except LevadaError as error:
        return {"name": name, "topic_id": topic_id, **refused(call, str(name or topic_id), error)}


def _find(name: str | None, topic_id: UUID, call: Call) -> TopicInfo:
    view = call.node.engine.view
    if name is not None and topic_id != NO_ID:
        raise InvalidRequest("give a topic's name or its id, not both")
    if name is not None:
        info = view.get(name)
        if info is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return info
    info = view.by_id(topic_id)
    if info is None:
        raise UnknownTopicId(f"there is no topic with id {topic_id}")
    return info
