"""`levada pipeline start|stop|reset`: what they wait for, and what the shell is told. Nobody is there but a ledger."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from levada.cli import pipeline_kept
from levada.cli.pipeline_told import now_ms
from levada.errors import InvalidRequest
from levada.spark.runner.board import Ledger
from levada.spark.runner.records import Actual, RunnerSeen, State, Wanted, encoded


class Stage:
    """A board with pipeline `a`, and what happens to it: each look at the board after a wish has the runner do the next thing."""

    def __init__(self, state: State, *happens: dict[str, Any]) -> None:
        self.now = Ledger()
        self.ledger = Ledger()
        self.actual = Actual(state=state, since_ms=1, checkpoint="/home/a")
        self.attended = True
        self._happens = [*happens]
        self._is_asked = False
        self._publish()

    def _publish(self) -> None:
        self.now.actual["a"] = self.actual
        seen = RunnerSeen(id="r1", host="h1", pid=7, since_ms=1, seen_ms=now_ms() if self.attended else 1)
        self.now.take(b"runner", encoded(seen))

    def read(self) -> Ledger:
        if self._is_asked and self._happens:
            self.actual = replace(self.actual, **self._happens.pop(0))
        self._publish()
        self.ledger.wanted, self.ledger.actual = dict(self.now.wanted), dict(self.now.actual)
        self.ledger.runner = self.now.runner
        return self.ledger

    def want(self, name: str, wish: Wanted) -> None:
        self._is_asked = True
        self.now.wanted[name] = self.ledger.wanted[name] = wish


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stage]:
    def made(state: State, *happens: dict[str, Any]) -> Stage:
        one = Stage(state, *happens)

        @contextmanager
        def opened(*_: Any) -> Iterator[tuple[Any, Stage]]:
            one.read()
            yield SimpleNamespace(), one

        monkeypatch.setattr(pipeline_kept, "_board", opened)
        monkeypatch.setattr(pipeline_kept, "_LOOK_S", 0.0)
        return one

    return made


def code(command: Callable[..., None], **options: Any) -> int:
    try:
        command("a", **options)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def test_a_pipeline_that_was_started_is_told_as_done(
    stage: Callable[..., Stage], capsys: pytest.CaptureFixture[str]
) -> None:
    stage(State.STOPPED, {"state": State.STARTING, "asked": 1}, {"state": State.RUNNING})
    assert code(pipeline_kept.start) == 0
    assert capsys.readouterr().out == "a: running\n"


def test_one_that_fails_is_told_with_its_cause_and_exit_code_1(
    stage: Callable[..., Stage], capsys: pytest.CaptureFixture[str]
) -> None:
    happens = ({"state": State.STARTING, "asked": 1}, {"state": State.FAILED, "cause": "boom"})
    stage(State.STOPPED, *happens)
    assert code(pipeline_kept.start) == 1
    assert capsys.readouterr().out == "a: failed: boom\n"
    stage(State.STOPPED, *happens)
    assert code(pipeline_kept.start, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["done"]) == ("failed", False)
    stage(State.RUNNING, {"state": State.FAILED, "cause": "boom", "asked": 1, "epoch": 1})
    assert code(pipeline_kept.reset, yes=True) == 1


def test_what_a_runner_wrote_before_it_heard_of_the_wish_does_not_count(stage: Callable[..., Stage]) -> None:
    stage(State.FAILED, {"updated_ms": 1 << 60}, {"state": State.STARTING, "asked": 1}, {"state": State.RUNNING})
    assert code(pipeline_kept.start) == 0


def test_a_pipeline_that_nothing_declares_does_not_start_and_is_stopped(stage: Callable[..., Stage]) -> None:
    stage(State.GONE, {"asked": 1})
    assert code(pipeline_kept.start) == 1
    stage(State.GONE)
    assert code(pipeline_kept.stop) == 0


@pytest.mark.parametrize("command", [pipeline_kept.start, pipeline_kept.stop, pipeline_kept.reset])
def test_a_wait_that_ran_out_is_told_with_exit_code_5(
    stage: Callable[..., Stage],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[..., None],
) -> None:
    options = {"yes": True} if command is pipeline_kept.reset else {}
    clock = iter(range(10_000))
    monkeypatch.setattr(pipeline_kept, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    stage(State.STOPPING)
    assert code(command, wait=3, **options) == 5
    assert capsys.readouterr().out == "a: stopping, after 3 seconds\n"
    stage(State.STOPPING)
    assert code(command, wait=0, **options) == 0
    assert capsys.readouterr().out == "a: noted; it is stopping\n"


def test_without_a_runner_a_wish_is_noted(stage: Callable[..., Stage], capsys: pytest.CaptureFixture[str]) -> None:
    made = stage(State.STOPPED)
    made.attended = False
    assert code(pipeline_kept.start) == 0
    assert capsys.readouterr().out.startswith("a: noted. No runner has been seen since ")
    assert made.now.wanted["a"].run and made.now.wanted["a"].asked == 1


def confirmed(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """A person who takes some time to say yes."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: meanwhile())


def test_a_stop_that_is_given_while_a_reset_asks_is_not_undone(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(State.RUNNING, {"state": State.STOPPED, "epoch": 1, "asked": 6})
    made.now.wanted["a"] = Wanted(asked=4)
    confirmed(monkeypatch, lambda: made.now.wanted.update(a=Wanted(run=False, asked=5)))
    assert code(pipeline_kept.reset) == 0
    wish = made.now.wanted["a"]
    assert (wish.run, wish.epoch, wish.asked) == (False, 1, 6)


def test_a_reset_that_another_one_overtook_is_refused(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(State.RUNNING)
    confirmed(monkeypatch, lambda: made.now.wanted.update(a=Wanted(epoch=1)))
    with pytest.raises(InvalidRequest, match="a has been reset meanwhile, to epoch 1: nothing was done"):
        pipeline_kept.reset("a")
    assert made.now.wanted["a"] == Wanted(epoch=1)
