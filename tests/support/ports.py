"""Ports for servers that are told theirs before they start."""

from __future__ import annotations

import random
import socket

#: Below those that the system gives to clients' connections, of which one could be made while a server is still starting.
_FIRST, _END = 10_000, 32_000
_random = random.SystemRandom()


def free_port() -> int:
    """A port nobody listens on right now."""
    while True:
        port = _random.randrange(_FIRST, _END)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
