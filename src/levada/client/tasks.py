"""Tasks that go on in the background, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final
from weakref import WeakSet

from levada.client.complaints import complain
from levada.errors import LevadaError

#: Those whose owner wants them to end.
_ending: Final[WeakSet[asyncio.Future[Any]]] = WeakSet()


def start(work: Coroutine[Any, Any, None], *, name: str, died: Callable[[LevadaError], None]) -> asyncio.Task[None]:
    """Work that others wait for. Unless it is done, or its owner calls `end`, `died` is called with why it is over: they would wait
    for ever.

    Others than its owner can cancel it: whoever cancels all tasks of a loop, and whatever it waits for.
    """

    def over(task: asyncio.Task[None]) -> None:
        cause = asyncio.CancelledError("it was cancelled") if task.cancelled() else task.exception()
        if cause is None or task in _ending:
            return
        error = LevadaError(f"{name} failed: {cause!r}")
        error.__cause__ = cause
        died(error)
        if not task.cancelled():
            complain("a task of the client failed", cause, task=name)

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
        _ending.add(task)
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
