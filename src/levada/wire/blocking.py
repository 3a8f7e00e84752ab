"""The Kafka client of `levada.wire.client` for code that does not await: the same calls, on plain sockets.

    with BlockingClient("127.0.0.1:9092") as client:
        appended = client.produce(("orders", 0), batch)

For one thread at a time; a forked process needs its own. Requests of one call go out together and are answered together, and
`produce_stream` keeps several in flight.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, Unpack

import levada
from levada.errors import ConnectionLost, LevadaError, MalformedFrame, TimedOut, Unreachable
from levada.wire.calls import Calls
from levada.wire.calls.transactional import TransactionalCalls
from levada.wire.channel import Channel, Offer, handshake
from levada.wire.effects import Effect, Pause, Post, Send, Steps, Wait
from levada.wire.primitives import Buffer
from levada.wire.retry import ClientConfig, ClientSettings

T = TypeVar("T")

_READ_BYTES = 1 << 18
_LAST_LOOK_S = 0.001


class BlockingClient(Calls):
    """A connection to a cluster. Settings are those of `ClientConfig`, by name."""

    def __init__(self, bootstrap: str | Sequence[str], **settings: Unpack[ClientSettings]) -> None:
        super().__init__(bootstrap, ClientConfig(**settings))
        #: By address: a broker met as a bootstrap address and by its id is one connection.
        self._connections: dict[tuple[str, int], _Connection] = {}

    def connect(self) -> Self:
        """Learn who is in the cluster. Unreachable, at once, when none of the bootstrap addresses answers."""
        self.run_blocking(self._refresh((), self._retry(self.config.connect_timeout_ms)))
        return self

    def transactional_producer(
        self, transactional_id: str, *, transaction_timeout_ms: int = 60_000
    ) -> BlockingTransactionalProducer:
        """A producer that writes in transactions. Call its `init` first."""
        return BlockingTransactionalProducer(self, transactional_id, transaction_timeout_ms)

    def close(self) -> None:
        """Close all connections, for good."""
        self._closed = True
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close("closed")

    def __enter__(self) -> Self:
        try:
            return self.connect()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run_blocking(self, steps: Steps[T]) -> T:
        """Do what the steps ask for until they are done."""
        try:
            effect = next(steps)
            while True:
                self._check_open()
                try:
                    outcome = self._perform(effect)
                except LevadaError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(outcome)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            steps.close()

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Post(send):
                connection = self._connection(send.node)
                return _Ticket(connection, *connection.post(send), send, time.monotonic() + send.timeout_ms / 1000)
            case Wait(ticket):
                return ticket.answered()
            case Pause(ms):
                return time.sleep(ms / 1000)

    def _connection(self, node: int) -> _Connection:
        address = self.cluster.address(node)
        connection = self._connections.get(address)
        if connection is None or connection.lost:
            connection = self._connections[address] = _Connection(address, self.config)
        self.cluster.features = connection.offer.features
        return connection


class BlockingTransactionalProducer(TransactionalCalls):
    """See `levada.wire.calls.transactional`."""

    client: BlockingClient

    def run_blocking(self, steps: Steps[T]) -> T:
        return self.client.run_blocking(steps)


def connect(bootstrap: str | Sequence[str], **settings: Unpack[ClientSettings]) -> BlockingClient:
    """A client that has met its cluster. The caller closes it."""
    client = BlockingClient(bootstrap, **settings)
    try:
        return client.connect()
    except BaseException:
        client.close()
        raise


class _Ticket(NamedTuple):
    """A request on its way."""

    connection: _Connection
    correlation_id: int | None
    version: int
    send: Send
    deadline: float

    def answered(self) -> Any:
        """The decoded answer; None where there is to be none."""
        if self.correlation_id is None:
            return None
        body = self.connection.answer(self.correlation_id, self.deadline, self.send.timeout_ms)
        return self.send.decode(self.version, body)


class _Connection:
    """One connection: bytes to a `Channel` and back."""

    offer: Offer

    def __init__(self, address: tuple[str, int], config: ClientConfig) -> None:
        """Connect and say hello."""
        self.place = f"{address[0]}:{address[1]}"
        self.lost = ""
        self._channel = Channel(config.client_id)
        self._answers: dict[int, memoryview] = {}
        try:
            self._socket = socket.create_connection(address, config.connect_timeout_ms / 1000)
        except OSError as error:
            raise Unreachable(f"{self.place} cannot be reached: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if config.ssl is not None:
                self._socket = config.ssl.wrap_socket(self._socket, server_hostname=address[0])
            self._say_hello(config.connect_timeout_ms)
        except (OSError, ConnectionLost, TimedOut) as error:
            self._socket.close()
            raise Unreachable(f"{self.place} cannot be reached: {error}") from error
        except BaseException:
            self._socket.close()
            raise

    def _say_hello(self, timeout_ms: int) -> None:
        steps = handshake(levada.__version__)
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            api_key, version, body = next(steps)
            while True:
                correlation_id, parts = self._channel.ask(api_key, version, [body])
                self._write(parts, timeout_ms)
                api_key, version, body = steps.send(self.answer(correlation_id, deadline, timeout_ms))
        except StopIteration as done:
            self.offer = done.value

    def post(self, send: Send) -> tuple[int | None, int]:
        """Write the request: (the id its answer will have, the version it was written in)."""
        version = self.offer.best(send.api_key, send.min_version, send.max_version)
        correlation_id, parts = self._channel.ask(send.api_key, version, send.encode(version), answered=send.answered)
        self._write(parts, send.timeout_ms)
        return correlation_id if send.answered else None, version

    def answer(self, correlation_id: int, deadline: float, timeout_ms: int) -> memoryview:
        """The body of this answer, whatever is answered before it."""
        while correlation_id not in self._answers:
            if self.lost:
                raise ConnectionLost(f"the connection to {self.place} was {self.lost}")
            try:
                self._answers.update(self._received(deadline - time.monotonic(), timeout_ms))
            except MalformedFrame as error:
                raise self.close(f"given up, it does not speak Kafka's protocol: {error}") from error
            except LevadaError:
                raise
            except BaseException:  # Ctrl-C: part of an answer may be read
                self.close("interrupted")
                raise
        return self._answers.pop(correlation_id)

    def _received(self, timeout_s: float, timeout_ms: int) -> Iterator[tuple[int, memoryview]]:
        """The answers that are whole after the next read: (correlation id, body)."""
        room = self._channel.room()
        try:
            if timeout_s <= 0:
                raise TimeoutError
            self._socket.settimeout(timeout_s)
            data = self._socket.recv(_READ_BYTES) if room is None else b""
            count = len(data) if room is None else self._socket.recv_into(room)
        except TimeoutError:
            # Answers come in order, so nothing behind this one can be trusted to come either.
            self.close(f"given up: no answer within {timeout_ms} ms")
            raise TimedOut(f"{self.place} did not answer within {timeout_ms} ms") from None
        except OSError as error:
            raise self.close(f"lost: {error}") from error
        if not count:
            raise self.close("lost: the broker closed it")
        return self._channel.feed(data) if room is None else self._channel.filled(count)

    def _write(self, parts: Sequence[Buffer], timeout_ms: int) -> None:
        try:
            self._socket.settimeout(timeout_ms / 1000)
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise self.close(f"lost: {error}") from error
        except BaseException:  # Ctrl-C: half a request may be written
            self.close("interrupted")
            raise

    def close(self, reason: str) -> ConnectionLost:
        """The connection is of no more use."""
        self.lost = reason
        self._socket.close()
        return ConnectionLost(f"the connection to {self.place} was {reason}")
