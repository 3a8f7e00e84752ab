"""uvicorn as a guest: on the broker's loop, without signal handlers, and without the tick that would wake an idle broker
ten times a second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Iterator

import structlog
import uvicorn

from levada.fronts.http.app import make_app
from levada.fronts.http.loop_delay import LoopDelay
from levada.fronts.http.sources import Sources

_log = structlog.get_logger("levada.http")


class _ToBroker(logging.Handler):
    """What uvicorn says, as a line of the broker's log."""

    def emit(self, record: logging.LogRecord) -> None:
        _log.warning("http", said=record.getMessage().rstrip("."), exc_info=record.exc_info)


class WebServer(uvicorn.Server):
    """Serves until it is told to stop."""

    def __init__(self, sources: Sources) -> None:
        self._delay = LoopDelay()
        super().__init__(
            uvicorn.Config(
                make_app(sources, self._delay),
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                date_header=False,
                ws="none",
                http="h11",
            )
        )
        # uvicorn has no handler of its own here: what it says would stand bare among the broker's lines.
        logger = logging.getLogger("uvicorn.error")
        logger.propagate = False
        logger.handlers = [_ToBroker()]
        self._told = asyncio.Event()

    def tell_to_stop(self, grace_s: float) -> None:
        """Answers in flight have the grace time; then they are cut off."""
        self.config.timeout_graceful_shutdown = math.ceil(grace_s)
        self._delay.stop()
        self._told.set()

    async def main_loop(self) -> None:
        await self._told.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The broker has its own."""
        yield
