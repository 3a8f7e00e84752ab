"""Directories of sessions: removed when their process ends, by itself or, where it was killed, by the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from levada.errors import InvalidConfig, Unreachable
from levada.spark import scratch

MAKES = "import sys, time; from pathlib import Path; from levada.spark import scratch; print(scratch.make(Path(sys.argv[1])), flush=True); time.sleep(600)"


def made_by_another(place: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", MAKES, str(place)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    own = scratch.make(tmp_path)
    (tmp_path / "levada-spark-notes").mkdir()
    (tmp_path / "levada-spark-1-abc").write_text("a file")
    (tmp_path / "levada-spark-2-abc").symlink_to(tmp_path / "levada-spark-notes")
    process, theirs = made_by_another(tmp_path)
    (theirs / "python").write_text("#!/bin/sh\n")
    try:
        assert scratch.remove_stale(tmp_path) == []
    finally:
        process.kill()
        process.wait()
    assert scratch.remove_stale(tmp_path) == [theirs]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(
        [own.name, "levada-spark-notes", "levada-spark-1-abc", "levada-spark-2-abc"]
    )


def test_a_process_of_another_container_has_a_number_that_nobody_has_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, theirs = made_by_another(tmp_path)
    monkeypatch.setattr(scratch, "_is_alive", lambda _pid: False)
    try:
        assert scratch.remove_stale(tmp_path) == [], "its lock is held"
    finally:
        process.kill()
        process.wait()
    assert scratch.remove_stale(tmp_path) == [theirs]


def test_what_others_own_is_not_ours_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process, _ = made_by_another(tmp_path)
    process.kill()
    process.wait()
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert scratch.remove_stale(tmp_path) == []


def test_a_process_has_one_directory_which_goes_with_it(tmp_path: Path) -> None:
    program = "from levada.spark.scratch import scratch; assert scratch() == scratch(); print(scratch())"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_spark_starts_ends_the_start_where_nobody_else_hears_it() -> None:
    from levada.spark.session import _interrupts_later

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt), _interrupts_later():
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it goes on")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("master", ["locl[2]", "spark:127.0.0.1:7077", "", "local[2", "localhost"])
def test_a_master_that_spark_does_not_know_is_refused_before_it_starts(master: str) -> None:
    from levada.spark.session import check_master

    with pytest.raises(InvalidConfig, match="must be local"):
        check_master(master)


def test_a_master_that_does_not_answer_is_unreachable() -> None:
    from levada.spark.session import check_master

    with pytest.raises(Unreachable, match=r"master spark://127.0.0.1:1,127.0.0.1:2 cannot be reached: .*refused"):
        check_master("spark://127.0.0.1:1,127.0.0.1:2")
    for known in ("local", "local[*]", "local[2, 3]", "local-cluster[2,1,1024]", "yarn", "k8s://https://here:6443"):
        check_master(known)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_spark_starts_is_heard_afterwards_by_who_heard_it_before(number: signal.Signals) -> None:
    from levada.spark.session import _interrupts_later

    heard: list[str] = []
    before = signal.signal(number, lambda *_: heard.append("told"))
    try:
        with _interrupts_later():
            signal.raise_signal(number)
            heard.append("started")
        assert heard == ["started", "told"]
        with _interrupts_later():
            signal.raise_signal(number)
            signal.raise_signal(number)
            heard.append("started")
        assert heard[2:] == ["told", "started"], "a second one is not made to wait"
    finally:
        signal.signal(number, before)
