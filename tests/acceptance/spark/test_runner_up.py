"""`levada up --spark`: a runner beside the broker, from a file in a directory to rows in a topic, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.levada import LevadaBroker
from support.runner import COMMAND, END_S, START_S, Runners
from support.wait import wait_until

pytestmark = pytest.mark.timeout(900)  # a JVM, and half a dozen Pythons, on a machine that may have other things to do
COPY = """
    from levada.spark import pipeline, topic

    @pipeline(source=topic("in", format="json", schema="id INT"), sink=topic("out"), trigger="200 ms")
    def copies(rows):
        return rows
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Runners]:
    """A broker with a runner beside it."""
    pipelines = tmp_path / "files" / "pipelines"
    flags = ["--spark", "--pipelines", str(pipelines), "--spark-master", "local[2]"]
    broker = LevadaBroker(tmp_path / "broker", {"levada.durability": "os"}, flags=flags)
    pipelines.mkdir(parents=True)
    with broker:
        running = Runners(broker, tmp_path / "own")
        running.pipelines = pipelines
        yield running
        running.client.close()
    own = [one for one in psutil.process_iter() if str(tmp_path) in " ".join(_words(one))]
    assert own == []


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def runner_of(broker: LevadaBroker) -> psutil.Process | None:
    """The process beside it, once it is there."""
    beside = [one for one in psutil.Process(broker.pid).children() if "runner" in _words(one)]
    return beside[0] if beside else None


def test_a_runner_beside_the_broker_runs_pipelines_comes_back_and_goes_first(up: Runners) -> None:
    broker = up.broker
    assert isinstance(broker, LevadaBroker)
    up.create("in", "out")
    up.write("copies.py", COPY)
    up.feed("in", range(10))
    up.await_state("copies", "running", timeout_s=START_S)
    up.await_ids("out", range(10))
    first = runner_of(broker)
    assert first is not None and not _loads_spark(psutil.Process(broker.pid))
    assert (broker.data / "pipelines" / "checkpoints" / "copies").is_dir()
    family = [first, *first.children(recursive=True)]
    first.kill()
    up.feed("in", range(10, 20))
    wait_until(lambda: (second := runner_of(broker)) and second.pid != first.pid, START_S, broker.log)
    assert "the runner ended with signal 9; it is started again in 1 s" in broker.log()
    up.await_ids("out", range(20), timeout_s=START_S)
    second = runner_of(broker)
    assert second is not None
    family += [second, *second.children(recursive=True)]
    broker.stop()
    assert [one for one in family if _is_there(one)] == []
    assert "does not answer" not in broker.log(), "the runner was ended before the broker"


def _is_there(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _loads_spark(process: psutil.Process) -> bool:
    return any("pyspark" in one.path or "pyarrow" in one.path for one in process.memory_maps())


def test_a_runner_does_not_outlive_a_broker_that_is_killed(up: Runners) -> None:
    broker = up.broker
    assert isinstance(broker, LevadaBroker)
    beside = wait_until(lambda: runner_of(broker), START_S, broker.log)
    broker.kill()
    wait_until(lambda: not _is_there(beside), END_S, f"{beside} is still there")


def test_what_cannot_be_run_is_said_before_anything_is_started(tmp_path: Path) -> None:
    def refused(*flags: str) -> str:
        done = subprocess.run(
            [*COMMAND, "up", "--data", str(tmp_path / "data"), *flags], capture_output=True, text=True, timeout=60
        )
        assert done.returncode != 0 and not (tmp_path / "data").exists()
        return done.stderr

    assert "nobody would run them without --spark" in refused("--pipelines", str(tmp_path))
    assert "there is no such directory" in refused("--spark", "--pipelines", str(tmp_path / "none"))


def test_a_terminal_is_shown_a_table_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    """On a terminal the runner draws a table; Ctrl-C ends it with nothing left behind."""
    with LevadaBroker(tmp_path / "broker", {"levada.durability": "os"}) as broker:
        running = Runners(broker, tmp_path / "own")
        running.create("in", "out")
        running.write("copies.py", COPY)
        ours, theirs = pty.openpty()
        words = [word for word in running.command() if word != "--json"]
        process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        shown = bytearray()
        reading = threading.Thread(target=_read_all, args=(ours, shown))
        reading.start()
        try:
            wait_until(lambda: b"running" in shown, START_S, lambda: shown.decode(errors="replace")[-3000:])
            assert b"copies" in shown and b"rows/s" in shown
            running.family = [*psutil.Process(process.pid).children(recursive=True)]
            process.send_signal(signal.SIGINT)
            process.wait(END_S)
        finally:
            process.kill()
            process.wait()
            reading.join()
            os.close(ours)
        assert process.returncode == 0
        wait_until(lambda: not running.left_behind(), END_S, "something was left behind")
        listed = json.loads(running.levada("pipeline", "list", "--json"))
        assert listed["runner"]["up"] is False and listed["pipelines"][0]["state"] == "waiting"
        running.client.close()


def _read_all(descriptor: int, into: bytearray) -> None:
    """Until the other end of a terminal is closed, which Linux tells as an error."""
    with contextlib.suppress(OSError):
        while some := os.read(descriptor, 1 << 16):
            into += some
