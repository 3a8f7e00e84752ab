"""Directories of sessions: removed when their process ends, by itself or, where it was killed, by the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
