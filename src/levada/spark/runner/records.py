"""What stands in `__levada.pipelines`, a compacted topic of one partition. Keys and values are UTF-8, values JSON objects:

    wanted/<pipeline>   {"run": true, "epoch": 0, "asked": 3, "at_ms": …, "by": "ann@host"}          written by whoever commands
    actual/<pipeline>   {"state": "running", "since_ms": …, "cause": "", "file": …, "progress": {…}, …}      written by the runner
    runner              {"id": …, "host": …, "pid": …, "since_ms": …, "seen_ms": …, "left_ms": null, …}       the runner's sign of life

Fields that are not known are kept out of the way: a newer version may write more.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

TOPIC: Final = "__levada.pipelines"
WANTED: Final = "wanted/"
ACTUAL: Final = "actual/"
RUNNER: Final = "runner"


class State(StrEnum):
    """How a pipeline is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    #: It waits for its next try.
    FAILED = "failed"
    #: It had a certain amount to do and has done it.
    FINISHED = "finished"
    #: Nothing declares it any more.
    GONE = "gone"
    #: It is to run, and there is no runner.
    WAITING = "waiting"


#: Of a pipeline that its runner is busy with.
ATTENDED: Final = frozenset((State.STARTING, State.RUNNING, State.STOPPING))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is wanted of a pipeline. Survives everything: only commands change it."""

    run: bool = True
    #: Of its checkpoint and its sinks: a reset begins the next.
    epoch: int = 0
    #: How often somebody asked for a start: one more means "now, not at the next try".
    asked: int = 0
    at_ms: int = 0
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """How a pipeline is, as its runner last told."""

    state: State
    since_ms: int
    updated_ms: int = 0
    runner: str = ""
    file: str = ""
    version: str = ""
    epoch: int = 0
    #: The number of the last start that its runner has heard of: what it tells is of after that.
    asked: int = 0
    #: Of the last failure, in one line and in full, and how many there were in a row.
    cause: str = ""
    detail: str = ""
    failures: int = 0
    next_try_ms: int | None = None
    note: str = ""
    #: What it reads, {"topic": …, "starting": …}, and writes, {"topic": …} or {"table": …}.
    sources: list[dict[str, Any]] = field(default_factory=list)
    sinks: list[dict[str, Any]] = field(default_factory=list)
    trigger: str = ""
    checkpoint: str = ""
    about: str = ""
    #: rows_s, batch, batch_ms, lag, state_rows, lost …; as the pipeline tells it.
    progress: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", State(self.state))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSeen:
    """A runner's sign of life. `left_ms`: when it said goodbye."""

    id: str
    host: str
    pid: int
    since_ms: int
    seen_ms: int
    left_ms: int | None = None
    pipelines: str = ""
    master: str = ""
    home: str = ""
    ui: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


Value = Wanted | Actual | RunnerSeen
V = TypeVar("V", Wanted, Actual, RunnerSeen)


def encoded(value: Value) -> bytes:
    return json.dumps(asdict(value), ensure_ascii=False, separators=(",", ":")).encode()


def decoded(kind: type[V], value: bytes) -> V | None:
    """None for what is no such value: whoever wrote it, it was not one of us."""
    try:
        found = json.loads(value)
        known = {one.name for one in fields(kind)}
        return kind(**{name: held for name, held in found.items() if name in known})
    except (ValueError, TypeError, AttributeError):
        return None
