"""How a pipeline is, and what is wrong with it."""

from __future__ import annotations

from typing import NamedTuple

from levada.spark.runner.backoff import delay_s
from levada.spark.runner.records import State


class Trouble(NamedTuple):
    """Why something failed, and when it is tried again."""

    cause: str
    detail: str
    times: int
    next_at: float


class Status(NamedTuple):
    """How a pipeline is. `since` is when it came to be so."""

    name: str
    state: State
    since: float
    unit: str
    version: str
    epoch: int
    trouble: Trouble | None = None
    note: str = ""
    #: The last start that was asked for and that this takes account of.
    asked: int = 0

    @property
    def next_at(self) -> float | None:
        """When it is tried again, where it waits for that."""
        return self.trouble.next_at if self.trouble and self.state is State.FAILED else None


def worse(before: Trouble | None, now: float, cause: str, detail: str) -> Trouble:
    """After one more failure."""
    times = (before.times if before else 0) + 1
    return Trouble(cause, detail, times, now + delay_s(times))
