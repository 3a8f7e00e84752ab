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
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from levada.spark.java import java
from levada.spark.scratch import scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_STORES: Final = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
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
    """A session on this master; the one there is, if one is running. Settings given win. NoJava, before anything is started.

    What Java and the executors of a local master write to stderr goes to the file `log`, if one is given.
    """
    java()
    _name_pythons(local=local_cores(master) is not None)
    from pyspark.sql import SparkSession

    wanted = {**settings(master), **conf}
    if SparkSession.getActiveSession() is None:
        wanted.setdefault("spark.sql.warehouse.dir", str(scratch() / "warehouse"))
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    with _interrupts_later():
        _launch(log, {"spark.master": master, "spark.app.name": app, **wanted})
        return builder.getOrCreate()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C and SIGTERM are heard when Spark has started, by who heard them before; a second one at once. pyspark puts a handler of its
    own there, which speaks to Java in the middle of whatever was being said to it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    came: list[int] = []

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)

    def note(number: int, _frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            restore()
            signal.raise_signal(number)

    for one in before:
        signal.signal(one, note)
    try:
        yield
    finally:
        restore()
        if len(came) == 1:
            signal.raise_signal(came[0])


def _launch(log: Path | None, wanted: Mapping[str, str]) -> None:
    """Start Java, if none runs yet: with its stderr in a file, if one is given, and out of reach of signals to our process group, or
    it would be gone before we have ended what it does. pyspark offers this to developers alone."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    settings_now = SparkConf().setAll(list(wanted.items()))
    started: dict[str, Any] = {"process_group": 0}
    with ExitStack() as stack:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            started["stderr"] = stack.enter_context(log.open("ab"))
        gateway = launch_gateway(settings_now, popen_kwargs=started)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    atexit.register(_end, gateway.proc, os.getpid())


def _end(process: subprocess.Popen[bytes], pid: int) -> None:
    """Java ends when its stdin does, and takes a moment: whoever waits for us finds nothing left of it."""
    if os.getpid() != pid:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()


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
