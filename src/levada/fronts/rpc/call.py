"""One call of a client, and all that are in flight.

A handler returns an answer or raises a meaning; what becomes of that on the wire is decided here, once for all of them. When
the broker closes, calls in flight have the grace time to be answered, those that wait for something to happen are told at
once, and whoever calls from then on is told too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from grpc.aio import AbortError

from levada.config import MiB
from levada.errors import InvalidRequest, LevadaError, ShuttingDown
from levada.fronts.rpc import notice
from levada.fronts.rpc.memory import Memory, stalled
from levada.fronts.rpc.status import DETAILS, details_of, message_of, status_of

#: The metadata by which a client says who it is, for the log.
CLIENT_ID: Final = "levada-client-id"
#: Of every message, as gRPC's own clients expect it. A larger one is refused by gRPC, by its length alone.
MESSAGE_BYTES_MAX: Final = 4 * MiB
#: Calls that bring one such request and are read at the same time, and how long the others wait for their turn.
READS_MAX: Final = 8
_TURN_TIMEOUT_MS: Final = 10_000
#: One that has begun and does not get on makes room for others.
_READ_TIMEOUT_S: Final = 10.0
#: How long those that were cut off may take to say so.
_LAST_WORDS_S: Final = 1.0


class Call:
    """One call in flight."""

    __slots__ = ("_close", "_cut", "_parse", "_task", "calls", "context", "method")

    def __init__(
        self,
        calls: Calls,
        method: str,
        context: grpc.aio.ServicerContext[Any, Any],
        parse: Callable[[bytes | bytearray], Any],
    ) -> None:
        self.calls = calls
        self.method = method
        self.context = context
        self._parse = parse
        self._task = asyncio.current_task()
        self._close: Callable[[], object] | None = None
        self._cut = False

    def __str__(self) -> str:
        return f"client {self.client_id or '-'} at {self.peer}"

    @property
    def client_id(self) -> str:
        """What the client calls itself; empty where it does not."""
        for name, value in self.context.invocation_metadata() or ():
            if name == CLIENT_ID:
                return value if isinstance(value, str) else value.decode(errors="replace")
        return ""

    @property
    def peer(self) -> str:
        """host:port"""
        return unquote(self.context.peer()).partition(":")[2]

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0].strip("[]")

    def parse(self, request: bytes | bytearray) -> Any:
        """The request, which came as bytes. InvalidRequest."""
        try:
            return self._parse(request)
        except DecodeError as reason:
            raise InvalidRequest(f"the request of {self.method} cannot be read: {reason}") from None

    async def read_one(self) -> Any:
        """The request of a call that brings one. InvalidRequest; Overloaded and TimedOut where reading it takes too long."""
        reads = self.calls.reads
        await reads.begin_read(_TURN_TIMEOUT_MS)
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                request = await self.read()
        except TimeoutError:
            raise stalled(_READ_TIMEOUT_S) from None
        finally:
            reads.end_read()
        if request is None:
            raise InvalidRequest("there is no request")
        return request

    async def read(self) -> Any:
        """The next request; None after the last. InvalidRequest."""
        return (await self.read_sized())[0]

    async def read_sized(self) -> tuple[Any, int]:
        """The same, and how many bytes it had."""
        request = await self.context.read()
        return (None, 0) if request is grpc.aio.EOF else (self.parse(request), len(request))

    def when_closing(self, close: Callable[[], object]) -> None:
        """Call this once when the broker closes, instead of waiting for the call to end by itself."""
        self._close = close

    def cut(self) -> None:
        """End the call where it waits; the client is told that the broker closes."""
        self._cut = True
        if self._task is not None:
            self._task.cancel()

    def closing(self) -> None:
        if self._close is not None:
            self._close()

    async def refuse(self, error: BaseException) -> NoReturn:
        """End the call with the error's status. What is not a refusal of ours goes on as it is."""
        if isinstance(error, asyncio.CancelledError) and self._cut:
            error = ShuttingDown()
        elif isinstance(error, LevadaError):
            notice.refused(self, error)
        elif isinstance(error, AbortError) or not isinstance(error, Exception):
            raise error
        else:
            notice.failed(self, error)
        await self.context.abort(status_of(error), message_of(error), ((DETAILS, details_of(error)),))
        raise AssertionError("abort() does not return")


class Calls:
    """All calls in flight."""

    def __init__(self) -> None:
        self.closing = False
        #: What requests to publish take.
        self.memory = Memory()
        #: All other calls that bring one request: how many are read at a time.
        self.reads = Memory(reads_max=READS_MAX)
        self._open: set[Call] = set()
        self._emptied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, call: Call) -> None:
        """ShuttingDown from the moment the broker closes."""
        if self.closing:
            raise ShuttingDown
        self._open.add(call)
        self._emptied.clear()

    def end(self, call: Call) -> None:
        self._open.discard(call)
        if not self._open:
            self._emptied.set()

    async def drain(self, grace_s: float) -> None:
        """Take no more; have those in flight answered within the grace time, and cut the rest off."""
        self.closing = True
        for call in tuple(self._open):
            call.closing()
        await self._until_empty(grace_s)
        for call in tuple(self._open):
            call.cut()
        await self._until_empty(_LAST_WORDS_S)

    async def _until_empty(self, timeout_s: float) -> None:
        if self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._emptied.wait()
