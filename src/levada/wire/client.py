"""A Kafka client for asyncio: raw batches in and out, and the calls of `levada.wire.calls`, awaited.

    async with Client("127.0.0.1:9092") as client:
        await client.create_topic("orders", 3)
        appended = await client.produce(("orders", 0), batch)
        fetched = await client.fetch({("orders", 0): appended.base_offset})

Any number of tasks may use one client: requests to one broker share a connection and are pipelined on it.
Errors: BrokerRefused with Kafka's code and name, Unreachable, ConnectionLost, TimedOut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

import levada
from levada.errors import ConnectionLost, LevadaError, MalformedFrame, TimedOut, Unreachable
from levada.wire.calls import Calls
from levada.wire.calls.transactional import TransactionalCalls
from levada.wire.channel import Channel, Offer, handshake
from levada.wire.effects import Effect, Pause, Post, Send, Steps, Wait
from levada.wire.primitives import Buffer
from levada.wire.retry import ClientConfig, ClientSettings

T = TypeVar("T")


class Client(Calls):
    """A connection to a cluster. Settings are those of `ClientConfig`, by name."""

    def __init__(self, bootstrap: str | Sequence[str], **settings: Unpack[ClientSettings]) -> None:
        super().__init__(bootstrap, ClientConfig(**settings))
        #: By address: a broker met as a bootstrap address and by its id is one connection.
        self._connections: dict[tuple[str, int], asyncio.Task[_Connection]] = {}

    async def connect(self) -> Self:
        """Learn who is in the cluster. Unreachable, at once, when none of the bootstrap addresses answers."""
        await self.run_async(self._refresh((), self._retry(self.config.connect_timeout_ms)))
        return self

    def transactional_producer(
        self, transactional_id: str, *, transaction_timeout_ms: int = 60_000
    ) -> TransactionalProducer:
        """A producer that writes in transactions. Call its `init` first."""
        return TransactionalProducer(self, transactional_id, transaction_timeout_ms)

    async def close(self) -> None:
        """Close all connections, for good. What is under way ends with ConnectionLost."""
        self._closed = True
        tasks, self._connections = list(self._connections.values()), {}
        for task in tasks:
            task.cancel()
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        try:
            return await self.connect()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run_async(self, steps: Steps[T]) -> T:
        """Do what the steps ask for until they are done."""
        try:
            effect = next(steps)
            while True:
                self._check_open()
                try:
                    outcome = await self._perform(effect)
                except LevadaError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(outcome)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            steps.close()

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Post(send):
                connection = await self._connection(send.node)
                return await connection.post(send)
            case Wait(ticket):
                return await ticket.answered()
            case Pause(ms):
                return await asyncio.sleep(ms / 1000)

    async def _connection(self, node: int) -> _Connection:
        """The connection to this node, opened where there is none; whoever comes meanwhile waits for the same one."""
        address = self.cluster.address(node)
        task = self._connections.get(address)
        if task is None or (task.done() and (task.cancelled() or task.exception() or task.result().lost)):
            task = self._connections[address] = asyncio.create_task(_open(address, self.config))
        try:
            # A caller that gives up does not take the connection from the others.
            connection = await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and not caller.cancelling():
                # `close` has cancelled the connection, and nobody the caller: he is not to end by it.
                self._check_open()
            raise
        self.cluster.features = connection.offer.features
        return connection


class TransactionalProducer(TransactionalCalls):
    """See `levada.wire.calls.transactional`."""

    client: Client

    async def run_async(self, steps: Steps[T]) -> T:
        return await self.client.run_async(steps)


async def connect(bootstrap: str | Sequence[str], **settings: Unpack[ClientSettings]) -> Client:
    """A client that has met its cluster. The caller closes it."""
    client = Client(bootstrap, **settings)
    try:
        return await client.connect()
    except BaseException:
        await client.close()
        raise


async def _open(address: tuple[str, int], config: ClientConfig) -> _Connection:
    """Connect and say hello."""
    loop = asyncio.get_running_loop()
    place = f"{address[0]}:{address[1]}"
    try:
        async with asyncio.timeout(config.connect_timeout_ms / 1000):
            _, connection = await loop.create_connection(lambda: _Connection(place, config), *address, ssl=config.ssl)
            try:
                await connection.say_hello()
            except BaseException:
                connection.close()
                raise
            return connection
    except TimeoutError:
        raise Unreachable(f"{place} did not answer within {config.connect_timeout_ms} ms") from None
    except (OSError, ConnectionLost) as error:
        raise Unreachable(f"{place} cannot be reached: {error}") from error


class _Ticket:
    """A request on its way."""

    __slots__ = ("_answer", "_connection", "_deadline", "_send", "_version")

    def __init__(
        self, connection: _Connection, send: Send, version: int, answer: asyncio.Future[memoryview] | None
    ) -> None:
        self._connection = connection
        self._send = send
        self._version = version
        self._answer = answer
        self._deadline = asyncio.get_running_loop().time() + send.timeout_ms / 1000

    async def answered(self) -> Any:
        """The decoded answer; None where there is to be none."""
        if self._answer is None:
            return None
        try:
            async with asyncio.timeout_at(self._deadline):
                body = await self._answer
        except TimeoutError:
            self._connection.give_up(self._send.timeout_ms)
            raise TimedOut(f"{self._connection.place} did not answer within {self._send.timeout_ms} ms") from None
        return self._send.decode(self._version, body)


class _Connection(asyncio.Protocol):
    """One connection: bytes to a `Channel` and back."""

    offer: Offer

    def __init__(self, place: str, config: ClientConfig) -> None:
        self.place = place
        self.lost = False
        self._channel = Channel(config.client_id)
        self._answers: dict[int, asyncio.Future[memoryview]] = {}
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._writable: asyncio.Future[None] | None = None

    async def say_hello(self) -> None:
        steps = handshake(levada.__version__)
        try:
            asked = next(steps)
            while True:
                asked = steps.send(await self._ask(asked[0], asked[1], [asked[2]]))
        except StopIteration as done:
            self.offer = done.value

    async def post(self, send: Send) -> _Ticket:
        """Write the request."""
        version = self.offer.best(send.api_key, send.min_version, send.max_version)
        body = send.encode(version)
        if self._writable is not None:
            await self._until_writable(send.timeout_ms)
        if send.answered:
            return _Ticket(self, send, version, self._ask(send.api_key, version, body))
        self._write(self._channel.ask(send.api_key, version, body, answered=False)[1])
        return _Ticket(self, send, version, None)

    async def _until_writable(self, timeout_ms: int) -> None:
        """Until the broker has read enough of what was written before. TimedOut, and the connection is given up."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._writable is not None:
                    # It is everybody's who waits to write: who gives up takes it from nobody.
                    await asyncio.shield(self._writable)
        except TimeoutError:
            self.give_up(timeout_ms)
            raise TimedOut(f"{self.place} did not read what was sent within {timeout_ms} ms") from None

    def give_up(self, waited_ms: int) -> None:
        """A request went unanswered. Answers come in order, so nothing behind it can be trusted to come either."""
        self._fail(ConnectionLost(f"the connection to {self.place} was given up: no answer within {waited_ms} ms"))

    def _ask(self, api_key: int, version: int, body: Sequence[Buffer]) -> asyncio.Future[memoryview]:
        correlation_id, parts = self._channel.ask(api_key, version, body)
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        # Whoever asked may have given up by then, and nobody looks at the outcome.
        answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        self._answers[correlation_id] = answer
        self._write(parts)
        return answer

    def _write(self, parts: Sequence[Buffer]) -> None:
        if self.lost:
            raise ConnectionLost(f"the connection to {self.place} was lost")
        self._transport.writelines(parts)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases

    def data_received(self, data: bytes) -> None:
        try:
            for correlation_id, body in self._channel.feed(data):
                answer = self._answers.pop(correlation_id)
                if not answer.done():
                    answer.set_result(body)
        except MalformedFrame as error:
            self._fail(ConnectionLost(f"{self.place} does not speak Kafka's protocol: {error}"))

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None:
            writable.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        reason = f": {error}" if error else ""
        self._fail(ConnectionLost(f"the connection to {self.place} was lost{reason}"))

    def close(self) -> None:
        self._fail(ConnectionLost(f"the connection to {self.place} was closed"))

    def _fail(self, error: LevadaError) -> None:
        """The connection is of no more use: say so to everybody who waits on it."""
        self.lost = True
        self._transport.abort()
        self.resume_writing()
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(error)
