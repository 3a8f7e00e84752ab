"""A real Apache Kafka, one KRaft node on free ports in a directory of its own: the oracle of the acceptance tests.

Every acceptance test also passes here, so what it asks of Levada is what Kafka does. The benchmark starts it too.
Has the shape of `support.levada.LevadaBroker`, so a test need not know which of the two it talks to.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.jars import jars
from support.ports import free_port

START_TIMEOUT_S = 240.0

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def wait_for_port(port: int, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended with status {process.returncode} before it listened")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise TimeoutError(f"nothing listens on port {port} after {timeout_s} s")


class KafkaBroker:
    """Start, stop, kill and start again on the same data. `settings` are lines of server.properties."""

    name = "kafka"

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, str] | None = None,
        *,
        advertised: str = "",
        heap: str = "512m",
        jvm: Sequence[str] = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    ) -> None:
        self.home = home
        self.port, self.controller_port = free_port(), free_port()
        self.advertised = advertised or f"127.0.0.1:{self.port}"
        self.settings = dict(settings or {})
        self.logs = home / "logs"
        self.output = home / "output.txt"
        self.java = ["java", f"-Xmx{heap}", f"-Xms{heap}", *jvm, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self.java += ["-cp", jars("kafka/libs")]
        self.process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return self.advertised

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    def partition_dir(self, topic: str, partition: int) -> Path:
        return self.logs / f"{topic}-{partition}"

    def format(self) -> None:
        """Write server.properties and, the first time, format the data directory."""
        properties = {
            **PROPERTIES,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.advertised}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.logs),
            **self.settings,
        }
        path = self.home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        if not (self.logs / "meta.properties").exists():
            cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").lstrip("-")
            command = [*self.java, "kafka.tools.StorageTool", "format", "-t", cluster.ljust(22, "A"), "-c", str(path)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"StorageTool could not format: {done.stdout}{done.stderr}")

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it to be ready."""
        self.format()
        with self.output.open("ab") as output:
            command = [*self.java, "kafka.Kafka", str(self.home / "server.properties")]
            self.process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        return self.process

    def start(self) -> KafkaBroker:
        self.process = self.launch()
        try:
            wait_for_port(self.port, self.process, START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def kill(self) -> None:
        """kill −9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> KafkaBroker:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.kill()
