"""Everything a native front translates for, put together. The server makes it from an engine; fronts only use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from levada.broker.cluster import Cluster
from levada.broker.delivery import Subscriptions
from levada.broker.group_directory import GroupDirectory
from levada.broker.publishing import Gate, Publisher, Spread
from levada.broker.stats import Stats
from levada.broker.streams import Positions, StreamGroups
from levada.broker.topics import Topics
from levada.engine.port import At, Engine


@dataclass(slots=True, kw_only=True)
class Native:
    """The rules, over one engine."""

    engine: Engine
    topics: Topics
    gate: Gate
    spread: Spread
    publisher: Publisher
    groups: StreamGroups
    positions: Positions
    subscriptions: Subscriptions
    directory: GroupDirectory
    cluster: Cluster
    #: A producer id that nobody else has, and its epoch.
    new_producer: Callable[[], Awaitable[tuple[int, int]]]
    #: This broker in figures: Statistician.read.
    stats: Callable[[], Awaitable[Stats]]
    #: Told of what goes out: partition, records, bytes.
    count_out: Callable[[At, int, int], None]
    #: How long a publisher waits for room, where its topic does not say otherwise.
    enqueue_timeout_ms: Callable[[], int]
    #: The clock of sessions and waits, which nobody can set back.
    now_ms: Callable[[], int]

    async def close(self) -> None:
        """End what runs, and write down what is kept for the next start."""
        await self.subscriptions.close()
        self.groups.close(self.now_ms())
        await self.cluster.close()
        await self.spread.close()
