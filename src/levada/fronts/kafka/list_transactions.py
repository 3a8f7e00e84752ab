"""ListTransactions, versions 0–2: by state, producer id, age (from version 1) and a pattern of the id (from version 2).

The pattern is a regular expression that must match the whole id; one that is none is INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from levada.engine.embedded.transaction_state import BY_TITLE
from levada.fronts.kafka.call import Call
from levada.wire.message import Message

_INVALID_REGULAR_EXPRESSION: Final = 128


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    try:
        pattern = re.compile(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except re.error:
        return {"error_code": _INVALID_REGULAR_EXPRESSION, "unknown_state_filters": [], "transaction_states": []}
    states = {BY_TITLE[name] for name in request.state_filters if name in BY_TITLE}
    now_ms = call.node.now_ms()
    found = [
        txn
        for txn in call.node.engine.transactions.all()
        if (not request.state_filters or txn.state in states)
        and (not request.producer_id_filters or txn.producer_id in request.producer_id_filters)
        and (request.duration_filter < 0 or (txn.is_open and now_ms - txn.start_ms > request.duration_filter))
        and (pattern is None or pattern.fullmatch(txn.transactional_id))
    ]
    return {
        "error_code": 0,
        "unknown_state_filters": [name for name in request.state_filters if name not in BY_TITLE],
        "transaction_states": [
            {
                "transactional_id": txn.transactional_id,
                "producer_id": txn.producer_id,
                "transaction_state": txn.state.title,
            }
            for txn in found
        ],
    }
