"""What a handler is given beside its request."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from levada.config import MiB
from levada.engine.histogram import Histogram
from levada.fronts.kafka.budget import Budget

if TYPE_CHECKING:
    from levada.broker.dedup import Dedup
    from levada.broker.groups import GroupCoordinator
    from levada.config import BrokerConfig
    from levada.engine.embedded.engine import EmbeddedEngine
    from levada.engine.settings import LiveSettings
    from levada.fronts.kafka.fetch_session import Session, Sessions


class Kept:
    """Answers that are the same until a topic changes, by kind; of `view.version` alone, and not many."""

    _kinds_max = 32

    def __init__(self) -> None:
        self._version = -1
        self._bodies: dict[object, bytes] = {}

    def get(self, kind: object, version: int) -> bytes | None:
        return self._bodies.get(kind) if version == self._version else None

    def put(self, kind: object, version: int, body: bytes) -> None:
        if version != self._version or len(self._bodies) >= self._kinds_max:
            self._bodies.clear()
        self._version = version
        self._bodies[kind] = body


def _sessions() -> Sessions:
    from levada.fronts.kafka.fetch_session import Sessions  # it needs Node

    return Sessions()


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
    #: What is held in memory for clients.
    budget: Budget = field(default_factory=lambda: Budget(256 * MiB))

    kept: Kept = field(default_factory=Kept)
    sessions: Sessions = field(default_factory=_sessions)
    #: From a Produce to its answer.
    publish_latency: Histogram = field(default_factory=Histogram)
    #: Screens what is written to topics that remember messages.
    dedup: Dedup | None = None

    @property
    def settings(self) -> LiveSettings:
        """What holds now; `config` is what the broker was started with."""
        return self.engine.settings

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Peer(Protocol):
    """Where requests come from: what lasts as long as a connection."""

    #: The fetch session it last used.
    session: Session | None


class Call:
    """One request on one connection."""

    __slots__ = ("api_key", "client_host", "client_id", "correlation_id", "node", "peer", "version")

    def __init__(
        self,
        node: Node,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        client_host: str,
        peer: Peer | None = None,
    ) -> None:
        self.node = node
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = client_host
        self.peer = peer

    def __str__(self) -> str:
        return f"client {self.client_id or '-'} at {self.client_host}"
