"""The client: one connection, from which producers, consumers and the manager are made."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Literal, Self

from levada.client import forks
from levada.client.channel import Channel
from levada.client.consumer import AsyncConsumer
from levada.client.manager import AsyncManager
from levada.client.once import Once
from levada.client.producer import AsyncProducer
from levada.client.records import Record
from levada.client.routes import Routes
from levada.client.serializers import BYTES, Serializer
from levada.client.shortcut import Shortcut
from levada.client.wanted import OnChange, Start, Wanted
from levada.errors import InvalidRequest
from levada.v1 import stream_pb2 as pb

_OUT_OF_RANGE = {"fail": pb.FAIL, "earliest": pb.TO_EARLIEST, "latest": pb.TO_LATEST}


class AsyncClient:
    """A connection to a broker.

        async with levada.aio.connect("localhost:9094") as client:
            await client.manager.create_topic("orders", partitions=4)

    Closing it closes the producers and consumers it has made.
    """

    def __init__(self, address: str, *, timeout_ms: int = 30_000, client_id: str = "") -> None:
        self._channel = Channel(address, timeout_ms=timeout_ms, client_id=client_id)
        self._routes = Routes(self._channel)
        self._shortcut = Shortcut(self._channel)
        #: Until they are closed: what a producer was given is sent, also where nobody holds it any more.
        self._made: set[AsyncProducer | AsyncConsumer] = set()
        self._closed = False
        #: Topics, groups, the cluster.
        self.manager = AsyncManager(self._channel)
        forks.watch(self)

    @property
    def address(self) -> str:
        return self._channel.address

    async def ready(self) -> Self:
        """Unreachable, at once, where nothing answers."""
        await self._channel.ready()
        return self

    def producer(
        self,
        *,
        linger_ms: float = 5,
        batch_bytes: int = 64 * 1024,
        acks: Literal["all", "none"] = "all",
        compression: str = "none",
        key: Serializer = BYTES,
        value: Serializer = BYTES,
        buffer_bytes: int = 64 * 1024 * 1024,
        max_block_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
    ) -> AsyncProducer:
        """Make a producer.

        linger_ms: how long a record may wait for others, unless somebody waits for its delivery. batch_bytes: a batch that is
        so large leaves at once. acks: "all" answers when a record is as durable as its topic promises, "none" when it was
        received (and sends nothing again). compression: none, gzip, snappy, lz4, zstd. key, value: how they become bytes.
        buffer_bytes: most that waits for the broker's answer; when it is full, publishing waits up to max_block_ms and then
        raises Overloaded. delivery_timeout_ms: how long a record is sent again and again before its delivery fails.
        """
        self._check_open()
        producer = AsyncProducer(
            self._channel,
            self._routes,
            self._shortcut,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            acks=acks,
            compression=compression,
            key=key,
            value=value,
            buffer_bytes=buffer_bytes,
            max_block_ms=max_block_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            gone=self._made.discard,
        )
        self._made.add(producer)
        return producer

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str = "",
        start: Start = "earliest",
        partitions: Sequence[int] | None = None,
        consumer: int | None = None,
        generation: int = 0,
        key: Serializer = BYTES,
        value: Serializer = BYTES,
        auto_commit: bool = True,
        auto_commit_ms: int = 1_000,
        read_committed: bool = False,
        records_max: int = 1_000,
        bytes_max: int = 1_048_576,
        session_timeout_ms: int = 10_000,
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
    ) -> AsyncConsumer:
        """Make a consumer of one topic or several.

        group: its members share the partitions and go on where the group has committed. Without one, all partitions, or those
        in `partitions`, are read from `start`. consumer, generation: of a fixed group (manager.register_group). start:
        "earliest", "latest", or "none" for an error, where there is no offset to go on from. read_committed: leave out aborted
        transactions and wait for open ones. records_max: most records on their way and not yet handed out.
        auto_commit, auto_commit_ms: commit what is done with by itself, so often, and when partitions go to others.
        session_timeout_ms: a consumer that is not heard of for so long loses its partitions to the others.
        on_assigned, on_revoked: called with the partitions that came or went; what went may still be committed in on_revoked.
        """
        self._check_open()
        made = AsyncConsumer(
            self._channel,
            Wanted(
                topics=[topics] if isinstance(topics, str) else list(topics),
                group=group,
                start=start,
                partitions=partitions,
                consumer=consumer,
                generation=generation,
                key=key,
                value=value,
                auto_commit=auto_commit,
                auto_commit_ms=auto_commit_ms,
                read_committed=read_committed,
                records_max=records_max,
                bytes_max=bytes_max,
                session_timeout_ms=session_timeout_ms,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
            ),
            gone=self._made.discard,
        )
        self._made.add(made)
        return made

    async def read(
        self,
        topic: str,
        partition: int | None = None,
        offset: int = 0,
        *,
        limit: int = 100,
        wait_ms: int = 0,
        bytes_max: int = 1_048_576,
        read_committed: bool = False,
        out_of_range: Literal["fail", "earliest", "latest"] = "fail",
        key: Serializer = BYTES,
        value: Serializer = BYTES,
    ) -> list[Record]:
        """Read some records of a topic, once, outside of any group.

            records = await client.read("orders", partition=0, offset=9, limit=5)

        Without `partition`, of all partitions: each from `offset` on and in order, one partition after the other, and `limit`
        records in all. wait_ms: how long to wait for a record where there is none. OffsetOutOfRange with the range there is, unless out_of_range says where to begin instead.
        """
        self._check_open()
        if out_of_range not in _OUT_OF_RANGE:
            raise InvalidRequest(f"out_of_range is {out_of_range!r}; it must be one of {', '.join(_OUT_OF_RANGE)}")
        request = pb.ReadRequest(
            topic=topic,
            offset=offset,
            limit=limit,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
            read_committed=read_committed,
            out_of_range=_OUT_OF_RANGE[out_of_range],
        )
        once = Once(self._channel, request, key, value)
        return await (once.of_all() if partition is None else once.of(partition))

    async def close(self) -> None:
        """Close what was made here, then the connection. Producers send what they have first. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        async with AsyncExitStack() as stack:
            for each in (self._channel, self._shortcut, self._routes):
                stack.push_async_callback(each.close)
            failures = await asyncio.gather(*(each.close() for each in list(self._made)), return_exceptions=True)
        for failure in failures:
            if isinstance(failure, BaseException):
                raise failure

    def forked(self) -> None:
        self._closed = True
        for each in list(self._made):
            each.forked()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(f"the client of {self.address} is closed; connect again")

    async def __aenter__(self) -> Self:
        try:
            return await self.ready()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Connecting:
    """What `levada.aio.connect` returns: await it, or enter it."""

    def __init__(self, address: str, timeout_ms: int, client_id: str) -> None:
        self._made = (address, timeout_ms, client_id)
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._connect().__await__()

    async def _connect(self) -> AsyncClient:
        address, timeout_ms, client_id = self._made
        self._client = client = AsyncClient(address, timeout_ms=timeout_ms, client_id=client_id)
        return await client.__aenter__()

    async def __aenter__(self) -> AsyncClient:
        return await self._connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()
