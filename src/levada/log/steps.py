"""Work on a log that takes turns between the thread that writes it and the disk.

A generator that changes the log where it runs, on the loop, and yields what waits for the disk, to be called in a worker
thread. What that raises is raised where it was yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[Callable[[], object], None, T]


def run(steps: Steps[T]) -> T:
    """All of it, here and now."""
    try:
        work = next(steps)
        while True:
            try:
                work()
            except Exception as error:
                work = steps.throw(error)
            else:
                work = next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
