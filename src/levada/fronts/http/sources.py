"""What is measured, and where it is found. Whoever counts keeps plain numbers; they are read when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Protocol

from levada.broker.dedup import Counts
from levada.broker.publishing.gate import Load
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.histogram import Histogram
from levada.engine.port import At


class Held(Protocol):
    """Bytes held in memory for Kafka clients: of requests that are being received, and of answers not sent yet."""

    taken_bytes: int
    unsent_bytes: int


@dataclass(slots=True, kw_only=True)
class Sources:
    """The parts of a broker that metrics and health are read from."""

    engine: EmbeddedEngine
    node_name: str
    #: What is open, by front.
    connections: Mapping[str, Sized] = field(default_factory=dict)
    held: Held | None = None
    #: From a request to its answer, by front.
    publish_latency: Mapping[str, Histogram] = field(default_factory=dict)
    #: What native publishers brought and is not durable yet.
    waiting: Callable[[], Mapping[At, Load]] = dict
    #: Records that native consumers have and did not grant anew, by group.
    delivered: Callable[[], Mapping[str, int]] = dict
    dedup: Callable[[], Sequence[Counts]] = list
    nodes: Callable[[], Sized] = tuple
    is_closing: Callable[[], bool] = bool
