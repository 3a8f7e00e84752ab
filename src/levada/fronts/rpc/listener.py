"""The gRPC port: the services of levada.v1, with health (grpc.health.v1) and reflection."""

from __future__ import annotations

import errno
import socket
from typing import Any, Final

import grpc.aio

from levada.broker.native import Native
from levada.config import KiB
from levada.errors import CannotListen
from levada.fronts.rpc.call import MESSAGE_BYTES_MAX, Calls
from levada.fronts.rpc.services import generic_handlers, service_names

#: Most calls at once; whoever comes then is told RESOURCE_EXHAUSTED.
CALLS_MAX: Final = 10_000
#: What is left to do once no call of ours is in flight: tell watchers of our health, close sockets.
_CLOSE_S: Final = 0.1

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    # What gRPC takes in of a stream that nobody reads from: without a limit it is by what the connection could carry, some MiB each.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 256 * KiB),
    # One port, one broker: a second one is refused instead of getting half of the connections.
    ("grpc.so_reuseport", 0),
    # A peer that is gone without a word is noticed within 80 s; clients may ask as often as every 10 s.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    # gRPC's clients also ping to measure the connection, and one that waits for room is answered nothing meanwhile: counted as abuse,
    # it would be cut off (too_many_pings) for doing as it was told.
    ("grpc.http2.max_ping_strikes", 0),
)


class Listener:
    """Serves native clients on one port."""

    def __init__(self, native: Native, host: str, port: int) -> None:
        self._native = native
        self._host = host
        self._port = port
        #: Those in flight.
        self.calls = Calls()
        self._server: grpc.aio.Server | None = None
        self._health: Any = None

    async def start(self) -> None:
        """Bind and accept. CannotListen."""
        place = f"{_bracketed(self._host)}:{self._port}"
        try:
            _try(self._host, self._port)
        except OSError as error:
            raise CannotListen(f"cannot listen on {place} for gRPC: {_reason(error)}") from error
        self._server = server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        server.add_generic_rpc_handlers(generic_handlers(self._native, self.calls))
        self._health = await _add_health(server)
        _add_reflection(server)
        try:
            self._port = server.add_insecure_port(place)
        except RuntimeError as error:
            raise CannotListen(f"cannot listen on {place} for gRPC: {error}") from error
        await server.start()

    @property
    def address(self) -> tuple[str, int]:
        return self._host or "127.0.0.1", self._port

    async def stop(self, grace_s: float) -> None:
        """Answer what is in flight within the grace time, tell the others that the broker closes, and close."""
        if self._server is None:
            return
        await self._health.enter_graceful_shutdown()
        await self.calls.drain(grace_s)
        await self._server.stop(_CLOSE_S)


def _try(host: str, port: int) -> None:
    """Listen there for a moment: gRPC says why it cannot on stderr alone. Of a host's addresses one is enough, but none may be taken."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    failures = []
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(address)
                tried.listen(1)
            except OSError as error:
                failures.append(error)
    for failure in failures:
        if failure.errno == errno.EADDRINUSE or len(failures) == len(found):
            raise failure


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "something listens there already, another broker perhaps; port 0 picks a free one"
    return str(error.strerror or error)


def _bracketed(host: str) -> str:
    if not host:
        return "[::]"
    return f"[{host}]" if ":" in host else host


async def _add_health(server: grpc.aio.Server) -> Any:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_health.v1.health import aio

    servicer = aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for name in ("", *service_names()):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    return servicer


def _add_reflection(server: grpc.aio.Server) -> None:
    from grpc_health.v1 import health
    from grpc_reflection.v1alpha import reflection

    names = (*service_names(), health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
