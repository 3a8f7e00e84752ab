"""The table against a dictionary, while it grows, shrinks, is swept and forgets."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from levada.broker.dedup import table as module
from levada.broker.dedup.table import Table, mark, place_of, time_of

WINDOW = 10
#: Most of them belong to the same few slots, the last one among them: their second hashes differ in the lower half only.
HOMES = [0, 1 << 62, (1 << 64) - (1 << 33)]
KEYS = [(n + 1, (HOMES[n % 4] if n % 4 < 3 else n << 54) | n) for n in range(400)]
keys = st.lists(st.integers(0, len(KEYS) - 1), min_size=1, max_size=60)


def hashes_of(chosen: list[int]) -> np.ndarray:
    return np.array([KEYS[n] for n in chosen], np.uint64)


class TableMachine(RuleBasedStateMachine):
    """The model: key → (time, place, offset) of the first copy."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.dead = np.zeros(8, np.uint8)
        self.seen: dict[int, tuple[int, int, int]] = {}
        self.now = 100
        self.offset = 0

    def alive(self, key: int) -> bool:
        first = self.seen.get(key)
        return first is not None and self.now - first[0] < WINDOW and not self.dead[first[1]]

    @rule(chosen=keys, place=st.integers(0, 7), insert=st.booleans(), dense=st.booleans())
    def meet(self, chosen: list[int], place: int, insert: bool, dense: bool) -> None:
        firsts = np.full((len(chosen), 2), -1, np.int64)
        rows = np.zeros((len(chosen), 3), np.int64)
        rows[:, 1] = np.arange(len(chosen))
        self.table.meet(
            hashes_of(chosen), rows, firsts, base_offset=self.offset, place=place, now_ms=self.now,
            window_ms=WINDOW, dead=self.dead, insert=insert, dense=dense,
        )  # fmt: skip
        fresh = 0
        for row, key in enumerate(chosen):
            if self.alive(key):
                assert firsts[row].tolist() == list(self.seen[key][1:])
                continue
            assert firsts[row].tolist() == [-1, -1]
            if insert:
                self.seen[key] = (self.now, place, self.offset + (fresh if dense else row))
            fresh += 1
        self.offset += len(chosen)

    @rule(chosen=keys)
    def forget_exactly(self, chosen: list[int]) -> None:
        entries = []
        for key in set(chosen):
            time, place, offset = self.seen.get(key, (1, 0, 0))
            # Every other one is not what the table has: it must stay.
            wrong = key % 2
            entries.append([*KEYS[key], mark(time, place), offset + wrong])
            if not wrong:
                self.seen.pop(key, None)
        self.table.drop(np.array(entries, np.uint64))

    @rule(step=st.integers(0, 8))
    def pass_time(self, step: int) -> None:
        self.now += step

    @rule(place=st.integers(1, 7))
    def end_of_a_place(self, place: int) -> None:
        self.dead[place] = 1
        self.sweep()
        self.dead[place] = 0

    @rule()
    def sweep(self) -> None:
        self.seen = {key: first for key, first in self.seen.items() if self.alive(key)}
        over = False
        while not over:
            _, over = self.table.sweep_step(self.now - WINDOW, self.dead)

    @rule(chosen=keys, ago=st.integers(0, 2 * WINDOW))
    def merge(self, chosen: list[int], ago: int) -> None:
        time = self.now - ago
        entries = []
        for key in set(chosen):
            entries.append([*KEYS[key], mark(time, 1), self.offset])
            first = self.seen.get(key)
            if first is None or time - first[0] >= WINDOW:
                self.seen[key] = (time, 1, self.offset)
        self.table.merge(np.array(entries, np.uint64), WINDOW, -1, self.dead)

    @invariant()
    def holds_what_it_should(self) -> None:
        found = {}
        for entries in self.table.entries():
            for row, time, place in zip(entries.tolist(), time_of(entries), place_of(entries), strict=True):
                key = int(row[0]) - 1
                assert key not in found
                found[key] = (int(time), int(place), row[3])
        assert {key: first for key, first in found.items() if self.alive(key)} == {
            key: first for key, first in self.seen.items() if self.alive(key)
        }
        assert len(self.table) == len(found)


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


class TestSmallSteps(TestTable):
    """The same with a tiny table that moves a slot at a time."""

    def setUp(self) -> None:
        self.kept = {
            name: getattr(module, name) for name in ("CAPACITY_MIN", "_MOVED_PER_MESSAGE", "_MOVED_MIN", "STEP")
        }
        module.CAPACITY_MIN, module._MOVED_PER_MESSAGE, module._MOVED_MIN, module.STEP = 8, 1, 1, 3  # type: ignore[misc]

    def tearDown(self) -> None:
        for name, value in self.kept.items():
            setattr(module, name, value)


def test_a_large_table_stays_at_least_two_thirds_full_and_gives_memory_back(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(module, "_SMALL", 1 << 12)
    monkeypatch.setattr(module, "_LARGE", 1 << 14)
    table, dead = Table(), np.zeros(1, np.uint8)
    random = np.random.default_rng(1)
    total = 200_000
    for _ in range(total // 500):
        hashes = random.integers(1, 1 << 63, size=(500, 2), dtype=np.uint64) << np.uint64(1) | np.uint64(1)
        firsts = np.full((500, 2), -1, np.int64)
        table.meet(
            hashes, np.zeros((500, 3), np.int64), firsts,
            base_offset=0, place=0, now_ms=100, window_ms=10, dead=dead,
        )  # fmt: skip
        assert (firsts == -1).all()
    assert len(table) == total
    assert total / 0.8 <= table.capacity <= total / 0.63
    over = False
    while not over:
        _, over = table.sweep_step(100, dead)
    assert len(table) == 0
    while table.is_moving:
        table.sweep_step(100, dead)
    assert table.capacity == module.CAPACITY_MIN


def test_no_more_are_remembered_than_the_limit_and_those_are_the_newest() -> None:
    limit, size, rounds = 20_000, 500, 200
    table, dead = Table(), np.zeros(8, np.uint8)
    table.limit = limit
    hashes = np.random.default_rng(1).integers(1, 1 << 63, (size * rounds, 2)).astype(np.uint64)
    rows = np.zeros((size, 3), np.int64)
    rows[:, 1] = np.arange(size)

    def meet(number: int, now_ms: int, *, insert: bool) -> np.ndarray:
        firsts = np.full((size, 2), -1, np.int64)
        table.meet(
            hashes[number * size : (number + 1) * size], rows, firsts, base_offset=number * size, place=0,
            now_ms=now_ms, window_ms=1 << 40, dead=dead, insert=insert,
        )  # fmt: skip
        return firsts[:, 1]

    for number in range(rounds):
        assert (meet(number, number, insert=True) == -1).all()
        assert len(table) <= limit
        newest = range(max(0, number - int(0.7 * limit / size) + 1), number + 1)
        assert (meet(newest[0], number, insert=False) == newest[0] * size + np.arange(size)).all()
    assert table.evicted >= size * rounds - limit
    assert (meet(0, rounds, insert=False) == -1).all()
    known = sum(int((meet(number, rounds, insert=False) >= 0).sum()) for number in range(rounds))
    assert 0.7 * limit <= known <= len(table) <= limit


def test_what_comes_in_one_moment_is_not_forgotten_in_it() -> None:
    """Nothing can be told to be older than the rest: then there are more than the limit says."""
    table = Table()
    table.limit = 100
    hashes = np.random.default_rng(2).integers(1, 1 << 63, (1000, 2)).astype(np.uint64)
    rows = np.zeros((1000, 3), np.int64)
    for expected in (-1, 0):
        firsts = np.full((1000, 2), -1, np.int64)
        table.meet(
            hashes, rows, firsts, base_offset=0, place=0, now_ms=5, window_ms=10, dead=np.zeros(8, np.uint8)
        )  # fmt: skip
        assert (firsts[:, 1] == expected).all()
