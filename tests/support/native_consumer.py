"""A native consumer nobody here wrote a library for: Subscribe over the generated stubs, message by message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc

from levada.records.read import Record, read_all
from levada.v1 import stream_pb2 as pb
from support.rpc import Stubs

#: What a test that would wait for ever waits at most. Nothing is proved by it.
LONG_S = 60.0


class NativeConsumer:
    """One Subscribe call. Notes what comes; grants what it got unless told otherwise, and gives signs of life by that."""

    def __init__(self, client: Stubs, *, grants: bool = True, **fields: Any) -> None:
        self.grants = grants
        self.assigned: list[Any] = []
        self.committed: list[Any] = []
        #: (topic, partition) → what came of it, in the order it came.
        self.got: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        self.count = 0
        self._open = pb.SubscribeRequest.Open(**fields)
        self._call: Any = client.stream.Subscribe()
        self._reading: asyncio.Task[None] | None = None
        self._more = asyncio.Event()
        #: grpcio takes one write at a time: grants and what the test says wait for one another.
        self._turn = asyncio.Lock()
        self.error: grpc.RpcError | None = None

    async def open(self) -> NativeConsumer:
        await self.say(open=self._open)
        return self

    async def say(self, **kind: Any) -> None:
        async with self._turn:
            await self._call.write(pb.SubscribeRequest(**kind))

    async def grant(self, count: int) -> None:
        await self.say(grant=pb.SubscribeRequest.Grant(records=count))

    async def commit(self, offsets: Mapping[tuple[str, int], int], number: int = 1) -> None:
        places = [pb.PartitionOffset(topic=at[0], partition=at[1], offset=offset) for at, offset in offsets.items()]
        await self.say(commit=pb.SubscribeRequest.CommitOffsets(id=number, offsets=places))

    async def say_no_more(self) -> None:
        await self._call.done_writing()

    def read_on(self) -> None:
        """Take what comes, from now on."""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                granted = self._take(message)
                if granted and self.grants:
                    await self.grant(granted)
                self._more.set()
        except grpc.RpcError as error:
            self.error = error
        self._more.set()

    def _take(self, message: Any) -> int:
        """Note it; how many records it counts for."""
        kind = message.WhichOneof("kind")
        if kind == "records":
            records = [(each.offset, each.value) for each in message.records.records]
            self._note(message.records, records)
            return len(records)
        if kind == "batches":
            batches = message.batches
            first = getattr(batches, "from")
            found: Iterable[Record] = read_all(batches.data, from_offset=first)
            self._note(batches, [(each.offset, each.value or b"") for each in found if each.offset < batches.to])
            return int(batches.count)
        getattr(self, kind).append(getattr(message, kind))
        return 0

    def _note(self, message: Any, records: list[tuple[int, bytes]]) -> None:
        self.got.setdefault((message.topic, message.partition), []).extend(records)
        self.count += len(records)

    @property
    def owned(self) -> dict[tuple[str, int], int]:
        """As it was told last."""
        if not self.assigned:
            return {}
        return {(each.topic, each.partition): each.offset for each in self.assigned[-1].partitions}

    async def until(self, look: Callable[[], Any]) -> None:
        """Wait for messages until this is true."""
        async with asyncio.timeout(LONG_S):
            while not look():
                assert self.error is None, self.error
                self._more.clear()
                await self._more.wait()

    async def over(self) -> grpc.RpcError | None:
        """Wait until the call is over; why, if the client did not end it."""
        assert self._reading is not None
        async with asyncio.timeout(LONG_S):
            await self._reading
        return self.error

    async def close(self) -> None:
        """Hang up."""
        self._call.cancel()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
