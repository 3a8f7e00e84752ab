"""The log lines of this front: one per refused request or closed connection, naming client and cause."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levada.fronts.kafka.call import Call


@functools.cache
def log() -> Any:
    """The logger. Loaded at the first line: importing structlog takes longer than opening a data directory."""
    import structlog

    return structlog.get_logger("levada.kafka")


def refused(call: Call, request: str, cause: object) -> None:
    """A request was understood and not carried out."""
    log().warning("refused", client=str(call), request=f"{request} v{call.version}", cause=str(cause))


def closed(client: str, cause: object) -> None:
    """A connection was closed because of what it sent."""
    log().warning("connection closed", client=client, cause=str(cause))


def failed(call: Call, request: str, error: BaseException) -> None:
    """A request met a bug of ours."""
    log().error("failed", client=str(call), request=f"{request} v{call.version}", cause=repr(error), exc_info=error)
