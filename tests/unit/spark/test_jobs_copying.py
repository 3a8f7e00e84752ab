"""A job that copies is killed anywhere and run again: every record is in the target once, and in its partition's order."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.spark.jobs.copying import Copied, Copying, Cut, Pass, Seen, evenly, standing
from levada.spark.jobs.ledger import LostPlace, Step, read, written
from levada.spark.jobs.pace import Pace

Offsets = Mapping[int, int]


class Killed(Exception):
    """kill −9."""


class World:
    """What outlives a run: the source's ends, the last note, and the target with the last batch it has. Dies at a step that is named."""

    def __init__(self) -> None:
        self.noted: Step | None = None
        self.target: list[tuple[int, int]] = []
        self.batch: Seen | None = None
        self.dies_at = -1
        self.steps = 0
        self.notes = 0

    def tick(self) -> None:
        self.steps += 1
        if self.steps == self.dies_at:
            raise Killed

    def last(self) -> Step | None:
        return self.noted

    def note(self, step: Step) -> None:
        self.tick()
        # As the broker keeps it, and gives it back.
        self.noted = read({p: written(step, p) for p in step.ends})
        self.notes += 1
        self.tick()

    def seen(self) -> Seen | None:
        return self.batch

    def write(self, step: Step) -> int:
        self.tick()
        rows = [(p, offset) for p in sorted(step.ends) for offset in range(step.starts[p], step.ends[p])]
        if rows and (self.batch is None or (step.epoch, step.number) > self.batch):
            self.target += rows
            self.batch = Seen(step.epoch, step.number)
        self.tick()
        return len(rows)

    def run(self, begins: Offsets, ends: Offsets, rows_max: int, epoch: int | None = None) -> Copied:
        copying = Copying(self, self.seen, evenly, self.write, rows_max=rows_max)
        return copying.run(begins, ends, epoch=epoch)


EXTENTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), min_size=1, max_size=4)


@settings(deadline=None)
@given(EXTENTS, st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9), st.integers(0, 6)), max_size=6))
def test_killed_anywhere_and_run_again_it_ends_exact(
    extents: list[tuple[int, int]], runs: list[tuple[int, int, int]]
) -> None:
    """Each run dies at another step, with other batches, and the source may have grown meanwhile."""
    world = World()
    begins = {p: start for p, (start, _) in enumerate(extents)}
    ends = {p: start + size for p, (start, size) in enumerate(extents)}
    for dies_at, rows_max, growth in runs:
        world.dies_at, world.steps = dies_at, 0
        try:
            world.run(begins, ends, rows_max)
        except Killed:
            ends = {p: end + growth for p, end in ends.items()}
    world.dies_at = -1
    done = world.run(begins, ends, 5)
    assert done.step.ends == ends
    for p in begins:
        assert [offset for at, offset in world.target if at == p] == list(range(begins[p], ends[p]))


def test_run_again_there_is_nothing_to_do_and_nothing_is_noted() -> None:
    world = World()
    first = world.run({0: 0, 1: 3}, {0: 10, 1: 3}, 4)
    assert (first.rows, first.batches) == (10, 3)
    notes = world.notes
    again = world.run({0: 0, 1: 3}, {0: 10, 1: 3}, 4)
    assert (again.rows, again.batches, world.notes) == (0, 0, notes)
    assert again.step.ends == {0: 10, 1: 3}
    assert world.noted is not None
    assert world.noted.starts == world.noted.ends, "the job's group has no lag"


def test_it_goes_on_with_what_came_since_and_with_new_partitions() -> None:
    world = World()
    world.run({0: 0}, {0: 4}, 10)
    done = world.run({0: 0, 1: 0}, {0: 6, 1: 2}, 10)
    assert world.target == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 0), (1, 1)]
    assert done.step.passes == {0: (0, 4, 6), 1: (0, 0, 2)}


def test_notes_do_not_grow_with_the_passes_unless_all_are_needed() -> None:
    world = World()
    for end in range(1, 600):
        world.run({0: 0}, {0: end}, 10)
    assert world.noted is not None
    assert world.noted.passes == {0: (0, 598, 599)}
    assert [offset for _, offset in world.target] == list(range(599))
    everything = World()
    for end in (3, 5, 9):
        Copying(everything, everything.seen, evenly, everything.write, rows_max=10, all_passes=True).run(
            {0: 0}, {0: end}
        )
    assert everything.noted is not None and everything.noted.passes == {0: (0, 3, 5, 9)}


def test_a_new_epoch_begins_anew() -> None:
    world = World()
    world.run({0: 0}, {0: 4}, 10)
    world.run({0: 0}, {0: 4}, 2, epoch=1)
    assert world.target == [(0, 0), (0, 1), (0, 2), (0, 3)] * 2
    assert world.run({0: 0}, {0: 4}, 2).batches == 0


def test_a_target_that_has_what_was_not_noted_is_not_written_to() -> None:
    with pytest.raises(LostPlace, match="nothing says what was in it"):
        standing(None, Seen(0, 3), {0: 0})
    noted = Step(2, {0: 0}, {0: 5}, {0: (0, 5)}, {})
    with pytest.raises(LostPlace, match="the last note is of batch 2"):
        standing(noted, Seen(0, 3), {0: 0})
    with pytest.raises(LostPlace):
        standing(noted, Seen(1, 0), {0: 0})


def test_a_batch_takes_of_each_partition_in_proportion() -> None:
    cuts = list(evenly(Pass({0: 0, 1: 0, 2: 5}, {0: 0, 1: 0, 2: 5}, {0: 100, 1: 10, 2: 5}), 22))
    assert cuts[0] == Cut({0: 20, 1: 2, 2: 5}, {})
    assert cuts[-1].ends == {0: 100, 1: 10, 2: 5}
    assert len(cuts) == 5


@settings(deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 500))
def test_a_rate_is_kept_over_any_stretch_of_time(batches: list[int], rate: int) -> None:
    now, sent = 0.0, [(0.0, 0)]
    pace = Pace(rate, now)
    largest = pace.rows_max(10_000)
    for rows in batches:
        now += pace.wait_s(now)
        pace.sent(min(rows, largest), now)
        sent.append((now, min(rows, largest)))
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            passed = sent[last][0] - sent[first][0]
            assert sum(rows for _, rows in sent[first : last + 1]) <= rate * passed + largest + 1e-6


def test_without_a_rate_nobody_waits() -> None:
    pace = Pace(None, 5.0)
    pace.sent(10**9, 5.0)
    assert pace.wait_s(5.0) == 0
    assert pace.rows_max(77) == 77


def test_what_is_not_used_is_not_saved_up() -> None:
    pace = Pace(10, 0.0)
    pace.sent(20, 1000.0)
    assert pace.wait_s(1000.0) == pytest.approx(2.0)


def test_a_rate_must_be_positive() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Pace(0, 0.0)
