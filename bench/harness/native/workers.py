"""Starts workers and reads what they say. None outlives the `with` or the call it was started in."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from harness.native.servers import Kind, Server

BENCH = Path(__file__).resolve().parent.parent.parent


class WorkerFailed(Exception):
    """A client did not do its work; its last words are the message."""


class Worker:
    """A client process. `result` waits for it, `stop` ends it."""

    def __init__(self, order: dict[str, Any], errors: IO[bytes], timeout_s: float) -> None:
        self._order, self._errors = order, errors
        command = [sys.executable, "-m", "harness.native.worker", json.dumps(order)]
        environment = {**os.environ, "PYTHONPATH": str(BENCH)}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        # A client that hangs is ended, and its pipe with it: nobody waits for a line that never comes.
        self._timer = threading.Timer(timeout_s, self._process.kill)
        self._timer.daemon = True
        self._timer.start()

    def line(self) -> str:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if not said:
            self.stop()
            self._errors.seek(0)
            words = self._errors.read().decode(errors="replace")[-2000:]
            what = f"{self._order['kind']}: {self._order['task']}"
            raise WorkerFailed(f"{what} ended with status {self._process.returncode}: {words}")
        return said

    def result(self) -> dict[str, float]:
        found: dict[str, float] = json.loads(self.line())
        return found

    def stop(self) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextlib.contextmanager
def worker(
    server: Server, kind: Kind, task: str, stream: str, *, timeout_s: float = 600, **amounts: Any
) -> Iterator[Worker]:
    """A client at work in the background."""
    order = {"kind": kind, "address": server.address, "task": task, "stream": stream, **amounts}
    with tempfile.TemporaryFile() as errors:
        started = Worker(order, errors, timeout_s)
        try:
            yield started
        finally:
            started.stop()


def do(server: Server, kind: Kind, task: str, stream: str, **amounts: Any) -> dict[str, float]:
    """Have a client do something, and say what it measured."""
    with worker(server, kind, task, stream, **amounts) as started:
        return started.result()
