"""JoinGroup, versions 0–9.

- Answers when the group's next generation begins, at once where nothing changes or something is refused. A client that
  hangs up meanwhile is not waited for: its answer goes nowhere.
- From version 4 on a new member is told its id first and asked to come back with it (MEMBER_ID_REQUIRED); version 5
  brings instance ids, version 9 a leader that is told to keep the assignment (skip_assignment).
- A generation is told once it is as durable as the offsets topic's policy says.
- Version 0 has no rebalance timeout: it is the session's. Throttling is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from levada.broker.groups import Join, Joined, now_ms
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.group_error import group_code, not_kept
from levada.wire.codec import Message


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    waiting: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()

    def reply(answer: Joined) -> None:
        if not waiting.done():
            waiting.set_result(answer)

    call.node.groups.join(_join(request, call), now_ms(), reply)
    answer = await waiting
    answer.error = answer.error or await not_kept(answer.receipt, call)
    return _fields(answer, call)


def _join(request: Message, call: Call) -> Join:
    return Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        # As Java prints an address, which is how every tool has shown it ever since.
        client_host=f"/{call.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple({protocol.name: protocol.metadata for protocol in request.protocols}.items()),
        reason=request.reason or "",
        knows_member_id_required=call.version >= 4,
        knows_skip_assignment=call.version >= 9,
    )


def _fields(answer: Joined, call: Call) -> Mapping[str, Any]:
    return {
        "error_code": group_code(call, answer.error),
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        # Null is allowed from version 7 on.
        "protocol_name": answer.protocol_name if call.version >= 7 else answer.protocol_name or "",
        "leader": answer.leader_id,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in answer.members
        ],
    }
