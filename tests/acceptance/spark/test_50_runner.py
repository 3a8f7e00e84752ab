"""Scenario 50: a runner keeps pipelines as wanted. Real processes: a broker, `levada runner`, and commands beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from support.levada import LevadaBroker
from support.runner import END_S, Runners
from support.wait import wait_until

pytestmark = pytest.mark.timeout(900)  # a JVM, and half a dozen Pythons, on a machine that may have other things to do
KILL_ROUNDS = int(os.environ.get("LEVADA_KILL_ROUNDS", "2"))

COPY = """
    from levada.spark import pipeline, topic

    @pipeline(source=topic("{source}", format="json", schema="id INT"), sink=topic("{sink}"), trigger="200 ms", name="{name}")
    def copy(rows):
        '''Every record of one topic in another.'''
        return rows.where("id {condition}")
"""

DIVIDES = """
    from levada.spark import pipeline, topic

    def half(rows):
        return rows.where(str(1 // 0))

    @pipeline(source=topic("in-50", format="json", schema="id INT"), sink=topic("out-50-bad").using(half), trigger="200 ms")
    def divides(rows):
        return rows
"""


def copy(name: str, source: str, sink: str, condition: str = "is not null") -> str:
    return COPY.format(name=name, source=source, sink=sink, condition=condition)


@pytest.fixture(scope="module")
def runners(levada: LevadaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runners]:
    """One runner for all tests here; each has pipelines and topics of its own."""
    with Runners(levada, tmp_path_factory.mktemp("runner")) as running:
        running.start()
        yield running
        assert running.end(signal.SIGTERM) == 0


def test_50_a_file_that_raises_is_failed_with_its_cause_and_tried_again_while_others_go_on(runners: Runners) -> None:
    """Scenario 50: one file raises when it is loaded, one in its function, one in a batch; the fourth does not notice."""
    runners.create("in-50", "out-50", "out-50-bad")
    runners.write("steady.py", copy("steady", "in-50", "out-50"))
    runners.feed("in-50", range(100))
    runners.await_ids("out-50", range(100))
    planless = copy("planless", "in-50", "out-50-bad").replace("return rows", "return rows.missing_method()")
    for name, text, words in (
        ("bare", "raise RuntimeError('the cupboard is bare')", "bare.py, line 1: RuntimeError: the cupboard is bare"),
        ("planless", planless, "missing_method"),
        ("divides", DIVIDES, "ZeroDivisionError: integer division or modulo by zero"),
    ):
        runners.write(f"{name}.py", text)
        failed = runners.await_failure(name, words)
        assert "\n" not in failed.cause and "org.apache.spark" not in failed.cause and failed.next_try_ms is not None
        again = lambda name=name: len(runners.events("pipeline", pipeline=name, state="failed")) >= 2  # noqa: E731
        wait_until(again, END_S, lambda name=name: f"{name} was not tried again: {runners.state(name)}")
        listed = runners.listed()
        assert words in listed[name]["cause"] and listed["steady"]["state"] in ("running", "starting")
        shown = runners.levada("pipeline", "status", name)
        assert words in shown and f"{name}.py" in shown and "times in a row" in shown
        (runners.pipelines / f"{name}.py").unlink()
        runners.await_state(name, "gone") if name != "bare" else runners.await_state(name, None)
    runners.feed("in-50", range(100, 150), partition=1)
    runners.await_ids("out-50", range(150))
    # Spark gives a worker 10 s to start, which is not much on a machine that is very busy: nobody else's failure is another thing.
    causes = {one["cause"] for one in runners.events("pipeline", pipeline="steady")}
    assert [one for one in causes if one and "failed to connect back" not in one] == []
    (runners.pipelines / "steady.py").unlink()


def test_a_changed_file_is_taken_up_from_the_checkpoint_and_a_removed_one_stops(runners: Runners) -> None:
    runners.create("in-changed", "out-changed")
    runners.write("changed.py", copy("changed", "in-changed", "out-changed", "% 2 = 0"))
    first = runners.await_state("changed", "running")
    runners.feed("in-changed", range(10))
    runners.await_ids("out-changed", range(0, 10, 2))
    runners.write("changed.py", copy("changed", "in-changed", "out-changed", "% 2 = 1"))
    wait_until(lambda: runners.state("changed")["actual"].version != first.version, END_S, runners.text)
    runners.await_state("changed", "running")
    runners.feed("in-changed", range(10, 20))
    runners.await_ids("out-changed", [*range(0, 10, 2), *range(11, 20, 2)])
    # One that does not load leaves running what runs, and says so.
    runners.write("changed.py", "def (")
    wait_until(lambda: "does not load" in runners.state("changed")["actual"].note, END_S, runners.text)
    assert runners.state("changed")["state"] == "running"
    runners.feed("in-changed", range(20, 30))
    runners.await_ids("out-changed", [*range(0, 10, 2), *range(11, 30, 2)])
    (runners.pipelines / "changed.py").unlink()
    runners.await_state("changed", "gone")
    assert "gone" in runners.levada("pipeline", "list")


def test_stopped_stays_stopped_started_goes_on_and_reset_begins_anew(runners: Runners) -> None:
    runners.create("in-stopped", "out-stopped")
    runners.write("stopped.py", copy("stopped", "in-stopped", "out-stopped"))
    runners.await_state("stopped", "running")
    runners.feed("in-stopped", range(10))
    runners.await_ids("out-stopped", range(10))
    assert runners.levada("pipeline", "stop", "stopped") == "stopped: stopped\n"
    runners.feed("in-stopped", range(10, 20))
    assert runners.levada("pipeline", "start", "stopped") == "stopped: running\n"
    runners.await_ids("out-stopped", range(20))
    asked = runners.levada("pipeline", "reset", "stopped", code=2)
    assert "about 20 records in 2 partitions are there" in asked and "epoch 1" in asked and "say --yes" in asked
    assert runners.ids("out-stopped") == [*range(20)]
    done = json.loads(runners.levada("pipeline", "reset", "stopped", "--yes", "--json"))
    assert (done["state"], done["epoch"], done["done"]) == ("running", 1, True)
    runners.await_ids("out-stopped", sorted([*range(20), *range(20)]))
    assert "did you mean stopped?" in runners.levada("pipeline", "stop", "stoped", code=4)
    (runners.pipelines / "stopped.py").unlink()


def test_a_second_runner_is_refused_and_changes_nothing(runners: Runners) -> None:
    done = subprocess.run(runners.command(), capture_output=True, text=True, timeout=60, cwd=runners.home.parent)
    assert done.returncode == 1
    assert (
        "a runner is up already: process" in done.stderr and str(runners.process and runners.process.pid) in done.stderr
    )
    runners.create("in-second", "out-second")
    runners.write("second.py", copy("second", "in-second", "out-second"))
    runners.feed("in-second", range(5))
    runners.await_ids("out-second", range(5))
    (runners.pipelines / "second.py").unlink()


def test_50_a_runner_that_is_killed_goes_on_where_it_was(runners: Runners) -> None:
    """Scenario 50: kill −9 while records come in, of the runner or of its Spark. What was running runs, what was stopped is stopped, each record arrives once."""
    runners.create("in-killed", "out-killed", "out-idle")
    runners.write("killed.py", copy("killed", "in-killed", "out-killed"))
    runners.write("idle.py", copy("idle", "in-killed", "out-idle"))
    runners.await_state("killed", "running")
    runners.await_state("idle", "running")
    runners.levada("pipeline", "stop", "idle")
    fed = 0
    for killed in range(KILL_ROUNDS):
        for _ in range(20):
            runners.feed("in-killed", range(fed, fed + 50), partition=(fed // 50) % 2)
            fed += 50
        wait_until(lambda: runners.ids("out-killed"), END_S, runners.text)
        if killed % 2 == 0:
            assert runners.end(signal.SIGKILL) == -signal.SIGKILL
        else:
            assert runners.end_java() == 1
            assert "Spark's JVM ended with signal 9" in runners.text()
        runners.feed("in-killed", range(fed, fed + 50))
        fed += 50
        runners.start()
        runners.await_state("killed", "running")
    runners.await_ids("out-killed", range(fed))
    assert runners.state("idle")["state"] == "stopped" and runners.ids("out-idle") == []
    for name in ("killed.py", "idle.py"):
        (runners.pipelines / name).unlink()
