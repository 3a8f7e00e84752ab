"""Reading once, outside of any group: of one partition, or of all that a topic has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from levada.client.channel import STREAM, Channel
from levada.client.records import Record
from levada.client.serializers import Serializer
from levada.client.tasks import end
from levada.v1 import stream_pb2 as pb


class Once:
    """One `client.read`: `request` is what is asked of each partition, but for its number and how much is left to read."""

    def __init__(self, channel: Channel, request: pb.ReadRequest, key: Serializer, value: Serializer) -> None:
        self._channel = channel
        self._request = request
        self._key = key
        self._value = value

    async def of(self, partition: int) -> list[Record]:
        return await self._read(partition, self._request.limit, self._request.wait_ms)

    async def of_all(self) -> list[Record]:
        """Partition after partition, until the limit is reached. Where none has anything: what the first has that gets something."""
        described = await self._channel.call(
            f"{STREAM}/DescribeTopic", pb.DescribeTopicRequest(name=self._request.topic), pb.DescribeTopicResponse
        )
        partitions = sorted(each.index for each in described.partitions)
        found: list[Record] = []
        for partition in partitions:
            found += await self._read(partition, self._request.limit - len(found), 0)
            if len(found) >= self._request.limit:
                break
        if found or not self._request.wait_ms:
            return found
        return await self._first(partitions)

    async def _first(self, partitions: Sequence[int]) -> list[Record]:
        reading = [asyncio.ensure_future(self.of(partition)) for partition in partitions]
        try:
            for each in asyncio.as_completed(reading):
                if found := await each:
                    return found
            return []
        finally:
            await end(*reading)

    async def _read(self, partition: int, limit: int, wait_ms: int) -> list[Record]:
        request = pb.ReadRequest()
        request.CopyFrom(self._request)
        request.partition, request.limit, request.wait_ms = partition, limit, wait_ms
        answer = await self._channel.call(
            f"{STREAM}/Read", request, pb.ReadResponse, timeout_s=self._channel.timeout_s + wait_ms / 1000
        )
        return [
            Record(
                request.topic,
                partition,
                each.offset,
                each.timestamp_ms,
                self._key.loads(each.key) if each.HasField("key") else None,
                self._value.loads(each.value) if each.HasField("value") else None,
                tuple((header.key, header.value if header.HasField("value") else None) for header in each.headers),
            )
            for each in answer.records
        ]
