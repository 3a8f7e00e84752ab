"""What went wrong where nobody waits for it: said in the log."""

from __future__ import annotations

import contextlib


def complain(event: str, error: BaseException, **about: str) -> None:
    """Never raises: what the log is written to may be a pipe that nobody reads any more."""
    with contextlib.suppress(Exception):
        import structlog

        structlog.get_logger("levada.client").error(event, exc_info=error, **about)
