"""Opening batches for those who want records.

What a batch unpacks to is known only once it is unpacked, and a few kilobytes may become hundreds of megabytes: so it is bounded,
happens beside the loop, and for few readers at a time. What is given at once is bounded too; whoever wants the rest of a batch
opens it again, so that nobody holds one open while a slow client takes its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from levada.broker.delivery.cut import Cut
from levada.config import MiB

#: What one batch may unpack to.
UNPACKED_BYTES_MAX: Final = 64 * MiB
#: Batches up to this size that are not compressed are opened where we are.
_AT_ONCE_BYTES: Final = 1 * MiB
#: Opened at the same time.
_OPENINGS_MAX: Final = 2

T = TypeVar("T")


class Workers(Protocol):
    """Runs something in a worker thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Opener:
    """Shared by all readers of a broker."""

    def __init__(self, in_thread: Workers = asyncio.to_thread) -> None:
        self._in_thread = in_thread
        self._turns = asyncio.Semaphore(_OPENINGS_MAX)

    async def open(self, part: Cut, work: Callable[[], T]) -> T:
        """Do the work, which opens these batches."""
        if not part.is_compressed and len(part.data) <= _AT_ONCE_BYTES:
            return work()
        async with self._turns:
            return await self._in_thread(work)
