"""ListGroups, versions 0–5.

- Every group that has members, ids handed out to members, or offsets. From version 4 on by state, from 5 on by type, both
  in any case; a state or type that does not exist matches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.fronts.kafka.call import Call
from levada.wire.codec import Message


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    return {
        "error_code": 0,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state.value,
                "group_type": group.kind.value,
            }
            for group in call.node.groups.list(request.states_filter, request.types_filter)
        ],
    }
