"""The log lines of this front: one per refused request, naming client and cause."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levada.fronts.rpc.call import Call


@functools.cache
def log() -> Any:
    """The logger, loaded at the first line."""
    import structlog

    return structlog.get_logger("levada.rpc")


def refused(call: Call, cause: object) -> None:
    """A request was understood and not carried out."""
    log().warning("refused", client=str(call), request=call.method, cause=str(cause))


def failed(call: Call, error: BaseException) -> None:
    """A request met a bug of ours."""
    log().error("failed", client=str(call), request=call.method, cause=repr(error), exc_info=error)
