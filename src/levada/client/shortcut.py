"""The short way for ready-made batches: Kafka's Produce on a plain socket, beside gRPC.

gRPC wakes a thread of its own on either side of each message and takes 0.15 ms of CPU to send one; for whoever publishes one record
after the other that is most of the time. What Kafka's answers cannot say goes over gRPC as ever: batches for topics with dedup, and
whatever Kafka's port refuses. A batch that was stored all the same is known again there by its sequence.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from levada.client.channel import CLUSTER, STREAM, Channel, Stream
from levada.client.route import Route
from levada.client.routes import Routes
from levada.client.tasks import end
from levada.errors import ConnectionLost, LevadaError
from levada.v1 import cluster_pb2
from levada.v1 import stream_pb2 as pb
from levada.wire import codec, produce
from levada.wire.apis import ApiKey
from levada.wire.client import Client
from levada.wire.codes import ErrorCode
from levada.wire.effects import Post, Send, Steps, Wait
from levada.wire.primitives import Buffer

PUBLISH_STREAM: Final = f"{STREAM}/PublishStream"

#: A port that could not be used is tried again after so long.
_AGAIN_S: Final = 5.0
_CONNECT_MS: Final = 3_000
#: Refusals that do not exclude that the batch is in the log.
_MAY_BE_STORED: Final = frozenset(
    (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
)
#: Kafka's answers do not say how many partitions a topic has: it is asked for so often.
_FRESH_S: Final = 5.0


class Shortcut:
    """The way to the Kafka port of the broker that a channel leads to, looked for in the background. Shared by a client's producers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._link: _Link | None = None
        self._finding: asyncio.Task[None] | None = None
        self._not_before = 0.0

    def link(self) -> _Link | None:
        """The connection, once there is one; until then it is looked for, and gRPC is there."""
        if self._link is None and self._finding is None and time.monotonic() >= self._not_before:
            self._busy_with(self._find())
        return self._link

    def lost(self, link: _Link) -> None:
        """The connection is gone: the next use looks for it again, if the broker is there again."""
        if self._link is link:
            self._link = None
            self._busy_with(link.client.close())

    def _busy_with(self, work: Coroutine[Any, Any, None]) -> None:
        """Looking for a connection or closing one: one at a time, and `close` waits for it."""

        async def one_after_the_other(before: asyncio.Task[None] | None) -> None:
            try:
                if before is not None:
                    await asyncio.wait([before])
                await work
            finally:
                work.close()

        task = self._finding = asyncio.ensure_future(one_after_the_other(self._finding))

        def done(_: object) -> None:
            if self._finding is task:
                self._finding = None

        task.add_done_callback(done)

    async def _find(self) -> None:
        self._not_before = time.monotonic() + _AGAIN_S
        try:
            answer = await self._channel.call(
                f"{CLUSTER}/GetNodes", cluster_pb2.GetNodesRequest(), cluster_pb2.GetNodesResponse
            )
            address = next((node.kafka for node in answer.nodes if node.self), "")
            if not address:
                return
            client = Client(address, client_id=self._channel.client_id, connect_timeout_ms=_CONNECT_MS)
        except LevadaError:
            return
        try:
            await client.connect()
            brokers = (await client.describe_cluster(timeout_ms=_CONNECT_MS)).brokers
            for node in brokers if len(brokers) == 1 else ():
                # Asked at the address it is advertised at. One such as 127.0.0.1 means another machine elsewhere, and
                # another broker may listen there.
                found = await client.request(ApiKey.METADATA, {"topics": []}, node=node, timeout_ms=_CONNECT_MS)
                if found.cluster_id == answer.cluster_id:
                    self._link, self._not_before = _Link(client, node), 0.0
        except LevadaError:
            pass
        finally:
            if self._link is None:
                await client.close()

    async def close(self) -> None:
        if self._finding is not None:
            await end(self._finding)
        link, self._link = self._link, None
        self._not_before = float("inf")
        if link is not None:
            await link.client.close()


class _Link(NamedTuple):
    """A client of the broker's Kafka port, and the broker's id there."""

    client: Client
    node: int

    async def post(self, route: Route, batches: Sequence[pb.Batch], timeout_ms: int) -> Any:
        """Send these batches, one for each partition; returns a ticket for the answer, without waiting for it."""

        def encode(version: int) -> Sequence[Buffer]:
            topic = UUID(bytes=route.topic_id) if version >= produce.TOPIC_IDS else route.topic
            held = [(each.partition, each.data) for each in batches]
            return produce.write_request(version, [(topic, held)], acks=-1, timeout_ms=timeout_ms)

        def decode(version: int, body: memoryview) -> codec.Message:
            return codec.read_response(ApiKey.PRODUCE, version, body)

        return await self.client.run_async(_post(Send(self.node, ApiKey.PRODUCE, encode, decode, timeout_ms)))

    async def answer(self, ticket: Any) -> codec.Message:
        message: codec.Message = await self.client.run_async(_wait(ticket))
        return message


def _post(send: Send) -> Steps[Any]:
    return (yield Post(send))


def _wait(ticket: Any) -> Steps[Any]:
    return (yield Wait(ticket))


class _Flying(NamedTuple):
    """A request on its way, and what its answer comes by; over gRPC the next answer is its."""

    request: pb.PublishRequest
    link: _Link | None
    ticket: Any


class Conversation:
    """Requests and their answers, in one order, each by whichever way is open for it: in the shape of a `Stream`."""

    def __init__(self, channel: Channel, routes: Routes, shortcut: Shortcut, request_timeout_s: float) -> None:
        self._channel = channel
        self._routes = routes
        self._shortcut = shortcut
        self._timeout_ms = int(request_timeout_s * 1000)
        self._stream: Stream | None = None
        self._flying: deque[_Flying] = deque()
        #: Who waits for a request to answer, and who for all to be answered.
        self._arrival: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        #: Why it is over.
        self._over: LevadaError | None = None

    async def write(self, request: pb.PublishRequest) -> None:
        """Send a request, or a part of one."""
        link, route = None, self._routes.known(request.topic)
        if route is not None and route.dedup == "off" and not request.HasField("part"):
            link = self._shortcut.link()
            self._routes.keep_fresh(request.topic, _FRESH_S)
        # Two connections keep no order between them: one is empty before the other is used.
        while self._flying and (self._flying[-1].link is None) != (link is None):
            self._drained = self._waiting()
            await self._drained
        if link is not None and route is not None:
            ticket = await self._posted(link, route, request)
            self._take_off(_Flying(request, link, ticket))
            return
        if not request.HasField("part") or request.part.size:
            self._take_off(_Flying(request, None, None))
        await self._grpc().write(request)

    async def read(self) -> pb.PublishResponse | None:
        """The next answer; None when the broker has ended the conversation in order."""
        while not self._flying:
            self._arrival = self._waiting()
            await self._arrival
        try:
            answer = await self._answer(*self._flying[0])
        except LevadaError as error:
            self._end(error)
            raise
        self._flying.popleft()
        if not self._flying:
            _tell(self._drained)
        return answer

    def cancel(self) -> None:
        self._end(ConnectionLost("the conversation with the broker was ended"))
        if self._stream is not None:
            self._stream.cancel()

    def _end(self, error: LevadaError) -> None:
        self._over = self._over or error
        _tell(self._arrival)
        _tell(self._drained)

    # By either way

    async def _answer(self, request: pb.PublishRequest, link: _Link | None, ticket: Any) -> pb.PublishResponse | None:
        if link is not None:
            return await self._landed(link, request, ticket)
        answer: pb.PublishResponse | None = await self._grpc().read()
        return answer

    async def _posted(self, link: _Link, route: Route, request: pb.PublishRequest) -> Any:
        try:
            return await link.post(route, request.batches, self._timeout_ms)
        except LevadaError:
            self._shortcut.lost(link)
            raise

    async def _landed(self, link: _Link, request: pb.PublishRequest, ticket: Any) -> pb.PublishResponse | None:
        try:
            message = await link.answer(ticket)
        except LevadaError:
            self._shortcut.lost(link)
            raise
        offsets = {
            each.index: each.base_offset
            for topic in message.responses
            for each in topic.partition_responses
            if not each.error_code
        }
        if all(each.partition in offsets for each in request.batches):
            positions = [
                pb.Position(partition=each.partition, offset=offsets[each.partition]) for each in request.batches
            ]
            return pb.PublishResponse(id=request.id, positions=positions)
        codes = {each.error_code for topic in message.responses for each in topic.partition_responses}
        if codes & _MAY_BE_STORED:
            self._shortcut.lost(link)
            raise ConnectionLost(f"topic {request.topic}: the broker could not say whether a batch is stored")
        # Refused. Over gRPC the refusal is the contract's, with all it has to say; or it is none any more.
        self._routes.doubt(request.topic)
        await self._grpc().write(request)
        answer: pb.PublishResponse | None = await self._grpc().read()
        return answer

    def _grpc(self) -> Stream:
        if self._stream is None:
            self._stream = self._channel.stream(PUBLISH_STREAM, pb.PublishRequest, pb.PublishResponse)
        return self._stream

    # Waiting for one another

    def _take_off(self, flying: _Flying) -> None:
        self._flying.append(flying)
        _tell(self._arrival)

    def _waiting(self) -> asyncio.Future[None]:
        if self._over is not None:
            raise self._over
        return asyncio.get_running_loop().create_future()


def _tell(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


__all__ = ["PUBLISH_STREAM", "Conversation", "Shortcut"]
