"""Whether a Spark batch is to be written: what the sink's last record says, against who asks. No broker, no Spark.

A sink's record says which batch was last, of which query, and which runs of it there have been, the last of them its owner. A run that
comes back after another took over is fenced, although nothing is wrong with its producer: it began anew with its own.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Final, NamedTuple

from levada.errors import Fenced
from levada.spark.options.reading import WrongOption

#: So many runs of a sink are remembered.
RUNS_MAX: Final = 32
NONE_YET: Final = -1


class SinkFenced(Fenced):
    """Another run has taken this sink over. Nothing of this batch was made visible."""


class BatchSeen(NamedTuple):
    """The last record of a sink."""

    epoch: int
    #: The last batch that is visible; −1 for none.
    batch: int
    query: str | None
    #: The owner last.
    runs: tuple[str, ...]

    def encoded(self) -> bytes:
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, value: bytes) -> BatchSeen:
        """Fields of a newer version are left alone."""
        fields = json.loads(value)
        return cls(int(fields["epoch"]), int(fields["batch"]), fields["query"], tuple(fields["runs"]))


class Asking(NamedTuple):
    """Who wants to write which batch. `query` and `run` are None outside of a streaming query."""

    sink: str
    epoch: int
    batch: int
    query: str | None = None
    run: str | None = None


class Verdict(Enum):
    """What is to be done."""

    WRITE = "write"
    #: Say first that the sink is ours now.
    CLAIM = "claim"
    #: It is visible already.
    DONE = "done"


def verdict(seen: BatchSeen | None, asking: Asking) -> Verdict:
    """SinkFenced: another run or a later epoch has the sink. WrongOption: its batches are those of another query."""
    if seen is None or asking.epoch > seen.epoch:
        return Verdict.CLAIM
    name = f"sink {asking.sink!r}"
    if asking.epoch < seen.epoch:
        raise SinkFenced(f"{name} is in epoch {seen.epoch}; this write has sinkEpoch={asking.epoch}")
    if asking.query is not None and seen.query is not None and asking.query != seen.query:
        raise WrongOption(
            "sinkId",
            asking.sink,
            f"it counts the batches of query {seen.query}, up to {seen.batch}, and this is query {asking.query} (a deleted "
            f"checkpoint makes a new one, which counts from 0 again). Another sinkId is, or sinkEpoch={seen.epoch + 1} to begin anew",
        )
    if asking.run is not None and asking.run in seen.runs[:-1]:
        raise SinkFenced(f"{name}: run {seen.runs[-1]} has taken over from this run, {asking.run}")
    if asking.batch <= seen.batch:
        return Verdict.DONE
    ours = asking.run is None or (bool(seen.runs) and seen.runs[-1] == asking.run)
    return Verdict.WRITE if ours else Verdict.CLAIM


def claimed(seen: BatchSeen | None, asking: Asking) -> BatchSeen:
    """The sink's record once it is this run's, with nothing new visible."""
    if seen is None or asking.epoch > seen.epoch:
        seen = BatchSeen(asking.epoch, NONE_YET, asking.query, seen.runs if seen else ())
    runs = seen.runs if asking.run is None or asking.run in seen.runs[-1:] else (*seen.runs, asking.run)
    return seen._replace(query=asking.query or seen.query, runs=runs[-RUNS_MAX:])


def written(seen: BatchSeen, asking: Asking) -> BatchSeen:
    """The sink's record with this batch."""
    return seen._replace(batch=asking.batch)
