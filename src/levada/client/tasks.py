"""Tasks that go on in the background, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from levada.errors import LevadaError


def start(work: Coroutine[Any, Any, None], *, name: str, died: Callable[[LevadaError], None]) -> asyncio.Task[None]:
    """Work that others wait for. Where it fails, `died` is called with why, so that they do not wait for ever.

    A task that nobody has cancelled can still end by a CancelledError: that of something it waited for.
    """

    def over(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            cause: BaseException | None = None if task.cancelling() else asyncio.CancelledError()
        else:
            cause = task.exception()
        if cause is None:
            return
        import structlog

        structlog.get_logger("levada.client").error("a task of the client failed", task=name, exc_info=cause)
        error = LevadaError(f"{name} failed: {cause!r}")
        error.__cause__ = cause
        died(error)

    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(over)
    return task


def is_told_to_end() -> bool:
    """Whoever waits for something that is cancelled gets a CancelledError. It is not he who is to end, unless he was told so himself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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
