"""A `levada runner` beside a broker: a process of its own, since the broker never loads Spark.

It is started again when it dies, ended before the broker is, and ends by itself when the broker's process is gone.
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from levada.errors import InvalidConfig

if TYPE_CHECKING:
    from levada.cli.settings import SparkSettings
    from levada.config import BrokerConfig
    from levada.server import Beside, Server

#: Where pipelines are looked for unless said otherwise.
_PIPELINES: Final = Path("pipelines")
#: How long pipelines may finish their batches in. What is ended in the middle of one is begun anew by the next start.
GRACE_S: Final = 15.0
_LONGEST_S: Final = 60.0
_STDERR: Final = 2

_log = structlog.get_logger("levada.runner")


def runner_beside(spark: SparkSettings, broker: BrokerConfig, *, as_json: bool) -> Beside | None:
    """What `levada up` runs beside the broker; None without --spark. InvalidConfig, before anything is started."""
    if not spark.enabled:
        return None
    if importlib.util.find_spec("pyspark") is None:
        raise InvalidConfig("--spark: pyspark is not installed: pip install 'levada[spark]'")
    if spark.pipelines is not None and not spark.pipelines.is_dir():
        raise InvalidConfig(f"spark.pipelines={spark.pipelines}: there is no such directory")
    directory = spark.pipelines or (_PIPELINES if _PIPELINES.is_dir() else None)
    home = spark.home or broker.data / "pipelines"
    options = ["--master", spark.master, "--home", str(home), *(["--json"] if as_json else [])]
    if directory is not None:
        options += ["--pipelines", str(directory)]

    def beside(server: Server) -> RunnerBeside:
        return RunnerBeside([*options, "--bootstrap", _reachable(*server.addresses["kafka"])])

    return beside


def _reachable(host: str, port: int) -> str:
    """Where a process of this machine finds who listens there."""
    return f"{ {'0.0.0.0': '127.0.0.1', '::': '[::1]'}.get(host, host) }:{port}"


class RunnerBeside:
    """Keeps the process, while the `async with` lasts."""

    def __init__(self, options: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "levada", "runner", "--beside", *options]
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: Any) -> None:
        assert self._keeping is not None
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        if self._process is not None:
            await self._end(self._process)

    async def _keep(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            # A session of its own: Ctrl-C is for the broker, which ends the runner in its turn. Its stdin ends with the broker, and
            # what it says goes where the broker's log does.
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=_STDERR, start_new_session=True
            )
            code = await process.wait()
            failures = 1 if time.monotonic() - began >= _LONGEST_S else failures + 1
            delay_s = min(2.0 ** (failures - 1), _LONGEST_S)
            _log.warning(f"the runner ended with {_how(code)}; it is started again in {delay_s:.0f} s")
            await asyncio.sleep(delay_s)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if process.returncode is not None:
                return
            process.send_signal(number)
            try:
                await asyncio.wait_for(process.wait(), GRACE_S if number == signal.SIGTERM else None)
            except TimeoutError:
                continue


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
