"""What this machine takes for nothing but a round trip over loopback, and for nothing but making bytes durable.

No broker can be faster than these, so a ratio of two latencies near them says little.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

_ROUNDS = 5_000


def _median_ms(once: Callable[[], object], rounds: int) -> float:
    took = []
    for _ in range(rounds):
        start = time.perf_counter()
        once()
        took.append((time.perf_counter() - start) * 1000)
    return sorted(took)[rounds // 2]


def round_trip_ms() -> float:
    """A hundred bytes there and back between two threads that block in recv: two wake-ups and four system calls."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        answering, _ = server.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answering.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        thread = threading.Thread(target=_echo, args=(answering,))
        thread.start()

        def once() -> None:
            client.sendall(b"x" * 100)
            client.recv(100)

        took = _median_ms(once, _ROUNDS)
        client.shutdown(socket.SHUT_WR)
        thread.join()
    return took


def _echo(answering: socket.socket) -> None:
    with answering:
        while data := answering.recv(100):
            answering.sendall(data)


def sync_ms(where: Path | None) -> float:
    """Two hundred bytes appended to a file and fdatasync."""
    with tempfile.NamedTemporaryFile(dir=where) as file:

        def once() -> None:
            os.write(file.fileno(), b"x" * 200)
            os.fdatasync(file.fileno())

        return _median_ms(once, 300)
