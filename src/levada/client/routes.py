"""The topics a client has met, and how their records are routed. Renewed when an answer puts one in doubt, and from time to time."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from levada.client.channel import STREAM, Channel
from levada.client.route import Route
from levada.client.tasks import end, is_told_to_end
from levada.errors import ConnectionLost, UnknownTopic
from levada.v1 import stream_pb2 as pb

#: A setting that was altered is noticed after so long at the latest; that a topic has grown, with the next answer.
MAX_AGE_S: Final = 30.0


class Routes:
    """Shared by all producers of a client. `known` may be asked from any thread."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._routes: dict[str, Route] = {}
        self._asked: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[Route]] = {}

    def known(self, topic: str) -> Route | None:
        """What is known already."""
        return self._routes.get(topic)

    async def get(self, topic: str) -> Route:
        """What is known, or what the broker says. UnknownTopic."""
        route = self._routes.get(topic)
        if route is None:
            return await self.renew(topic)
        self.keep_fresh(topic)
        return route

    def keep_fresh(self, topic: str, age_s: float = MAX_AGE_S) -> None:
        """Ask again about what was learned too long ago. For the loop's own thread."""
        if time.monotonic() - self._asked.get(topic, 0.0) > age_s:
            self.doubt(topic)

    async def renew(self, topic: str) -> Route:
        """Ask the broker again; those who ask together ask once."""
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.ensure_future(self._ask(topic))
            task.add_done_callback(lambda done: self._done(topic, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if is_told_to_end():
                raise
            raise ConnectionLost(f"topic {topic}: the client was closed while the broker was asked about it") from None

    def doubt(self, topic: str) -> None:
        """Something may have changed: ask, and go on with what is known meanwhile. For the loop's own thread."""
        if topic not in self._asking:
            self._asked[topic] = time.monotonic()
            task = self._asking[topic] = asyncio.ensure_future(self._ask(topic))
            task.add_done_callback(lambda done: self._done(topic, done))

    def has_partitions(self, topic: str, partitions: int) -> None:
        """The broker said so beside an answer: where another number is known, ask. An older one says 0. For the loop's own thread."""
        route = self._routes.get(topic)
        if route is not None and partitions and partitions != route.partitions:
            self.doubt(topic)

    async def _ask(self, topic: str) -> Route:
        answer = await self._channel.call(
            f"{STREAM}/DescribeTopic", pb.DescribeTopicRequest(name=topic), pb.DescribeTopicResponse
        )
        route = Route.of(answer.topic)
        before = self._routes.get(topic)
        if before is None or not before.same_as(route):
            self._routes[topic] = route
        self._asked[topic] = time.monotonic()
        return self._routes[topic]

    def _done(self, topic: str, task: asyncio.Task[Route]) -> None:
        self._asking.pop(topic, None)
        if not task.cancelled() and isinstance(task.exception(), UnknownTopic):
            self._routes.pop(topic, None)

    async def close(self) -> None:
        await end(*self._asking.values())
