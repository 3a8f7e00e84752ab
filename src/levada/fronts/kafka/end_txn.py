"""EndTxn, versions 0–5: commit or abort.

Answers when the outcome is durable and the markers are written, so that the next transaction need not wait. From version 5
on (KIP-890) every end raises the epoch, and the answer says what the producer goes on with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from levada.errors import LevadaError
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.transaction_error import transaction_code
from levada.wire.message import Message

_FENCED_FROM: Final = 2
_TV2_FROM: Final = 5


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    try:
        producer_id, epoch = await call.node.engine.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            tv2=call.version >= _TV2_FROM,
        )
    except LevadaError as error:
        return {"error_code": transaction_code(call, error, fenced_from=_FENCED_FROM)}
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch}
