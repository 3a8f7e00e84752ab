"""NATS JetStream through nats-py, on uvloop: a hundred `publish` at once, pull consumers that fetch a thousand.

For a hundred at a time, `publish_async` with its window of 4,000 is slower, and so are windows of a thousand; a push consumer is
as fast as pulling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType, StreamConfig

GROUP = "bench"
#: What one fetch may bring.
READ = 1000
TIMEOUT_S = 60.0


class NatsWork:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._stream: JetStreamContext = client.jetstream(timeout=TIMEOUT_S)

    @classmethod
    async def connect(cls, address: str) -> NatsWork:
        return cls(await nats.connect(f"nats://{address}"))

    async def create(self, stream: str) -> None:
        await self._stream.add_stream(StreamConfig(name=stream, subjects=[stream], storage=StorageType.FILE))

    async def publish_many(self, stream: str, values: Sequence[bytes]) -> None:
        await asyncio.gather(*(self._stream.publish(stream, value) for value in values))

    async def publish_each(self, stream: str, values: Sequence[bytes]) -> None:
        for value in values:
            await self._stream.publish_async(stream, value, wait_stall=TIMEOUT_S)

    async def flush(self) -> None:
        await self._stream.publish_async_completed()

    async def publish_one(self, stream: str, value: bytes) -> None:
        await self._stream.publish(stream, value)

    async def subscribe(self, stream: str) -> Callable[[], Awaitable[Sequence[bytes]]]:
        # Acknowledging the last of a batch acknowledges all before it, as a committed offset does.
        config = ConsumerConfig(
            ack_policy=AckPolicy.ALL, deliver_policy=DeliverPolicy.ALL, max_ack_pending=2 * READ, ack_wait=TIMEOUT_S
        )
        pull = await self._stream.pull_subscribe(stream, durable=GROUP, stream=stream, config=config)
        last: Msg | None = None

        async def following() -> Sequence[bytes]:
            nonlocal last
            if last is not None:
                await last.ack()
            messages = await pull.fetch(READ, timeout=TIMEOUT_S)
            last = messages[-1]
            return [message.data for message in messages]

        return following

    async def close(self) -> None:
        await self._client.close()
