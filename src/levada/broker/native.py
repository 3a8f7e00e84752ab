"""Everything a native front translates for, put together. The server makes it from an engine; fronts only use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from levada.broker.publishing import Gate, Publisher, Spread
from levada.broker.topics import Topics
from levada.engine.port import Engine, TopicView


@dataclass(slots=True, kw_only=True)
class Native:
    """The rules, over one engine."""

    engine: Engine
    view: TopicView
    topics: Topics
    spread: Spread
    gate: Gate
    publisher: Publisher
    #: A producer id that nobody else has, and its epoch.
    new_producer: Callable[[], Awaitable[tuple[int, int]]]
    #: The clock of sessions and waits, which nobody can set back.
    now_ms: Callable[[], int]

    async def close(self) -> None:
        """Write down what is kept for the next start."""
        await self.spread.close()
