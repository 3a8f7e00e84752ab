"""A real Spark standalone cluster from the pyspark wheel: one master and two workers, each a JVM of its own, on free ports of 127.0.0.1.

    with SparkCluster(tmp_path / "cluster") as cluster, SparkProcess(tmp_path / "driver", cluster.master, cluster.conf) as spark:
        …
        cluster.kill_executor()

Logs and scratch lie in its directory. Nothing outlives the `with`, nor the process that entered it, however that ended.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psutil

from support.guard import Daemon
from support.jars import need
from support.wait import wait_until

START_TIMEOUT_S = 180.0
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """Each worker offers `cores` cores. An executor takes one, so an application has as many executors as there are cores."""

    def __init__(self, home: Path, *, workers: int = 2, cores: int = 1) -> None:
        self.home, self.wanted_workers, self.cores = home, workers, cores
        self.master = ""
        self.workers: list[Daemon] = []
        self._daemons: list[Daemon] = []
        (home / "logs").mkdir(parents=True)

    @property
    def conf(self) -> Mapping[str, str]:
        """What a driver has to say so that its executors fit and find it."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
        }

    def start(self) -> Self:
        need("Java", bool(shutil.which("java")))
        try:
            master = self._daemon("master", MASTER)
            self.master = self._said(master, r"Starting Spark master at (spark://\S+)")
            for _ in range(self.wanted_workers):
                self.workers.append(self.start_worker())
            for worker in self.workers:
                self._said(worker, r"(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise
        return self

    def start_worker(self) -> Daemon:
        """Another worker; it serves once it has registered."""
        name = f"worker-{len(self._daemons)}"
        offer = ["--cores", str(self.cores), "--memory", f"{self.cores}g", "--work-dir", str(self.home / name)]
        return self._daemon(name, WORKER, *offer, self.master)

    def _daemon(self, name: str, main_class: str, *arguments: str) -> Daemon:
        command = [
            str(spark_home() / "bin" / "spark-class"),
            main_class,
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--webui-port",
            "0",
            *arguments,
        ]
        daemon = Daemon(command, self.home / "logs" / f"{name}.txt", self._environment())
        self._daemons.append(daemon)
        return daemon

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false"
        return {
            **kept,
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.home / "scratch"),
            "SPARK_CONF_DIR": str(self.home / "conf"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": options,
        }

    def _said(self, daemon: Daemon, pattern: str) -> str:
        def look() -> re.Match[str] | None:
            if not daemon.running:
                raise RuntimeError(f"a daemon ended before it was ready:\n{daemon.text()[-3000:]}")
            return re.search(pattern, daemon.text())

        return str(wait_until(look, START_TIMEOUT_S, lambda: f"{pattern} in\n{daemon.text()[-3000:]}")[1])

    def executors(self) -> list[int]:
        """The process ids of the executors that run now."""
        everybody = [pid for worker in self.workers for pid in worker.session()]
        return [pid for pid in everybody if _runs(pid, EXECUTOR)]

    def kill_executor(self) -> int:
        """kill −9 of any executor; the cluster starts another. Gives its process id."""
        pid = random.choice(wait_until(self.executors, START_TIMEOUT_S, "an executor to kill"))
        os.kill(pid, signal.SIGKILL)
        return pid

    def stop(self) -> None:
        daemons, self._daemons, self.workers = self._daemons, [], []
        for daemon in reversed(daemons):
            daemon.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()


def spark_home() -> Path:
    """Where the wheel is; the scripts it puts beside Python find it only with Python's directory on the path."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def _runs(pid: int, program: str) -> bool:
    try:
        return any(program in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
