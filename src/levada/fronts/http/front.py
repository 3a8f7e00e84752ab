"""The HTTP port. Until the first connection comes it is a listening socket and nothing else.

Then Starlette and uvicorn are loaded, in a thread, and the socket is theirs; the connection waits in the backlog meanwhile.
A broker that nobody asks pays nothing for it: neither start-up time nor memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING, Final

import structlog

from levada.config import BrokerConfig
from levada.errors import CannotListen
from levada.fronts.http.sources import Sources

if TYPE_CHECKING:
    from levada.fronts.http.serving import WebServer

_BACKLOG: Final = 128

_log = structlog.get_logger("levada.http")


class HttpFront:
    """Everything the broker says over HTTP."""

    def __init__(self, config: BrokerConfig, sources: Sources) -> None:
        assert config.http_port is not None, "without a port there is no front"
        self._host, self._port = config.host, config.http_port
        self._sources = sources
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self._server: WebServer | None = None

    async def start(self) -> None:
        """Bind and listen. CannotListen."""
        try:
            self._socket = _listen(self._host, self._port)
        except OSError as error:
            raise CannotListen(f"cannot listen on {self._host}:{self._port} for HTTP: {_reason(error)}") from error
        self._loop.add_reader(self._socket.fileno(), self._first)

    @property
    def address(self) -> tuple[str, int]:
        assert self._socket is not None, "start() first"
        host, port = self._socket.getsockname()[:2]
        return host, port

    async def stop(self, grace_s: float) -> None:
        """Accept no more, answer what is in flight within the grace time, close. A second call does nothing."""
        listening, self._socket = self._socket, None
        if listening is None:
            return
        serving, self._serving = self._serving, None
        if serving is None:
            self._loop.remove_reader(listening.fileno())
        elif self._server is None:
            serving.cancel()
        else:
            self._server.tell_to_stop(grace_s)
        if serving is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await serving
        listening.close()

    def _first(self) -> None:
        """Somebody connects for the first time."""
        assert self._socket is not None
        self._loop.remove_reader(self._socket.fileno())
        self._serving = self._loop.create_task(self._serve(self._socket), name="levada-http")

    async def _serve(self, listening: socket.socket) -> None:
        try:
            server_class = await asyncio.to_thread(_load)
            self._server = server_class(self._sources)
            await self._server.serve(sockets=[listening])
        except Exception as error:
            _log.error("the HTTP front ended", cause=repr(error), exc_info=error)


def _load() -> type[WebServer]:
    from levada.fronts.http.serving import WebServer

    return WebServer


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, which does not block; IPv4 first where a name means both."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = sorted(found, key=lambda each: each[0] != socket.AF_INET)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "something listens there already, another broker perhaps; port 0 picks a free one"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)
