"""Pieces of answers that several calls share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import structlog

from levada.errors import LevadaError
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import code_of

log = structlog.get_logger("levada.kafka")

OK: dict[str, Any] = {"error_code": 0, "error_message": None}


def refused(call: Call, what: str, error: LevadaError) -> dict[str, Any]:
    """The error fields of one item of an answer, and the one log line that names client and cause."""
    code = code_of(error)
    log.info(
        "refused",
        api=call.api_key,
        client=call.client_id,
        peer=call.client_host,
        what=what,
        error=str(error),
        code=code,
    )
    return {"error_code": code, "error_message": str(error)}


def repeated(names: Iterable[str]) -> set[str]:
    """Names that stand more than once in a request that allows each only once."""
    return {name for name, times in Counter(names).items() if times > 1}
