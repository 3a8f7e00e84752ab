"""A source that loses records before a job has copied them: what is lost is named, and passed over only where that was asked for.

A batch is noted before it is written. If the job ends there, and retention deletes some of the batch before the next run, what is left
of it is written under the same number: a run that was thought dead and has written it whole after all is not contradicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from levada.errors import OffsetError
from levada.spark.jobs.copying import Cut, Pass, Seen, evenly, standing
from levada.spark.jobs.extent import History, Offsets, Ranges, steadily
from levada.spark.jobs.ledger import Step, noted
from levada.spark.jobs.running import Teller, batch_seen
from levada.spark.losses import Lost

if TYPE_CHECKING:
    from levada.spark.jobs.topics import Topic
    from levada.wire.blocking import BlockingClient


class NotCopied(OffsetError):
    """Records were deleted before the job has copied them."""

    def __init__(self, lost: Sequence[Lost]) -> None:
        told = "; ".join(map(str, lost))
        super().__init__(f"lost: {told}. With --skip-lost the job goes on behind them, and names them")
        self.lost = tuple(lost)


def outstanding(last: Step | None, seen: Seen | None, begins: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
    """From where to where a job has yet to copy, by what it has noted and what its target has. LostPlace."""
    at = standing(last, seen, begins)
    starts = at.positions if at.again is None else {**at.positions, **at.again.starts}
    return starts, {p: max(start, at.positions[p], at.passes[p][-1], ends.get(p, 0)) for p, start in starts.items()}


def refuse_lost(
    client: BlockingClient, held: History, source: Topic, job: str | None, starts: Offsets, ends: Offsets
) -> None:
    """NotCopied where something of what a job has yet to copy is gone already. `job` is None for one that has no target yet. LostPlace."""
    last, seen = None, None
    if job is not None and noted(client, job, source.name) is not None:
        # In this order: a run that is under way meanwhile notes a batch before it writes it.
        seen = batch_seen(client, job)
        last = noted(client, job, source.name)
    if lost := held.left(*outstanding(last, seen, starts, ends)).lost:
        raise NotCopied(lost)


class Remains:
    """What is left of one job's source. `skip`: go on behind what is lost."""

    def __init__(self, look: Callable[[], History], teller: Teller, *, skip: bool) -> None:
        self._look, self._teller, self._skip = look, teller, skip
        #: What was passed over.
        self.lost: list[Lost] = []

    def plan(self, what: Pass, rows_max: int) -> Iterator[Cut]:
        """Evenly, of what is left: what is lost goes with the first batch, and makes none of its own unless there is nothing else."""
        begins = self._look().starts
        positions = {p: min(what.ends[p], max(at, begins.get(p, at))) for p, at in what.positions.items()}
        if positions == what.ends:
            yield Cut(what.ends, {})
        yield from evenly(what._replace(positions=positions), rows_max)

    def written(self, step: Step, write: Callable[[Sequence[Ranges]], int]) -> int:
        """Have written what is left of a batch, be it nothing. NotCopied, with nothing written."""
        told: Sequence[Lost] = ()

        def once(held: History) -> int:
            nonlocal told
            ranges, lost = held.left(step.starts, step.ends)
            if lost and not self._skip:
                raise NotCopied(lost)
            for one in lost:
                if one not in told:
                    self._teller.lost(str(one))
            told = lost
            return write(ranges)

        rows = steadily(self._look, once)
        self.lost += told
        return rows
