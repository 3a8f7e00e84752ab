"""Levada through its Python client: publish_many and publish, a consumer that commits by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import levada

GROUP = "bench"
READ = 1000


class LevadaWork:
    def __init__(self, address: str) -> None:
        self._client = levada.connect(address)
        self._producer = self._client.producer()
        self._at_once = self._client.producer(linger_ms=0)

    async def create(self, stream: str) -> None:
        self._client.manager.create_topic(stream, partitions=1)

    async def publish_many(self, stream: str, values: Sequence[bytes]) -> None:
        self._producer.publish_many(stream, values)

    async def publish_each(self, stream: str, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.publish(stream, value)

    async def flush(self) -> None:
        self._producer.flush()

    async def publish_one(self, stream: str, value: bytes) -> None:
        self._at_once.publish(stream, value).result()

    async def subscribe(self, stream: str) -> Callable[[], Awaitable[Sequence[bytes]]]:
        consumer = self._client.consumer(stream, group=GROUP, start="earliest")

        async def following() -> Sequence[bytes]:
            records: Sequence[levada.Record] = ()
            while not records:
                records = consumer.poll(max_records=READ, timeout_ms=1000)
            return [record.value for record in records]

        return following

    async def close(self) -> None:
        self._producer.close()
        self._at_once.close()
        self._client.close()
