"""A cluster that gives nothing to run on is told of, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from levada.spark import executors
from levada.spark.executors import PATIENCE_S, Executors, waiting

CLUSTER = "spark://10.0.0.1:7077"


@pytest.mark.parametrize(
    ("master", "count", "without_s", "is_told"),
    [
        (CLUSTER, 0, PATIENCE_S, True),
        (CLUSTER, 0, PATIENCE_S - 1, False),
        (CLUSTER, 1, 3600.0, False),
        ("local[2]", 0, 3600.0, False),
        ("local[*]", 0, 3600.0, False),
        ("local", 0, 3600.0, False),
    ],
)
def test_what_is_waited_for(master: str, count: int, without_s: float, is_told: bool) -> None:
    said = waiting(master, count, without_s)
    assert bool(said) is is_told
    assert (CLUSTER in said) is is_told


def test_executors_that_go_are_missed_after_a_while_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now, there = [0.0], [0]
    monkeypatch.setattr(executors, "count", lambda _spark: there[0])
    spark: Any = None
    looked_at = Executors(spark, CLUSTER, clock=lambda: now[0])

    def at(moment: float, count: int) -> bool:
        now[0], there[0] = moment, count
        return bool(looked_at.waiting())

    assert [at(1, 0), at(14, 0), at(15, 0), at(100, 0)] == [False, False, True, True]
    assert [at(101, 2), at(115, 0), at(116, 0), at(117, 1)] == [False, False, True, False]


def test_a_session_that_has_ended_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_spark: object) -> int:
        raise RuntimeError("Cannot call methods on a stopped SparkContext")

    monkeypatch.setattr(executors, "count", ended)
    spark: Any = None
    assert Executors(spark, CLUSTER, clock=lambda: 100.0).waiting() == ""


def test_a_local_session_is_not_asked() -> None:
    spark: Any = None
    assert Executors(spark, "local[2]").waiting() == ""
