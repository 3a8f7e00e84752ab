"""The Spark session that pipelines, the runner, jobs and tests share the settings of.

    spark = session("local[4]")

What is different from Spark's defaults, and why:

- executors run this Python, not the system's (PYSPARK_PYTHON), unless the environment names another; on this machine with
  pyspark as pip compiled it;
- state is kept in RocksDB, with changelogs: state larger than memory, and small batches that cost little;
- times are UTC, and parquet keeps them in microseconds;
- as many shuffle partitions as cores on a local master, since 200 tasks over a few thousand rows are all overhead;
- quiet: no console progress bar, no web page, errors only, and those in a file where one is given; nothing is left in the
  working directory;
- Java is in a process group of its own: a signal to ours is for us, and Java ends when we do. (systemd signals more than a group: KillMode=mixed.)
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from levada.errors import InvalidConfig, Unreachable
from levada.spark.java import java
from levada.spark.scratch import scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_STORES: Final = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_MASTER: Final = re.compile(r"local(-cluster)?(\[.*\])?|spark://.+|yarn|k8s://.+")
_MASTER_S: Final = 5.0
#: For its shutdown hooks.
_END_S: Final = 30.0
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.stateStore.providerClass": STATE_STORES["rocksdb"],
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(master: str = "local[*]", app: str = "levada", *, log: Path | None = None, **conf: str) -> SparkSession:
    """A session on this master; the one there is, if one is running. Settings given win.

    NoJava, InvalidConfig, Unreachable, before anything is started. What Java and the executors of a local master write to stderr goes
    to the file `log`, if one is given.
    """
    java()
    check_master(master)
    _name_pythons(local=local_cores(master) is not None)
    from pyspark.sql import SparkSession

    wanted = {**settings(master), **conf}
    if SparkSession.getActiveSession() is None:
        wanted.setdefault("spark.sql.warehouse.dir", str(scratch() / "warehouse"))
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    with _interrupts_later():
        process = _launch(log, {"spark.master": master, "spark.app.name": app, **wanted})
        try:
            return builder.getOrCreate()
        except KeyboardInterrupt:
            _abandon(process)
            raise


def check_name(master: str) -> None:
    """InvalidConfig where Spark knows no such master."""
    if not _MASTER.fullmatch(master):
        raise InvalidConfig(
            f"master {master!r}: must be local, local[N], local[*] or spark://HOST:PORT (Spark's others are yarn and k8s://…)"
        )


def check_master(master: str) -> None:
    """Unreachable where a standalone master does not answer: Spark itself would say so after a minute, somewhere in its log. InvalidConfig
    where Spark knows no such master."""
    check_name(master)
    if not master.startswith("spark://"):
        return
    why = ""
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host, int(port or 7077)), _MASTER_S).close()
        except (OSError, ValueError) as error:
            why = str(error)
        else:
            return
    raise Unreachable(f"Spark's master {master} cannot be reached: {why}. Is it up?")


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the start at once where they would end anything. Who has a handler of his own hears of them when Spark has
    started, and of a second one at once. pyspark puts a handler there, which speaks to Java in the middle of whatever was being said to
    it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    #: The one that is to be heard later.
    came: list[int] = []

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)

    def note(number: int, _frame: Any) -> None:
        if came or before[signal.Signals(number)] is signal.default_int_handler:
            came.clear()
            restore()
            signal.raise_signal(number)
        else:
            came.append(number)

    for one in before:
        signal.signal(one, note)
    try:
        yield
    finally:
        restore()
        for number in came:
            signal.raise_signal(number)


def _launch(log: Path | None, wanted: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Start Java, if none runs yet: with its stderr in a file, if one is given, and out of reach of signals to our process group, or
    it would be gone before we have ended what it does. pyspark offers this to developers alone."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return None
    settings_now = SparkConf().setAll(list(wanted.items()))
    started: dict[str, Any] = {"process_group": 0}
    with ExitStack() as stack:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            started["stderr"] = stack.enter_context(log.open("ab"))
        with _no_orphan():
            gateway = launch_gateway(settings_now, popen_kwargs=started)  # type: ignore[no-untyped-call]
    process: subprocess.Popen[bytes] = gateway.proc
    atexit.register(_end, process, os.getpid())
    SparkContext._ensure_initialized(gateway=gateway)
    return process


@contextmanager
def _no_orphan() -> Iterator[None]:
    """Whatever ends pyspark's wait for Java ends Java: it would not find the file it has to write to, and stay for ever."""
    from pyspark import java_gateway

    module: Any = java_gateway
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    original = module.Popen
    module.Popen = Noted
    try:
        yield
    except BaseException:
        for process in started:
            _kill(process)
        raise
    finally:
        module.Popen = original


def _abandon(process: subprocess.Popen[bytes] | None) -> None:
    """Spark was to start and is not to any more: nothing has begun that it would have to end."""
    from pyspark import SparkContext

    if process is not None:
        _kill(process)
        SparkContext._gateway = SparkContext._jvm = None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With what it has started: Spark's script asks another Java how to start this one."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end(process: subprocess.Popen[bytes], pid: int) -> None:
    """Java ends when its stdin does, and takes a moment: whoever waits for us finds nothing left of it."""
    if os.getpid() != pid:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_END_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        _kill(process)


def settings(master: str) -> dict[str, str]:
    """What a session on this master is started with."""
    found = {**_SETTINGS, "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"}
    if cores := local_cores(master):
        found["spark.sql.shuffle.partitions"] = str(cores)
        found["spark.driver.host"] = found["spark.driver.bindAddress"] = "127.0.0.1"
    return found


def local_cores(master: str) -> int | None:
    """How many tasks run beside one another on local[N]; None where the master is a cluster."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master.replace(" ", ""))
    if found is None:
        return None
    if found[1] == "*":
        return os.cpu_count() or 1
    return int(found[1] or 1)


def _name_pythons(*, local: bool) -> None:
    """Which Python runs tasks, and which plans reads and commits writes, on this machine in any case."""
    if {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"} <= os.environ.keys():
        return
    compiled = _compiled_python()
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", compiled)
    os.environ.setdefault("PYSPARK_PYTHON", compiled if local else sys.executable)


def _compiled_python() -> str:
    """This Python, without Spark's zip of pyspark in its path: it would be compiled anew by every worker that is started.

    Measured, a worker's start takes 0.4 s of CPU instead of 1.3 s; a query starts half a dozen, and Spark gives each 10 s.
    """
    script = scratch() / "python"
    path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    script.write_text(f'#!/bin/sh\nexport PYTHONPATH={path}\nexec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return str(script)
