"""AddOffsetsToTxn, versions 0–4: a group's offsets are about to join the transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from levada.errors import InvalidGroupId, LevadaError
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.transaction_error import transaction_code
from levada.wire.message import Message

_FENCED_FROM: Final = 2


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty")
        await call.node.engine.transactions.add_offsets(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
    except LevadaError as error:
        return {"error_code": transaction_code(call, error, fenced_from=_FENCED_FROM)}
    return {"error_code": 0}
