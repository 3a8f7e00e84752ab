"""A pipeline whose driver is killed −9 at any moment: each of its sinks has each row once, as after one run."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.guard import members
from support.levada import COMMAND, LevadaBroker
from support.spark_pipelines import received, send, table
from support.spark_topics import make_topic

ROUNDS = int(os.environ.get("LEVADA_KILL_ROUNDS", "2"))
ROWS = 400

FILE = """
from levada.spark import lake, pipeline, topic

@pipeline(
    source=topic("{source}", format="json", schema="n INT, user STRING", max_records=20),
    sink=[lake("rows"), topic("{sink}", key="user"), lake("counts").using(lambda rows: rows.groupBy("user").count())],
    trigger="10 ms",
    name="killed",
)
def killed(rows):
    return rows.dropDuplicates(["n"])
"""


def start(file: Path, home: Path, bootstrap: str, *more: str) -> subprocess.Popen[str]:
    """Python and Java in one process group, which is killed together."""
    return subprocess.Popen(
        [
            str(COMMAND),
            "pipeline",
            "run",
            str(file),
            "--json",
            "--master",
            "local[2]",
            "--home",
            str(home),
            "-b",
            bootstrap,
            *more,
        ],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    for pid in (process.pid, *members(process.pid)):  # Java is in a process group of its own
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.timeout(300 + 300 * ROUNDS)
def test_41_a_pipelines_driver_is_killed_at_any_moment_and_each_sink_has_each_row_once(
    levada: LevadaBroker, tmp_path: Path
) -> None:
    """Scenario 41, with several sinks: a stateful pipeline of small micro-batches, killed between and within them."""
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    source, sink = make_topic(levada.bootstrap, 2), make_topic(levada.bootstrap)
    file = tmp_path / "file.py"
    file.write_text(FILE.format(source=source, sink=sink))
    rows = [{"n": number, "user": f"u{number % 5}"} for number in range(ROWS)]
    for round_number in range(ROUNDS):
        share = rows[round_number * ROWS // ROUNDS : (round_number + 1) * ROWS // ROUNDS]
        send(levada.bootstrap, source, [*share, *share[::7]])
        process = start(file, tmp_path / "home", levada.bootstrap)
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), f"it ended by itself; seed {seed}"
            time.sleep(moments.uniform(0, 1.5))
        finally:
            kill(process)
    process = start(file, tmp_path / "home", levada.bootstrap, "--once")
    process.communicate()
    assert process.returncode == 0, f"seed {seed}"

    expected = list(range(ROWS))
    assert sorted(row["n"] for row in received(levada.bootstrap, sink)) == expected, f"seed {seed}"
    assert sorted(row["n"] for row in table(tmp_path / "home", "rows")) == expected, f"seed {seed}"
    counts: dict[str, int] = {}
    for row in table(tmp_path / "home", "counts"):
        counts[row["user"]] = counts.get(row["user"], 0) + row["count"]
    assert counts == {f"u{number}": ROWS // 5 for number in range(5)}, f"seed {seed}"
