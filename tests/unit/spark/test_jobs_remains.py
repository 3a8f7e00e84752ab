"""A source that loses records before a job has copied them: nothing is lost in silence, nothing is there twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.spark.jobs.copying import Copied, Copying, Pass, Seen
from levada.spark.jobs.extent import Left, Ranges, around, between
from levada.spark.jobs.ledger import Step, read, written
from levada.spark.jobs.remains import NotCopied, Remains, outstanding
from levada.spark.losses import DELETED, Lost

Offsets = Mapping[int, int]


class Killed(Exception):
    """kill −9."""


class Held:
    """A topic without an archive, at one moment."""

    def __init__(self, starts: Offsets) -> None:
        self.starts = self.log_starts = dict(starts)

    def left(self, starts: Offsets, ends: Offsets) -> Left:
        wanted = between(starts, ends)
        lost = {
            p: [Lost("orders", p, start, min(end, self.starts[p]), DELETED)] if start < self.starts[p] else []
            for p, (start, end) in wanted.items()
        }
        held = {p: one for p, (start, end) in wanted.items() for one in around(start, end, lost[p])}
        return Left([held] if held else [], [one for gone in lost.values() for one in gone])


class World:
    """A source whose retention moves on at steps that are named, the last note, and the target. A run dies at a step that is named."""

    def __init__(self, partitions: int) -> None:
        self.starts = dict.fromkeys(range(partitions), 0)
        self.noted: Step | None = None
        self.target: list[tuple[int, int]] = []
        self.batch: Seen | None = None
        self.told: list[str] = []
        self.steps, self.dies_at = 0, -1
        self.deletions: dict[int, int] = {}

    def tick(self) -> None:
        self.steps += 1
        for p in self.starts:
            self.starts[p] += self.deletions.get(self.steps, 0)
        if self.steps == self.dies_at:
            raise Killed

    def last(self) -> Step | None:
        return self.noted

    def note(self, step: Step) -> None:
        self.tick()
        self.noted = read({p: written(step, p) for p in step.ends})
        self.tick()

    def seen(self) -> Seen | None:
        return self.batch

    def look(self) -> Any:
        return Held(self.starts)

    def write(self, step: Step, ranges: Sequence[Ranges]) -> int:
        """As the sink does it; what was deleted since it was looked at cannot be read."""
        self.tick()
        for part in ranges:
            for p, (start, _) in part.items():
                if start < self.starts[p]:
                    raise RuntimeError("they were deleted before they were read")
        rows = [(p, one) for part in ranges for p, (start, end) in part.items() for one in range(start, end)]
        if rows and (self.batch is None or (step.epoch, step.number) > self.batch):
            self.target += rows
            self.batch = Seen(step.epoch, step.number)
        self.tick()
        return len(rows)

    def lost(self, what: str) -> None:
        self.told.append(what)

    def run(self, ends: Offsets, rows_max: int, *, skip: bool) -> tuple[Copied, list[Lost]]:
        remains = Remains(self.look, self, skip=skip)  # type: ignore[arg-type]
        copying = Copying(
            self,
            self.seen,
            remains.plan,
            lambda step: remains.written(step, lambda ranges: self.write(step, ranges)),
            rows_max=rows_max,
        )
        return copying.run(dict(self.starts), ends), remains.lost


def is_told(told: Sequence[str], partition: int, offset: int) -> bool:
    for one in told:
        words = one.split()
        low = int(words[1])
        high = int(words[3]) if words[2] == "to" else low
        if f"of orders-{partition}:" in one and low <= offset <= high:
            return True
    return False


RUNS = st.lists(
    st.tuples(
        st.integers(1, 25), st.integers(1, 9), st.dictionaries(st.integers(1, 25), st.integers(1, 5), max_size=4)
    ),
    max_size=5,
)


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 30), RUNS, st.integers(0, 8))
def test_with_skip_lost_everything_is_copied_once_or_told(
    partitions: int, size: int, runs: list[tuple[int, int, dict[int, int]]], deleted: int
) -> None:
    """Retention deletes whenever it likes, and each run dies at another step."""
    world, ends = World(partitions), dict.fromkeys(range(partitions), size)
    first: Offsets | None = None
    for dies_at, rows_max, deletions in runs:
        world.dies_at, world.steps, world.deletions = dies_at, 0, deletions
        begins = dict(world.starts)
        try:
            world.run(ends, rows_max, skip=True)
        except Killed:
            pass
        first = begins if first is None and world.noted is not None else first
    world.dies_at, world.deletions = -1, {}
    world.starts = {p: start + deleted for p, start in world.starts.items()}
    first = dict(world.starts) if first is None else first
    world.run(ends, 5, skip=True)
    assert len(set(world.target)) == len(world.target)
    for p in range(partitions):
        copied = [offset for at, offset in world.target if at == p]
        assert copied == sorted(copied)
        missing = set(range(first[p], size)) - set(copied)
        assert [one for one in sorted(missing) if not is_told(world.told, p, one)] == []


def died_at_the_note(size: int = 10, rows_max: int = 4) -> World:
    world = World(1)
    world.dies_at = 2
    with pytest.raises(Killed):
        world.run({0: size}, rows_max, skip=False)
    assert world.noted is not None and world.noted.ends == {0: rows_max} and world.target == []
    world.dies_at = -1
    return world


@pytest.mark.parametrize(("deleted", "told"), [(3, "offsets 0 to 2 of"), (4, "offsets 0 to 3 of"), (1, "offset 0 of")])
def test_a_batch_that_was_noted_and_is_gone_ends_every_run_until_it_is_to_be_skipped(deleted: int, told: str) -> None:
    world = died_at_the_note()
    world.starts = {0: deleted}
    for _ in range(2):
        with pytest.raises(NotCopied, match=f"lost: {told} orders-0: .*--skip-lost"):
            world.run({0: 10}, 4, skip=False)
    assert world.target == []
    done, lost = world.run({0: 10}, 4, skip=True)
    assert [offset for _, offset in world.target] == list(range(deleted, 10))
    assert (done.rows, [(one.start, one.end) for one in lost]) == (10 - deleted, [(0, deleted)])
    done, lost = world.run({0: 10}, 4, skip=False)
    assert (done.rows, lost) == (0, [])


def test_what_is_lost_makes_no_batches_of_its_own() -> None:
    world = died_at_the_note(size=10_000)
    world.starts = {0: 9_990}
    done, lost = world.run({0: 10_000}, 4, skip=True)
    assert [offset for _, offset in world.target] == list(range(9_990, 10_000))
    assert done.batches <= 5
    assert sum((one.end or 0) - one.start for one in lost) == 9_990


def test_all_of_it_is_lost() -> None:
    world = died_at_the_note()
    world.starts = {0: 10}
    done, lost = world.run({0: 10}, 4, skip=True)
    assert (done.rows, sum((one.end or 0) - one.start for one in lost), done.step.ends) == (0, 10, {0: 10})
    assert world.run({0: 10}, 4, skip=False)[1] == []


def test_what_is_deleted_while_it_is_read_is_lost_too() -> None:
    world = World(1)
    world.deletions = {3: 2}  # between the look and the write
    with pytest.raises(NotCopied, match="offsets 0 to 1 of"):
        world.run({0: 10}, 100, skip=False)
    world.deletions = {}
    world.run({0: 10}, 100, skip=True)
    assert [offset for _, offset in world.target] == list(range(2, 10))


def test_a_failure_of_another_kind_is_one() -> None:
    def failing(_: Sequence[Ranges]) -> int:
        raise RuntimeError("no room")

    world = World(1)
    remains = Remains(world.look, world, skip=True)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no room"):
        remains.written(Step(0, {0: 0}, {0: 5}, {0: (0, 5)}, {}), failing)


@pytest.mark.parametrize(
    ("last", "seen", "expected"),
    [
        (None, None, ({0: 2}, {0: 9})),
        (Step(1, {0: 3}, {0: 5}, {0: (2, 7)}, {}), Seen(0, 0), ({0: 3}, {0: 9})),
        (Step(1, {0: 3}, {0: 5}, {0: (2, 7)}, {}), Seen(0, 1), ({0: 5}, {0: 9})),
        (Step(1, {0: 3}, {0: 5}, {0: (2, 12)}, {}), Seen(0, 1), ({0: 5}, {0: 12})),
    ],
)
def test_what_a_job_has_yet_to_copy(last: Step | None, seen: Seen | None, expected: tuple[Offsets, Offsets]) -> None:
    assert outstanding(last, seen, {0: 2}, {0: 9}) == expected


def test_a_plan_begins_behind_what_is_lost() -> None:
    world = World(2)
    world.starts = {0: 6, 1: 0}
    plan: Callable[[Pass, int], Any] = Remains(world.look, world, skip=True).plan  # type: ignore[arg-type]
    cuts = [cut.ends for cut in plan(Pass({0: 0, 1: 0}, {0: 0, 1: 0}, {0: 10, 1: 4}), 4)]
    assert cuts[0] == {0: 8, 1: 2} and cuts[-1] == {0: 10, 1: 4}
