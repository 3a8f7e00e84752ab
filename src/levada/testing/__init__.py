"""A real broker for a test suite, on a free port; after the first of a process, which loads what all need, in milliseconds.

    from levada.testing import broker

    def test_my_service():
        with broker() as levada:
            service = MyService(bootstrap=levada.bootstrap)   # Kafka clients; levada.grpc for native ones

Or let pytest do it: the fixture `levada_broker` gives each test an empty broker of its own.
In-process it runs in a thread with its own event loop; `broker(process=True)` starts `levada up` as a process, which can
be killed and started again on the same data.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from levada.config import BrokerConfig, split_settings
from levada.errors import LevadaError, TimedOut

if TYPE_CHECKING:
    from levada.server import Server

START_TIMEOUT_S = 20.0

#: What a test wants: no waiting for the disk, no waiting for group members.
TEST_SETTINGS: Mapping[str, str] = {"levada.durability": "os"}


class Broker(Protocol):
    """A running broker."""

    data: Path
    settings: Mapping[str, str]
    #: host:port for Kafka clients, for native ones, and for metrics and health; the same after a restart.
    bootstrap: str
    grpc: str
    http: str

    def stop(self) -> None:
        """Close cleanly."""
        ...

    def start(self) -> None:
        """Start again on the same data and port."""
        ...


@overload
def broker(
    settings: Mapping[str, str] | None = None, *, data: Path | None = None, process: Literal[False] = False
) -> AbstractContextManager[ThreadBroker]: ...
@overload
def broker(
    settings: Mapping[str, str] | None = None, *, data: Path | None = None, process: Literal[True]
) -> AbstractContextManager[ProcessBroker]: ...


def broker(
    settings: Mapping[str, str] | None = None, *, data: Path | None = None, process: bool = False
) -> AbstractContextManager[ThreadBroker | ProcessBroker]:
    """Run a broker for the length of a `with`. Without `data` it keeps everything in a directory that goes away.

    `settings` takes broker settings and topic defaults in Kafka's names, e.g. {"num.partitions": "4"}.
    """
    directory = data or Path(tempfile.mkdtemp(prefix="levada-"))
    merged = {**TEST_SETTINGS, **(settings or {})}
    return _running((ProcessBroker if process else ThreadBroker)(directory, merged), remove=data is None)


@contextmanager
def _running(running: ThreadBroker | ProcessBroker, *, remove: bool) -> Iterator[ThreadBroker | ProcessBroker]:
    try:
        running.start()
        yield running
    finally:
        running.stop()
        if remove:
            shutil.rmtree(running.data, ignore_errors=True)


class ThreadBroker:
    """A broker in this process: its own thread, its own event loop."""

    def __init__(self, data: Path, settings: Mapping[str, str]) -> None:
        self.data = data
        self.settings = settings
        self.bootstrap = self.grpc = self.http = "127.0.0.1:0"
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def start(self) -> None:
        started = threading.Event()
        failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(started, failed), name="levada", daemon=True)
        self._thread.start()
        if not started.wait(START_TIMEOUT_S):
            raise TimedOut(f"the broker was not ready after {START_TIMEOUT_S} s")
        if failed:
            raise failed[0]

    def stop(self) -> None:
        if self._thread is None:
            return
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_TIMEOUT_S)
        self._thread = None

    def _run(self, started: threading.Event, failed: list[BaseException]) -> None:
        import uvloop

        _quiet()

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(started))
        except BaseException as error:
            if started.is_set():
                raise
            failed.append(error)
            started.set()

    async def _serve(self, started: threading.Event) -> None:
        from levada.server import Server

        server: Server = Server(_config(self))
        await server.start()
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        places = {name: f"{host}:{port}" for name, (host, port) in server.addresses.items()}
        self.bootstrap, self.grpc, self.http = places["kafka"], places["grpc"], places["http"]
        started.set()
        try:
            await self._stop.wait()
        finally:
            self._loop = self._stop = None
            await server.stop()


def _quiet() -> None:
    """Warnings only, on stderr: a test's output is its own. Whoever has set structlog up is left alone."""
    import structlog

    if structlog.is_configured():
        return

    def to_stderr(*_args: Any) -> structlog.PrintLogger:
        return structlog.PrintLogger(sys.stderr)

    wrapper = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=wrapper, logger_factory=to_stderr, cache_logger_on_first_use=False)


class ProcessBroker:
    """A broker in a process of its own: `levada up`."""

    def __init__(self, data: Path, settings: Mapping[str, str]) -> None:
        self.data = data
        self.settings = settings
        self.bootstrap = self.grpc = self.http = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise LevadaError("the broker is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        """What the broker said on stderr, over all its starts."""
        path = self._log_path
        return path.read_text() if path.exists() else ""

    @property
    def _log_path(self) -> Path:
        return self.data.with_name(f"{self.data.name}.stderr")

    def start(self) -> None:
        command = [sys.executable, "-m", "levada", "up", "--json", "--data", str(self.data)]
        for front, address in (("kafka", self.bootstrap), ("grpc", self.grpc), ("http", self.http)):
            command += [f"--{front}-port", str(_port(address))]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        with self._log_path.open("a") as stderr:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._process = None
            raise LevadaError(f"the broker ended with code {code} before it was ready:\n{self.log}")
        ready = json.loads(line)
        self.bootstrap, self.grpc, self.http = ready["kafka"], ready["grpc"], ready["http"]

    def stop(self) -> None:
        self._end(signal.SIGTERM)
        self._log_path.unlink(missing_ok=True)

    def kill(self) -> None:
        """kill −9: no clean close, as a crash would have it. start() recovers."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _config(broker: Broker) -> BrokerConfig:
    settings, topic = split_settings(broker.settings)
    return BrokerConfig(
        data=broker.data,
        kafka_port=_port(broker.bootstrap),
        grpc_port=_port(broker.grpc),
        http_port=_port(broker.http),
        settings=settings,
        topic=topic,
    )


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
