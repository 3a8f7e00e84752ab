"""DeleteGroups, versions 0–2.

- A group without members is forgotten with all its offsets, those of open transactions too; durable when answered.
- NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND and INVALID_GROUP_ID by group; the others are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.broker.groups import now_ms
from levada.errors import LevadaError
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.group_error import group_code, not_kept
from levada.wire.codec import Message


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    # A group that is named twice is deleted once.
    names = dict.fromkeys(request.groups_names)
    return {"results": [{"group_id": name, "error_code": await _delete(name, call)} for name in names]}


async def _delete(group_id: str, call: Call) -> int:
    store = call.node.engine.offset_store
    try:
        receipt = call.node.groups.delete(group_id, now_ms())
        await store.delete(group_id)
    except LevadaError as error:
        return group_code(call, error)
    return group_code(call, await not_kept(receipt, call))
