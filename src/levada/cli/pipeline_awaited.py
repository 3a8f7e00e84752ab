"""What a command for a pipeline waits for, what it says in the end, and its exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levada.cli import EXIT_FAILED, EXIT_TRY_AGAIN
from levada.cli.pipeline_told import no_runner, now_ms, shown_state
from levada.cli.session import count

if TYPE_CHECKING:
    from levada.spark.runner.board import Ledger
    from levada.spark.runner.records import Actual, State, Wanted


class Awaited(NamedTuple):
    """States that are as was asked for, and those that are not and will not be soon, once the runner has heard of this wish."""

    wish: Wanted
    good: tuple[State, ...]
    bad: tuple[State, ...] = ()

    def is_heard(self, actual: Actual) -> bool:
        """By number, not by time: the runner's clock may be another."""
        return actual.asked >= self.wish.asked and actual.epoch >= self.wish.epoch

    def is_done(self, actual: Actual) -> bool:
        return self.is_heard(actual) and actual.state in self.good

    def is_over(self, actual: Actual) -> bool:
        """Whether there is nothing more to wait for."""
        return self.is_heard(actual) and actual.state in (*self.good, *self.bad)


def started(wish: Wanted) -> Awaited:
    from levada.spark.runner.records import State

    return Awaited(wish, (State.RUNNING, State.FINISHED), (State.FAILED, State.GONE))


def stopped(wish: Wanted) -> Awaited:
    """One that is gone does not run either."""
    from levada.spark.runner.records import State

    return Awaited(wish, (State.STOPPED, State.GONE))


class Outcome(NamedTuple):
    """How it came out. `done` is whether it is as was asked for."""

    text: str
    exit_code: int
    done: bool


def outcome(name: str, awaited: Awaited, ledger: Ledger, waited_s: int) -> Outcome:
    """With a runner: 0 when it is done, 1 when it went wrong, 5 when it is not done yet, unless nobody wanted to wait.

    Without one, the wish is noted, which is all that was to be done now.
    """
    actual = ledger.actual[name]
    if not ledger.is_attended(now_ms()):
        return Outcome(f"{name}: noted. {no_runner(ledger)}", 0, done=False)
    why = f": {actual.cause}" if actual.cause else ""
    state = shown_state(actual, ledger)
    if awaited.is_done(actual):
        return Outcome(f"{name}: {state}{why}", 0, done=True)
    if awaited.is_over(actual):
        return Outcome(f"{name}: {state}{why}", EXIT_FAILED, done=False)
    if not waited_s:
        return Outcome(f"{name}: noted; it is {state}{why}", 0, done=False)
    return Outcome(f"{name}: {state}, after {count(waited_s, 'second')}{why}", EXIT_TRY_AGAIN, done=False)
