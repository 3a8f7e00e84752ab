"""What `levada up` runs beside the broker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from levada.cli import beside as module
from levada.cli.beside import RunnerBeside, runner_beside
from levada.cli.settings import SparkSettings
from levada.config import BrokerConfig
from levada.errors import InvalidConfig


def server(host: str = "127.0.0.1", port: int = 9092) -> Any:
    return SimpleNamespace(addresses={"kafka": (host, port)})


def options(spark: SparkSettings, *, as_json: bool = False, host: str = "127.0.0.1") -> list[str]:
    beside = runner_beside(spark, BrokerConfig(data=Path("data")), as_json=as_json)
    assert beside is not None
    made = beside(server(host))
    assert isinstance(made, RunnerBeside)
    return made._command[1:]


def test_without_spark_there_is_nothing_beside() -> None:
    assert runner_beside(SparkSettings(pipelines=Path("/none")), BrokerConfig(data=Path("data")), as_json=False) is None


def test_the_runner_is_told_where_everything_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = options(SparkSettings(enabled=True))
    assert words[:3] == ["-m", "levada", "runner"] and "--beside" in words and "--pipelines" not in words
    assert words[words.index("--home") + 1] == "data/pipelines"
    assert words[words.index("--bootstrap") + 1] == "127.0.0.1:9092"
    (tmp_path / "pipelines").mkdir()
    assert options(SparkSettings(enabled=True))[-4:-2] == ["--pipelines", "pipelines"]
    given = SparkSettings(enabled=True, pipelines=tmp_path, master="local[3]", home=tmp_path / "home")
    words = options(given, as_json=True, host="0.0.0.0")
    assert words[words.index("--pipelines") + 1] == str(tmp_path) and words[words.index("--master") + 1] == "local[3]"
    assert words[words.index("--home") + 1] == str(tmp_path / "home") and "--json" in words
    assert words[words.index("--bootstrap") + 1] == "127.0.0.1:9092", "0.0.0.0 is no place to go to"


def test_what_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfig, match="there is no such directory"):
        options(SparkSettings(enabled=True, pipelines=tmp_path / "none"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidConfig, match=r"pip install 'levada\[spark\]'"):
        options(SparkSettings(enabled=True))


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if look():
                return
            await asyncio.sleep(0.02)


def beside_running(script: str) -> RunnerBeside:
    made = RunnerBeside([])
    made._command = [sys.executable, "-c", script]
    return made


async def test_it_is_started_again_when_it_ends_and_ended_when_all_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two end at once; the third stays until it is told to go, by a signal."""
    monkeypatch.setattr(module, "_LONGEST_S", 0.01)
    log = tmp_path / "log"
    script = (
        "import os, signal, sys, time\n"
        f"open({str(log)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        f"if len(open({str(log)!r}).readlines()) < 3: sys.exit(3)\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(log)!r}, 'a').write('told\\n'), sys.exit(0)))\n"
        f"open({str(log)!r}, 'a').write('ready\\n')\n"
        "time.sleep(600)\n"
    )
    async with beside_running(script):
        await until(lambda: log.exists() and "ready" in log.read_text())
    lines = log.read_text().splitlines()
    assert len(set(lines[:3])) == 3 and lines[3:] == ["ready", "told"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(lines[2]), 0)


async def test_one_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.05)
    ready = tmp_path / "ready"
    script = (
        f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w').close(); time.sleep(600)"
    )
    made = beside_running(script)
    async with made:
        await until(ready.exists)
    assert made._process is not None and made._process.returncode == -signal.SIGKILL


async def test_it_ends_when_this_process_is_gone(tmp_path: Path) -> None:
    """Its stdin is a pipe of ours: nothing is ever written to it, and it closes when we do."""
    found = tmp_path / "found"
    script = f"import sys; sys.stdin.read(); open({str(found)!r}, 'w').close()"
    made = beside_running(script)
    async with made:
        await until(lambda: made._process is not None)
        assert made._process is not None and made._process.stdin is not None
        made._process.stdin.close()
        await until(found.exists)
