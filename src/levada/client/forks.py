"""What a fork must not share: connections, loops and threads stay with the process that made them."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet

FORKED: Final = (
    "this client was opened before the process forked, and belongs to the parent: call levada.connect in the child, "
    "after the fork (with multiprocessing: in the worker, or with the start method 'spawn')"
)


class Forkable(Protocol):
    def forked(self) -> None:
        """Called in the child: refuse everything from now on."""
        ...


_known: Final[WeakSet[Forkable]] = WeakSet()
#: How often this process, or the one it was forked from, has forked.
count = 0


def watch(thing: Forkable) -> None:
    """Tell it when the process has forked."""
    _known.add(thing)


def _tell() -> None:
    global count
    count += 1
    for thing in list(_known):
        thing.forked()


os.register_at_fork(after_in_child=_tell)
