"""SyncGroup, versions 0–5.

- Answers when the leader has brought everyone's assignment and it is as durable as the offsets topic's policy says.
- Members that the leader left out get an empty assignment. What a follower brings is ignored.
- Version 5 must name the protocol, and it must be the one that was agreed on. Throttling is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from levada.broker.groups import Sync, Synced, now_ms
from levada.errors import InconsistentProtocol
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.group_error import group_code, not_kept
from levada.wire.codec import Message


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    if call.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return {"error_code": group_code(call, InconsistentProtocol("the protocol and its type must be named"))}
    waiting: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()

    def reply(answer: Synced) -> None:
        if not waiting.done():
            waiting.set_result(answer)

    call.node.groups.sync(_sync(request), now_ms(), reply)
    answer = await waiting
    answer.error = answer.error or await not_kept(answer.receipt, call)
    return {
        "error_code": group_code(call, answer.error),
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }


def _sync(request: Message) -> Sync:
    return Sync(
        group_id=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={one.member_id: one.assignment for one in request.assignments},
    )
