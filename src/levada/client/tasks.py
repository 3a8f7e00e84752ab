"""Ending tasks."""

from __future__ import annotations

import asyncio
from typing import Any


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel these and wait until they are over, whatever they raise.

    Whoever waits may be cancelled meanwhile: that goes on to him, where `suppress(CancelledError)` around an await would
    swallow it.
    """
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
