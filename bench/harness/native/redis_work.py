"""Redis Streams through redis-py with hiredis: pipelines of a hundred XADD, XREADGROUP and XACK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import redis

GROUP, CONSUMER = "bench", "one"
#: What one XREADGROUP may bring.
READ = 1000


class RedisWork:
    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._client = redis.Redis(host=host, port=int(port))

    async def create(self, stream: str) -> None:
        self._client.xgroup_create(stream, GROUP, id="0", mkstream=True)

    async def publish_many(self, stream: str, values: Sequence[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for value in values:
            pipeline.xadd(stream, {"v": value})
        pipeline.execute()

    async def publish_each(self, stream: str, values: Sequence[bytes]) -> None:
        raise NotImplementedError("redis-py has no such call: what is not in a pipeline is waited for")

    async def flush(self) -> None:
        """A pipeline returns when it is acknowledged."""

    async def publish_one(self, stream: str, value: bytes) -> None:
        self._client.xadd(stream, {"v": value})

    async def subscribe(self, stream: str) -> Callable[[], Awaitable[Sequence[bytes]]]:
        read: list[bytes] = []

        async def following() -> Sequence[bytes]:
            nonlocal read
            if read:
                self._client.xack(stream, GROUP, *read)
            answer = None
            while not answer:
                answer = self._client.xreadgroup(GROUP, CONSUMER, {stream: ">"}, count=READ, block=1000)
            [(_, entries)] = answer
            read = [entry for entry, _ in entries]
            return [fields[b"v"] for _, fields in entries]

        return following

    async def close(self) -> None:
        self._client.close()
