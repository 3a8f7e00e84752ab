"""From topic to topic in batches, each exactly once, whenever the job is killed and however often it is run.

A *pass* goes from where the job stands to where the source ended when the pass began; a batch is a part of a pass. Each batch is noted
down (`ledger.py`), then written in one transaction under its number. What was noted and not written is written first, with the
same ranges; an unfinished pass is finished before another begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from levada.spark.jobs.extent import Offsets
from levada.spark.jobs.ledger import Ledger, LostPlace, Step
from levada.spark.jobs.pace import Pace


class Cut(NamedTuple):
    """Where a batch ends in each partition, and the latest timestamp of the pass before it begins."""

    ends: Offsets
    since_ms: Offsets


class Pass(NamedTuple):
    """What is to be copied: from `starts` to `ends`, of which all before `positions` is done."""

    starts: Offsets
    positions: Offsets
    ends: Offsets


class Plan(Protocol):
    """How a pass is cut into batches of about so many rows."""

    def __call__(self, what: Pass, rows_max: int) -> Iterator[Cut]: ...


class Copied(NamedTuple):
    """What a run did. `rows` are records; `offsets` also counts places at which there is none."""

    rows: int
    batches: int
    offsets: int
    #: The last note: where the job stands now.
    step: Step


class Seen(NamedTuple):
    """The last batch that the target has of a job, and the epoch of the count."""

    epoch: int
    batch: int


class Standing(NamedTuple):
    """Where a job goes on."""

    #: Noted, and perhaps not written.
    again: Step | None
    positions: Offsets
    #: Of the next batch.
    number: int
    passes: dict[int, tuple[int, ...]]
    epoch: int
    #: So many of the passes.
    verified: int = 0


def standing(last: Step | None, seen: Seen | None, begins: Offsets, epoch: int | None = None) -> Standing:
    """Out of the last note, the last batch that the target has, and where a job that has not begun would begin.

    A later `epoch` begins anew. Batches without a record leave no trace in the target. LostPlace where it has one that was not noted.
    """
    if epoch is not None and (last is None or epoch > last.epoch):
        return Standing(None, dict(begins), 0, {p: (begin,) for p, begin in begins.items()}, epoch)
    if last is None:
        if seen is not None:
            raise LostPlace(
                f"the target has batch {seen.batch} of this job, and nothing says what was in it: the offsets of the job's group are "
                "gone. Write to another target; a replay may begin anew with --again"
            )
        return Standing(None, dict(begins), 0, {p: (begin,) for p, begin in begins.items()}, 0)
    if seen is not None and seen > (last.epoch, last.number):
        raise LostPlace(f"the target has batch {seen.batch} of this job, and the last note is of batch {last.number}")
    known = max(map(len, last.passes.values()))
    # A partition that is new since: in all passes so far nothing was done in it.
    passes = {p: last.passes.get(p, (begin,) * known) for p, begin in begins.items()}
    again = None if seen == (last.epoch, last.number) or last.starts == last.ends else last
    return Standing(again, {**begins, **last.ends}, last.number + 1, passes, last.epoch, last.verified)


class Copying:
    """One job's way through its source. `write` writes a step once, however often it is asked to, and says how many records it had.

    Notes are short, so only where the job began and its last two passes are kept, unless `all_passes` are needed.
    """

    def __init__(
        self,
        ledger: Ledger,
        seen: Callable[[], Seen | None],
        plan: Plan,
        write: Callable[[Step], int],
        *,
        rows_max: int,
        rate: float | None = None,
        all_passes: bool = False,
        told: Callable[[int], None] = lambda _offsets: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ledger, self._seen, self._plan, self._write = ledger, seen, plan, write
        self._told, self._clock, self._sleep = told, clock, sleep
        self._pace = Pace(rate, clock())
        self._rows_max = self._pace.rows_max(rows_max)
        self._all_passes = all_passes
        self._rows = self._batches = self._offsets = 0

    def run(self, begins: Offsets, ends: Offsets, *, epoch: int | None = None) -> Copied:
        """Copy up to `ends`; a new `epoch` begins anew. Nothing is noted where nothing is to be done."""
        at = standing(self._ledger.last(), self._seen(), begins, epoch)
        if at.again is not None:
            self._one(at.again)
        at = self._finish_pass(at)
        if any(at.positions[p] < ends[p] for p in ends):
            through = {p: max(position, ends.get(p, 0)) for p, position in at.positions.items()}
            at = at._replace(passes={p: (*self._kept(at.passes[p]), through[p]) for p in at.positions})
            at = self._finish_pass(at)
        step = Step(at.number - 1, at.positions, at.positions, at.passes, {}, at.epoch, at.verified)
        if self._batches:
            # Done: the group has no lag.
            self._ledger.note(step)
        return Copied(self._rows, self._batches, self._offsets, step)

    def _kept(self, held: tuple[int, ...]) -> tuple[int, ...]:
        return held if self._all_passes else (*held[:1], *held[1:][-1:])

    def _finish_pass(self, at: Standing) -> Standing:
        """Up to where the last pass ends."""
        ends = {p: max(at.positions[p], held[-1]) for p, held in at.passes.items()}
        if ends == at.positions:
            return at
        positions, number = dict(at.positions), at.number
        starts = {p: held[-2] for p, held in at.passes.items()}
        for cut in self._plan(Pass(starts, at.positions, ends), self._rows_max):
            ends_here = {p: cut.ends[p] for p in positions}
            step = Step(number, positions, ends_here, at.passes, cut.since_ms, at.epoch, at.verified)
            self._ledger.note(step)
            self._one(step)
            positions, number = dict(step.ends), number + 1
        return at._replace(positions=positions, number=number)

    def _one(self, step: Step) -> None:
        offsets = sum(step.ends[p] - step.starts[p] for p in step.ends)
        if wait_s := self._pace.wait_s(self._clock()):
            self._sleep(wait_s)
        began = self._clock()
        rows = self._write(step)
        self._pace.sent(rows, began)
        self._rows += rows
        self._batches += 1
        self._offsets += offsets
        self._told(offsets)


def evenly(what: Pass, rows_max: int) -> Iterator[Cut]:
    """Batches that take of each partition in proportion to what is left of it, so that all end together."""
    positions = dict(what.positions)
    while left := {p: what.ends[p] - at for p, at in positions.items() if at < what.ends[p]}:
        total = sum(left.values())
        share = {p: size if total <= rows_max else max(1, size * rows_max // total) for p, size in left.items()}
        positions = {p: at + share.get(p, 0) for p, at in positions.items()}
        yield Cut(positions, {})
