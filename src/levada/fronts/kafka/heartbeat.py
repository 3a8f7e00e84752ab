"""Heartbeat, versions 0–4.

- Keeps a member's session alive, and tells it by REBALANCE_IN_PROGRESS to join again.
- Throttling is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.broker.groups import now_ms
from levada.errors import LevadaError
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.group_error import group_code
from levada.wire.codec import Message


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    try:
        call.node.groups.heartbeat(
            request.group_id,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
            now_ms=now_ms(),
        )
    except LevadaError as error:
        return {"error_code": group_code(call, error)}
    return {"error_code": 0}
