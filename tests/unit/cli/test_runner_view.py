"""How a runner's pipelines are told of, to people and to machines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from levada.cli.pipeline_told import why
from levada.cli.runner_view import JsonLines, told
from levada.spark.runner.records import Actual, State

FULL = "the disk is full"


def actual(state: State, **known: Any) -> Actual:
    return Actual(state=state, since_ms=1, **known)


@pytest.mark.parametrize(
    ("after", "line"),
    [
        (actual(State.RUNNING), "copy running"),
        (actual(State.RUNNING, failures=1, cause=FULL), "copy running after 1 failure"),
        (actual(State.RUNNING, failures=3, cause=FULL), "copy running after 3 failures"),
        (actual(State.STARTING, failures=2, cause=FULL), "copy starting after 2 failures"),
        (actual(State.RUNNING, failures=3, cause=FULL, note="slow"), "copy running after 3 failures: slow"),
        (actual(State.FAILED, failures=1, cause=FULL), f"copy failed: {FULL}"),
        (actual(State.FAILED, failures=3, cause=FULL, next_try_ms=0), f"copy failed: {FULL}; next try in 0 s"),
        (None, "copy is no longer known"),
    ],
)
def test_why_a_pipeline_failed_is_told_when_it_does_and_afterwards_how_often(after: Actual | None, line: str) -> None:
    assert told("copy", after) == line


@pytest.mark.parametrize(("state", "cause"), [(State.FAILED, FULL), (State.RUNNING, "")])
def test_machines_are_told_the_same(state: State, cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    JsonLines().changed("copy", None, actual(state, failures=2, cause=FULL))
    said = json.loads(capsys.readouterr().out)
    assert (said["state"], said["cause"], said["failures"]) == (state, cause, 2)


@pytest.mark.parametrize("state", [one for one in State if one is not State.FAILED])
def test_what_runs_now_failed_before(state: State) -> None:
    assert why(actual(state, failures=2, cause=FULL)) == f"failed before: {FULL}"


def test_what_has_failed_says_why_and_what_comes_next() -> None:
    assert why(actual(State.FAILED, cause=FULL, next_try_ms=0, note="slow")) == f"{FULL}; next try in 0 s; slow"
    assert why(actual(State.RUNNING)) == ""
