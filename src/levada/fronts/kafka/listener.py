"""The Kafka port: accepts connections, knows those that are open, closes idle ones.

Clients are told to connect to `kafka_advertised` where that is set, else to the bound address; where that is a wildcard
(0.0.0.0, ::), to the address the client itself has reached us at.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from levada.config import KiB, split_listener
from levada.errors import CannotListen
from levada.fronts.kafka import loopback
from levada.fronts.kafka.budget import Budget
from levada.fronts.kafka.connection import Connection
from levada.fronts.kafka.dispatch import Dispatcher
from levada.fronts.kafka.inbox import SCRATCH_BYTES, Buffers
from levada.fronts.kafka.reply import HangUp

if TYPE_CHECKING:
    from levada.fronts.kafka.call import Node

#: An idle connection is closed at most a tenth of connections.max.idle.ms late.
_ROUNDS: Final = 10
_BACKLOG: Final = 1024
#: While some wait for memory, a frame must come at this pace or make room.
_PRESS_S: Final = 5.0
_PRESS_BYTES: Final = 256 * KiB
_WILDCARDS: Final = ("", "0.0.0.0", "::")


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "something listens there already, another broker perhaps; port 0 picks a free one"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)


class Listener:
    """Everything the connections of one port share."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._nodes: dict[tuple[str, int], Node] = {}
        self.loop = asyncio.get_running_loop()
        self.dispatcher = Dispatcher()
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.buffers = Buffers()
        self.frame_bytes_max = node.settings.number("socket.request.max.bytes")
        self.budget = node.budget = Budget(node.settings.number("queued.max.request.bytes"))
        self.connections: set[Connection] = set()
        self._emptied = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._press: asyncio.TimerHandle | None = None
        node.settings.watch(self._settings_changed)

    def _settings_changed(self) -> None:
        settings = self._node.settings
        self.frame_bytes_max = settings.number("socket.request.max.bytes")
        for connection in self.connections:
            connection.take_frames_of(self.frame_bytes_max)
        self.budget.resize(settings.number("queued.max.request.bytes"))
        if self._server is not None:
            self._schedule_sweep()

    async def start(self) -> None:
        """Bind and accept. From here on the node knows its address."""
        config = self._node.config
        try:
            self._server = await self.loop.create_server(
                lambda: Connection(self), config.host or None, config.kafka_port, backlog=_BACKLOG
            )
        except OSError as error:
            place = f"{config.host}:{config.kafka_port}"
            raise CannotListen(f"cannot listen on {place} for Kafka: {_reason(error)}") from error
        for listening in self._server.sockets:
            loopback.tune_listener(listening)
        advertised = split_listener(config.kafka_advertised) if config.kafka_advertised else self.addresses[0]
        self._node.host, self._node.port = advertised
        self._schedule_sweep()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where connections are accepted; IPv4 first, which every client of a host with both can reach."""
        assert self._server is not None, "start() first"
        sockets = sorted(self._server.sockets, key=lambda each: each.family != socket.AF_INET)
        return [each.getsockname()[:2] for each in sockets]

    def node_at(self, local: tuple[str, int] | None) -> Node:
        """This broker as a client sees it that reached us at this address."""
        if self._node.host not in _WILDCARDS or local is None:
            return self._node
        host, port = local[0].removeprefix("::ffff:"), local[1]
        if (host, port) not in self._nodes:
            self._nodes[host, port] = replace(self._node, host=host, port=port)
        return self._nodes[host, port]

    def admit(self, connection: Connection) -> HangUp | None:
        """Count a new connection in, or say why not."""
        limit = self._node.settings.number("max.connections")
        if len(self.connections) >= limit:
            return HangUp(f"max.connections={limit} are open")
        self.connections.add(connection)
        self._emptied.clear()
        return None

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._emptied.set()

    def press_soon(self) -> None:
        """Somebody waits for memory: whoever holds some has to get on."""
        if self._press is None:
            self._press = self.loop.call_later(_PRESS_S, self._press_all)

    def _press_all(self) -> None:
        self._press = None
        for connection in tuple(self.connections):
            connection.press(_PRESS_BYTES)
        if self.budget.is_scarce:
            self.press_soon()

    def _schedule_sweep(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        idle_ms = self._node.settings.number("connections.max.idle.ms")
        if idle_ms > 0:
            self._sweep = self.loop.call_later(idle_ms / 1000 / _ROUNDS, self._close_idle)

    def _close_idle(self) -> None:
        for connection in tuple(self.connections):
            connection.sweep(_ROUNDS)
        self._node.sessions.sweep()
        self.buffers.clear()
        self._schedule_sweep()

    async def stop(self, grace_s: float) -> None:
        """Accept no more, answer what is in flight, close. Within the grace time, by force after it."""
        for timer in (self._sweep, self._press):
            if timer is not None:
                timer.cancel()
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._finish()
        for connection in tuple(self.connections):
            connection.abort()
        for task in self.dispatcher.tasks:
            task.cancel()
        # One turn for the transports to let go of their sockets.
        await asyncio.sleep(0)

    async def _finish(self) -> None:
        for connection in tuple(self.connections):
            connection.finish()
        if self.connections:
            await self._emptied.wait()
        if self.dispatcher.tasks:
            await asyncio.wait(self.dispatcher.tasks)
