"""Pieces of answers that several calls share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from levada.errors import LevadaError
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import code_of
from levada.wire.apis import APIS

OK: dict[str, Any] = {"error_code": 0, "error_message": None}


def refused(call: Call, what: str, error: LevadaError) -> dict[str, Any]:
    """The error fields of one item of an answer, and the one log line that names client and cause."""
    notice.refused(call, APIS[call.api_key].name, f"{what}: {error}")
    return {"error_code": code_of(error), "error_message": str(error)}


def repeated(names: Iterable[str]) -> set[str]:
    """Names that stand more than once in a request that allows each only once."""
    return {name for name, times in Counter(names).items() if times > 1}
