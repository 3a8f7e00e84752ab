"""Clients on the same machine: their sockets get what suits memory, not a long line.

- Nothing is gained by pacing what never leaves the machine. Where the system's congestion control paces (BBR does), a timer
  is set for every 64 KiB sent; measured, that is half the cost of sending records to a consumer.
- A send buffer that fits the processor's cache halves the cost of sending; left to itself it would grow to megabytes.

Connections from elsewhere are left as the system has them.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from levada.config import KiB

_HOSTS: Final = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
_SEND_BYTES: Final = 256 * KiB
#: Every Linux has it, and every user may choose it. Other systems do not pace.
_UNPACED: Final = b"reno"


def is_loopback(host: str) -> bool:
    return host in _HOSTS


def tune_listener(listening: socket.socket) -> None:
    """Have every connection that is accepted here be unpaced, if it listens to this machine alone."""
    if is_loopback(listening.getsockname()[0]):
        _unpace(listening)


def tune(accepted: socket.socket) -> None:
    """Prepare a connection from this machine."""
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
    _unpace(accepted)


def _unpace(tcp: socket.socket) -> None:
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is not None:
        with contextlib.suppress(OSError):  # a sandbox may forbid it: then it costs more, and works
            tcp.setsockopt(socket.IPPROTO_TCP, option, _UNPACED)
