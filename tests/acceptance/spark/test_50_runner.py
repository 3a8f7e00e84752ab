"""Scenario 50: a runner keeps pipelines as wanted. Real processes: a broker, `levada runner`, and commands beside it.

Starts cost more than anything else here, so one runner and its pipeline `steady` are there for all tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator

import pytest

from levada.spark.runner.board import Board
from levada.spark.runner.records import Wanted
from support.levada import LevadaBroker
from support.runner import Runners

pytestmark = pytest.mark.timeout(900)  # a JVM, and half a dozen Pythons, on a machine that may have other things to do
KILL_ROUNDS = int(os.environ.get("LEVADA_KILL_ROUNDS", "2"))

COPY = """
    from levada.spark import pipeline, topic

    @pipeline(source=topic("{source}", format="json", schema="id INT"), sink=topic("{sink}"), trigger="500 ms", name="{name}")
    def copy(rows):
        '''Every record of one topic in another.'''
        return rows.where("id {condition}")
"""

DIVIDES = """
    from levada.spark import pipeline, topic

    def half(rows):
        return rows.where(str(1 // 0))

    @pipeline(source=topic("in", format="json", schema="id INT"), sink=topic("out-bad").using(half), trigger="500 ms")
    def divides(rows):
        return rows
"""


def copy(name: str, source: str, sink: str, condition: str = "is not null") -> str:
    return COPY.format(name=name, source=source, sink=sink, condition=condition)


class Steady:
    """The pipeline `steady`, from the topic `in` to the topic `out`, and what has to be in there."""

    def __init__(self, runners: Runners) -> None:
        self._runners = runners
        self.fed = 0
        self.due: list[int] = []

    def feed(self, count: int, partition: int = 0) -> None:
        ids = range(self.fed, self.fed + count)
        self._runners.feed("in", ids, partition)
        self.fed += count
        self.due += ids

    def await_all(self) -> None:
        """Each record has arrived, and none once more than it should."""
        self._runners.await_ids("out", self.due)


@pytest.fixture(scope="module")
def runners(levada: LevadaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runners]:
    """One runner for all tests here."""
    with Runners(levada, tmp_path_factory.mktemp("runner")) as running:
        running.create("in", "out", "out-bad", "out-idle", "in-changed", "out-changed")
        running.write("steady.py", copy("steady", "in", "out"))
        running.start()
        yield running
        assert running.end(signal.SIGTERM) == 0


@pytest.fixture(scope="module")
def steady(runners: Runners) -> Steady:
    """A pipeline that has begun."""
    made = Steady(runners)
    made.feed(10)
    made.await_all()
    return made


def remove(runners: Runners, names: Iterable[str]) -> None:
    for name in names:
        (runners.pipelines / f"{name}.py").unlink()


def test_50_a_file_that_raises_is_failed_with_its_cause_and_tried_again_while_others_go_on(
    runners: Runners, steady: Steady
) -> None:
    """Scenario 50: one file raises when it is loaded, one in its function, one in a batch; the fourth does not notice."""
    bad = {
        "bare": "bare.py, line 1: RuntimeError: the cupboard is bare",
        "planless": "missing_method",
        "divides": "ZeroDivisionError: integer division or modulo by zero",
    }
    planless = copy("planless", "in", "out-bad").replace("return rows", "return rows.missing_method()")
    runners.write("bare.py", "raise RuntimeError('the cupboard is bare')")
    runners.write("planless.py", planless)
    runners.write("divides.py", DIVIDES)
    for name, words in bad.items():
        failed = runners.await_failure(name, words)
        assert "\n" not in failed.cause and "org.apache.spark" not in failed.cause and failed.next_try_ms is not None
    for name, words in bad.items():
        runners.wait(lambda name=name: len(runners.events("pipeline", pipeline=name, state="failed")) >= 2)
        runners.await_failure(name, words)
    steady.feed(10, partition=1)
    steady.await_all()
    listed = runners.listed()
    assert all(words in listed[name]["cause"] for name, words in bad.items())
    assert listed["steady"]["state"] in ("running", "starting")
    shown = runners.levada("pipeline", "status", "divides")
    assert bad["divides"] in shown and "divides.py" in shown and "times in a row" in shown
    remove(runners, bad)
    for name in bad:
        runners.await_state(name, None if name == "bare" else "gone")
    # Spark gives a worker 10 s to start, which is not much on a machine that is very busy: nobody else's failure is another thing.
    causes = {one["cause"] for one in runners.events("pipeline", pipeline="steady")}
    assert [one for one in causes if one and "failed to connect back" not in one] == []


def test_a_changed_file_is_taken_up_from_the_checkpoint_and_a_removed_one_stops(runners: Runners) -> None:
    runners.write("changed.py", copy("changed", "in-changed", "out-changed", "% 2 = 0"))
    runners.feed("in-changed", range(10))
    runners.await_ids("out-changed", range(0, 10, 2))
    first = runners.await_state("changed", "running")
    runners.write("changed.py", copy("changed", "in-changed", "out-changed", "% 2 = 1"))
    runners.wait(lambda: runners.state("changed")["actual"].version != first.version)
    runners.feed("in-changed", range(10, 20))
    runners.await_ids("out-changed", [*range(0, 10, 2), *range(11, 20, 2)])
    runners.await_state("changed", "running")
    # One that does not load leaves running what runs, and says so.
    runners.write("changed.py", "def (")
    runners.wait(lambda: "does not load" in runners.state("changed")["actual"].note)
    assert runners.state("changed")["state"] == "running"
    runners.feed("in-changed", range(20, 30))
    runners.await_ids("out-changed", [*range(0, 10, 2), *range(11, 30, 2)])
    remove(runners, ["changed"])
    runners.await_state("changed", "gone")


def test_stopped_stays_stopped_started_goes_on_and_reset_begins_anew(runners: Runners, steady: Steady) -> None:
    assert runners.levada("pipeline", "stop", "steady") == "steady: stopped\n"
    steady.feed(10)
    assert runners.levada("pipeline", "start", "steady") == "steady: running\n"
    steady.await_all()
    asked = runners.levada("pipeline", "reset", "steady", code=2)
    assert f"about {steady.fed} records in 2 partitions are there" in asked
    assert "epoch 1" in asked and "say --yes" in asked
    done = json.loads(runners.levada("pipeline", "reset", "steady", "--yes", "--json"))
    assert (done["state"], done["epoch"], done["done"]) == ("running", 1, True)
    steady.due += range(steady.fed)
    steady.await_all()
    assert "did you mean steady?" in runners.levada("pipeline", "stop", "stedy", code=4)


def test_a_second_runner_is_refused_and_changes_nothing(runners: Runners, steady: Steady) -> None:
    done = subprocess.run(runners.command(), capture_output=True, text=True, timeout=60, cwd=runners.home.parent)
    assert done.returncode == 1
    assert runners.process is not None and f"a runner is up already: process {runners.process.pid} " in done.stderr
    steady.feed(5)
    steady.await_all()


def test_50_a_runner_that_is_killed_goes_on_where_it_was(runners: Runners, steady: Steady) -> None:
    """Scenario 50: kill −9 while records come in, of the runner or of its Spark. What was running runs, what was stopped is stopped, each record arrives once."""
    Board(runners.client).want("idle", Wanted(run=False))
    runners.write("idle.py", copy("idle", "in", "out-idle"))
    runners.await_state("idle", "stopped")
    for killed in range(KILL_ROUNDS):
        before = len(runners.ids("out"))
        for turn in range(20):
            steady.feed(50, partition=turn % 2)
        runners.wait(lambda before=before: len(runners.ids("out")) > before)
        if killed % 2 == 0:
            assert runners.end(signal.SIGKILL) == -signal.SIGKILL
        else:
            assert runners.end_java() == 1
            assert "Spark's JVM ended with signal 9" in runners.text()
        steady.feed(50)
        runners.start()
    steady.await_all()
    # As the last runner says, not one of those before.
    runners.wait(lambda: {runners.state(name)["actual"].runner for name in ("steady", "idle")} == {runners.id()})
    runners.await_state("steady", "running")
    assert runners.state("idle")["state"] == "stopped" and runners.ids("out-idle") == []
