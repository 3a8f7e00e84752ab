"""Waiting for something to become true, with a limit and a reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(
    look: Callable[[], Found], timeout_s: float, message: str | Callable[[], str], *, every_s: float = 0.03
) -> Found:
    """Look again and again until what is found is true, and return it. The message says what did not come."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            said = message if isinstance(message, str) else message()
            raise AssertionError(f"not within {timeout_s} s: {said}")
        time.sleep(every_s)
    return found
