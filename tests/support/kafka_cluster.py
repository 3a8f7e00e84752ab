"""A cluster of real Apache Kafka brokers, of which one can be killed: the first is also the controller and stays."""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from support.kafka import PROPERTIES, KafkaBroker

SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class KafkaNode(KafkaBroker):
    """One broker of a cluster."""

    def __init__(self, home: Path, node_id: int, cluster_id: str, controller: KafkaNode | None) -> None:
        super().__init__(home, SETTINGS, heap="256m")
        self.cluster_id = cluster_id
        client, controllers = f"PLAINTEXT://127.0.0.1:{self.port}", f"CONTROLLER://127.0.0.1:{self.controller_port}"
        voter = controller or self
        self.settings |= {
            "node.id": str(node_id),
            "log.dirs": str(self.logs),
            "controller.quorum.voters": f"1@127.0.0.1:{voter.controller_port}",
            "process.roles": "broker" if controller else "broker,controller",
            "listeners": client if controller else f"{client},{controllers}",
            "advertised.listeners": client,
        }

    def format(self) -> None:
        """The same as a single broker's, under the cluster's id."""
        path = self.home / "server.properties"
        properties = {**PROPERTIES, **self.settings}
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        if not (self.logs / "meta.properties").exists():
            command = [*self.java, "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(path)]
            subprocess.run(command, check=True, capture_output=True)


class KafkaCluster:
    """Three brokers: 1, 2 and 3."""

    def __init__(self, home: Path) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        first = KafkaNode(home / "1", 1, cluster_id, None)
        self.nodes = {1: first, **{n: KafkaNode(home / str(n), n, cluster_id, first) for n in (2, 3)}}
        self.stack = ExitStack()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def __enter__(self) -> Self:
        for node in self.nodes.values():
            self.stack.enter_context(node)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stack.close()
