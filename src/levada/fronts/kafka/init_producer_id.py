"""InitProducerId, versions 0–5.

- Without a transactional id: a new producer id, for idempotence alone.
- With one: whoever had it before is fenced, and what it left open is aborted before this is answered. From version 3 on a
  producer that goes on after an error says what it had (KIP-360).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from levada.errors import LevadaError
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.transaction_error import transaction_code
from levada.wire.message import Message

_FENCED_FROM: Final = 4


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    try:
        producer_id, epoch = await call.node.engine.transactions.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
        )
    except LevadaError as error:
        code = transaction_code(call, error, fenced_from=_FENCED_FROM)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch}
