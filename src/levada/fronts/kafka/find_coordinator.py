"""FindCoordinator, versions 0–6.

- There is one node, and it coordinates every group and every transactional id, whether they exist or not.
- Keys of share groups and of types that do not exist are refused with INVALID_REQUEST: nobody here coordinates them.
- From version 4 on many keys are asked for at once, each with its own answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from levada.errors import InvalidRequest
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import code_of
from levada.wire.codec import Message

#: Key types that are coordinated here: groups and transactions.
_SERVED: Final = (0, 1)
_SHARE: Final = 2


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    answer = _answer(request.key_type, call)
    if call.version < 4:
        return answer
    return {"coordinators": [{"key": key, **answer} for key in request.coordinator_keys]}


def _answer(key_type: int, call: Call) -> Mapping[str, Any]:
    if key_type in _SERVED:
        node = call.node
        return {
            "error_code": 0,
            "error_message": None,
            "node_id": node.node_id,
            "host": node.host,
            "port": node.port,
        }
    what = "share groups are not served here" if key_type == _SHARE else "there is no such type"
    error = InvalidRequest(f"key type {key_type}: {what}")
    notice.refused(call, "FindCoordinator", error)
    return {"error_code": code_of(error), "error_message": str(error), "node_id": -1, "host": "", "port": -1}
