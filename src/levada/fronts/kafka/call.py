"""What a handler is given beside its request."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from levada.broker.groups import GroupCoordinator
    from levada.config import BrokerConfig
    from levada.engine.embedded.engine import EmbeddedEngine


@dataclass(slots=True)
class Node:
    """This broker as the Kafka front sees it: the parts its handlers translate for."""

    config: BrokerConfig
    engine: EmbeddedEngine
    groups: GroupCoordinator
    node_id: int
    #: The advertised address, known once the listener is bound.
    host: str = ""
    port: int = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Call:
    """One request on one connection."""

    __slots__ = ("api_key", "client_host", "client_id", "correlation_id", "node", "version")

    def __init__(
        self, node: Node, api_key: int, version: int, correlation_id: int, client_id: str | None, client_host: str
    ) -> None:
        self.node = node
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = client_host

    def __str__(self) -> str:
        return f"client {self.client_id or '-'} at {self.client_host}"
