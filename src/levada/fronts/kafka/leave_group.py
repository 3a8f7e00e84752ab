"""LeaveGroup, versions 0–5.

- Versions 0–2 let one member go, and its error is the answer's; later ones let many go, each with an error of its own.
- A member is named by its id, or by its instance id alone (an administrator's way to remove a static member).
- Throttling is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.broker.groups import Leaving, now_ms
from levada.errors import LevadaError
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.group_error import group_code, group_codes
from levada.wire.codec import Message


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    try:
        left = call.node.groups.leave(request.group_id, _leaving(request, call.version), now_ms())
    except LevadaError as error:
        return {"error_code": group_code(call, error)}
    codes = group_codes(call, [one.error for one in left])
    if call.version < 3:
        return {"error_code": codes[0]}
    return {
        "error_code": 0,
        "members": [
            {"member_id": one.member_id, "group_instance_id": one.instance_id, "error_code": code}
            for one, code in zip(left, codes, strict=True)
        ],
    }


def _leaving(request: Message, version: int) -> list[Leaving]:
    if version < 3:
        return [Leaving(request.member_id)]
    return [Leaving(one.member_id, one.group_instance_id, one.reason or "") for one in request.members]
