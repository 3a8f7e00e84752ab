"""`levada pipeline run` and `levada doctor`, as a person or a program uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from levada.cli import main
from support.levada import COMMAND, LevadaBroker
from support.spark_pipelines import order, received, send, table
from support.spark_topics import make_topic

FILE = """
from levada.spark import lake, pipeline, topic

@pipeline(
    source=topic("{source}", format="json", schema="id STRING, amount DOUBLE"),
    sink=[topic("{sink}"), lake("copies")],
    trigger="200 ms",
    name="{sink}-copies",
)
def copies(orders):
    '''All of them.'''
    return orders

@pipeline(source=topic("{source}"), sink=lake("others"), name="{sink}-others")
def others(orders):
    return orders
"""

BROKEN = """
from pyspark.sql import functions as F
from levada.spark import lake, pipeline, topic

@F.udf("double")
def broken(amount):
    return 1 / (amount - amount)

@pipeline(source=topic("{source}", format="json", schema="id STRING, amount DOUBLE"), sink=lake("never"), name="{sink}-breaks")
def breaks(orders):
    return orders.select(broken("amount").alias("x"))
"""


class Here:
    """A file of pipelines, its topics, and the command beside them."""

    def __init__(self, broker: LevadaBroker, directory: Path) -> None:
        self.bootstrap = broker.bootstrap
        self.home = directory / "home"
        self.directory = directory
        self.source, self.sink = make_topic(broker.bootstrap, 2), make_topic(broker.bootstrap)
        self.file = self.write(FILE.format(source=self.source, sink=self.sink))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LEVADA_")}
        self.environment = {
            **kept,
            "LEVADA_BOOTSTRAP": broker.bootstrap,
            "LEVADA_HOME": str(self.home),
            "LEVADA_MASTER": "local[2]",
        }

    def write(self, text: str, name: str = "file.py") -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """In a process group of its own, as a shell does."""
        return subprocess.Popen(
            [str(COMMAND), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
            env=self.environment,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate()
        return process.returncode, out, err

    def refused(self, *arguments: str) -> tuple[int, str]:
        code, out, err = self.run("pipeline", "run", *arguments)
        assert out == ""
        return code, err

    def refused_here(
        self, patched: pytest.MonkeyPatch, said: pytest.CaptureFixture[str], *arguments: str
    ) -> tuple[int, str]:
        """The same without a process, whose modules take longer to load than all it does."""
        patched.setattr(sys, "argv", ["levada", "pipeline", "run", *arguments])
        patched.chdir(self.directory)
        for name in ("LEVADA_BOOTSTRAP", "LEVADA_HOME", "LEVADA_MASTER"):
            patched.setenv(name, self.environment[name])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = said.readouterr()
        assert out == ""
        assert isinstance(left.value.code, int)
        return left.value.code, err


@pytest.fixture
def here(levada: LevadaBroker, tmp_path: Path) -> Here:
    return Here(levada, tmp_path)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Killed if the test does not end them."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def orders(start: int, count: int) -> list[dict[str, Any]]:
    return [order(number, "ada", 1.0, number) for number in range(start, start + count)]


@pytest.mark.timeout(600)
def test_a_pipeline_runs_until_it_is_interrupted_and_goes_on_where_it_was(
    here: Here, processes: list[subprocess.Popen[str]]
) -> None:
    send(here.bootstrap, here.source, orders(0, 50))
    process = here.start("pipeline", "run", str(here.file), f"{here.sink}-copies", "--json")
    processes.append(process)
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["rows_total"] == 50:
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1]) == {"event": "ended", "pipeline": f"{here.sink}-copies", "rows_total": 50}

    send(here.bootstrap, here.source, orders(50, 25))
    code, out, err = here.run("pipeline", "run", str(here.file), f"{here.sink}-copies", "--once")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"{here.sink}-copies: {here.source} → {here.sink}, lake copies, on local[2]"
    assert out.splitlines()[-1] == f"{here.sink}-copies ended: 25 rows read"
    expected = sorted(one["id"] for one in orders(0, 75))
    assert sorted(row["id"] for row in received(here.bootstrap, here.sink)) == expected
    assert sorted(row["id"] for row in table(here.home, "copies")) == expected
    assert {one.name for one in here.directory.iterdir()} == {"file.py", "home"}


@pytest.mark.timeout(600)
def test_a_pipeline_that_fails_says_why_and_where(here: Here) -> None:
    """Its file uses Spark while it is loaded, too."""
    send(here.bootstrap, here.source, orders(0, 5))
    file = here.write(BROKEN.format(source=here.source, sink=here.sink), "broken.py")
    code, err = here.refused(str(file), "--once", "--json")
    said = json.loads(err)
    assert (code, said["error"]) == (1, "PipelineFailed")
    assert "ZeroDivisionError: float division by zero" in said["message"]
    assert f"{file}, line 7, in broken" in said["message"]
    assert "\tat " not in err


def test_what_is_wrong_is_said_before_spark_is_started(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, code, said in (
        ((str(here.file),), 2, f"declares {here.sink}-copies, {here.sink}-others: say which"),
        ((str(here.file), f"{here.sink}-copy"), 2, f"did you mean {here.sink}-copies?"),
        (("none.py",), 1, "none.py: there is no such file"),
        ((str(here.write("x = 1 +", "bad.py")),), 1, "bad.py, line 1: SyntaxError"),
        ((str(here.write("import nothing_here", "worse.py")),), 1, "worse.py, line 1: ModuleNotFoundError"),
        ((str(here.file), f"{here.sink}-copies", "--bootstrap", "127.0.0.1:1"), 3, "`levada up` starts a broker"),
        ((str(here.file), f"{here.sink}-copies", "--bootstrap", "127.0.0.1:none"), 2, "--bootstrap '127.0.0.1:none'"),
        (
            (str(here.write(FILE.format(source="spark-none", sink=here.sink))), f"{here.sink}-copies"),
            4,
            "there is no topic 'spark-none'",
        ),
    ):
        found, err = here.refused_here(monkeypatch, capsys, *arguments)
        assert (found, err.count("Traceback")) == (code, 0), err
        assert said in err
    assert not here.home.exists()


def test_without_java_it_is_said_what_to_do(here: Here) -> None:
    here.environment["JAVA_HOME"] = "/no/such/java"
    code, err = here.refused(str(here.file), f"{here.sink}-copies")
    assert code == 1
    assert "/no/such/java" in err
    assert "openjdk" in err


@pytest.mark.timeout(600)
def test_doctor_looks_at_the_executors(here: Here) -> None:
    code, out, err = here.run("doctor", "--master", "local[1]", "--json")
    assert (code, err) == (0, "")
    checks = {one["name"]: one for one in json.loads(out)["checks"]}
    assert checks["Spark"]["found"].startswith("4.3")
    (executor,) = [name for name in checks if name.startswith("executor ")]
    assert checks[executor]["ok"]
