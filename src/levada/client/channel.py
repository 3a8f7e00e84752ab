"""The connection to a broker: one gRPC channel, its calls, and errors in levada.errors' words."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from levada.client.refusals import is_passing, of_rpc, unreachable
from levada.client.tasks import is_told_to_end
from levada.errors import ConnectionLost, InvalidRequest, LevadaError, Overloaded

if TYPE_CHECKING:
    from google.protobuf.message import Message

STREAM: Final = "levada.v1.StreamService"
CLUSTER: Final = "levada.v1.ClusterService"
#: The metadata by which a client says who it is.
CLIENT_ID: Final = "levada-client-id"

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A broker that restarts is back within a second: look for it often.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Despite its name, how long one try to connect may take.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # Each client has its own connection, and finds out by itself when the broker is gone without a word.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
)


class Channel:
    """Made on the loop it is used on."""

    def __init__(self, address: str, *, timeout_ms: int, client_id: str) -> None:
        if not address.rpartition(":")[2].isdigit() or not address.rpartition(":")[0]:
            raise InvalidRequest(f"{address!r} is not an address: host:port, such as localhost:9094")
        if timeout_ms < 1:
            raise InvalidRequest(f"timeout_ms is {timeout_ms}; it must be at least 1")
        self.address = address
        self.client_id = client_id or f"{socket.gethostname()}-{os.getpid()}"
        self.timeout_s = timeout_ms / 1000
        self._metadata = ((CLIENT_ID, self.client_id),)
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._calls: dict[str, Any] = {}
        self._closed = False

    async def ready(self) -> None:
        """Unreachable as soon as it is clear that nothing answers."""
        channel = self._channel
        state = channel.get_state(try_to_connect=True)
        try:
            async with asyncio.timeout(self.timeout_s):
                while state != grpc.ChannelConnectivity.READY:
                    if state == grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        raise unreachable(self.address)
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError:
            raise unreachable(self.address, f"not within {self.timeout_s:g} s") from None

    async def close(self) -> None:
        self._closed = True
        await self._channel.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(f"the client of {self.address} is closed; connect again")

    async def call(self, method: str, request: Message, answer: type[Any], *, timeout_s: float | None = None) -> Any:
        """One request, one answer. Raises what the broker refused; Unreachable; TimedOut."""
        self._check_open()
        unary = self._calls.get(method)
        if unary is None:
            unary = self._calls[method] = self._channel.unary_unary(
                f"/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
        try:
            return await unary(request, timeout=timeout_s or self.timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise of_rpc(error, self.address) from None
        except asyncio.CancelledError:
            if is_told_to_end():
                raise
            raise ConnectionLost(f"the connection to {self.address} was closed") from None

    def stream(self, method: str, request: type[Any], answer: type[Any]) -> Stream:
        """Many requests and many answers over one call."""
        self._check_open()
        key = f"{method}…"
        opened = self._calls.get(key)
        if opened is None:
            opened = self._calls[key] = self._channel.stream_stream(
                f"/{method}",
                request_serializer=request.SerializeToString,
                response_deserializer=answer.FromString,
            )
        return Stream(opened(metadata=self._metadata), self.address)


class Stream:
    """One call in both directions."""

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self._address = address

    async def write(self, request: Message) -> None:
        try:
            await self._call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
            raise await self._why(error) from None

    async def read(self) -> Any:
        """The next answer; None when the broker has ended the call in order."""
        try:
            answer = await self._call.read()
        except (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
            raise await self._why(error) from None
        if answer is not grpc.aio.EOF:
            return answer
        if (code := await self._call.code()) != grpc.StatusCode.OK:
            raise of_rpc(_Ended(code, await self._call.details(), await self._call.trailing_metadata()), self._address)
        return None

    async def done_writing(self) -> None:
        try:
            await self._call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
            raise await self._why(error) from None

    def cancel(self) -> None:
        self._call.cancel()

    async def _why(self, error: BaseException) -> BaseException:
        """A write says only that the call is over; the call says why."""
        if isinstance(error, asyncio.CancelledError) and is_told_to_end():
            return error
        if isinstance(error, grpc.aio.AioRpcError):
            return of_rpc(error, self._address)
        code = await self._call.code()
        return of_rpc(_Ended(code, await self._call.details(), await self._call.trailing_metadata()), self._address)


class _Ended(grpc.RpcError):
    """How a call ended, in the shape of gRPC's errors."""

    def __init__(self, code: grpc.StatusCode, details: str | None, trailing: Any) -> None:
        super().__init__(details)
        self._code, self._details, self._trailing = code, details, trailing

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str | None:
        return self._details

    def trailing_metadata(self) -> Any:
        return self._trailing


class Backoff:
    """How long to wait before trying again: longer each time, and as long as the broker asked for.

    >>> backoff = Backoff(first_ms=100, most_ms=1_000, jitter=0)
    >>> [backoff.after(LevadaError()) for _ in range(5)]
    [0.1, 0.2, 0.4, 0.8, 1.0]
    >>> backoff.after(Overloaded(retry_after_ms=2_500))
    2.5
    """

    def __init__(self, *, first_ms: int = 50, most_ms: int = 1_000, jitter: float = 0.2) -> None:
        self._first, self._most, self._jitter = first_ms / 1000, most_ms / 1000, jitter
        self._tries = 0

    def after(self, error: LevadaError) -> float:
        pause: float = min(self._first * 2 ** min(self._tries, 16), self._most)
        self._tries += 1
        if isinstance(error, Overloaded):
            pause = max(pause, error.retry_after_ms / 1000)
        return pause * (1 + random.uniform(0, self._jitter))

    def reset(self) -> None:
        self._tries = 0


def texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as the broker reads them.

    >>> texts({"retention.ms": 60_000, "preallocate": False})
    {'retention.ms': '60000', 'preallocate': 'false'}
    """
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}


__all__ = ["CLUSTER", "STREAM", "Backoff", "Channel", "Stream", "is_passing", "texts"]
