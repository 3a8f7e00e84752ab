"""The broker's own log: one line per event on stderr, for people or as JSON."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from levada.errors import InvalidConfig

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(*, level: str, as_json: bool) -> None:
    if level not in LEVELS:
        raise InvalidConfig(f"--log-level {level}: must be one of {', '.join(LEVELS)}")
    render: Any = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
