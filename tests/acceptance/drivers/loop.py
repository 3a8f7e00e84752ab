"""The loop every Python driver runs: a JSON object a line in, one out. tests/support/driver.py has the other end."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any


class Failed(Exception):
    """A client's error under Kafka's name of it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def serve(calls: Any, name_of_error: Any) -> None:
    """Answer each line with the method of that name. `name_of_error(exception)` gives Kafka's name, or None for a bug."""
    # Whatever a library prints must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        do = request.pop("do")
        try:
            answer: dict[str, Any] = {"ok": getattr(calls, do)(**request)}
        except Exception as error:
            traceback.print_exc()
            code = error.code if isinstance(error, Failed) else name_of_error(error)
            answer = {"error": code or type(error).__name__, "message": str(error)}
        out.write(json.dumps(answer) + "\n")
        out.flush()
    os._exit(0)  # background members end with the process


def text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode("latin-1")


def data(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def seen(
    partition: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Any
) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": text(key),
        "value": text(value),
        "headers": [[name, text(content)] for name, content in headers or ()],
    }
