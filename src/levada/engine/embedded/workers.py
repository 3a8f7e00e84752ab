"""Threads for what may wait for the disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Workers(Protocol):
    """Runs something in a thread."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...
