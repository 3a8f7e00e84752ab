"""A broker: opens the engine, starts the fronts, and closes both in order.

Handlers and message schemas are loaded when they are first asked for, so a broker is ready in a fraction of a second.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import Final

from levada.broker.groups import GroupConfig, GroupCoordinator, now_ms
from levada.config import BrokerConfig, MiB
from levada.engine.embedded.engine import EmbeddedEngine
from levada.fronts.kafka.call import Node
from levada.fronts.kafka.group_timer import GroupTimer
from levada.fronts.kafka.listener import Listener

#: How long requests in flight may take to be answered when the broker is told to stop.
GRACE_S: Final = 5.0
#: From glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


class Server:
    """One broker in this process, on the running event loop."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._engine: EmbeddedEngine | None = None
        self._listener: Listener | None = None
        self._groups: GroupCoordinator | None = None
        self._timer: GroupTimer | None = None

    async def start(self) -> None:
        """Open the data and accept connections. What fails here leaves nothing open."""
        self._engine = engine = await EmbeddedEngine.open(self.config.data, self.config)
        try:
            self._groups = groups = _groups(engine)
            node = Node(self.config, engine, groups, self.config.node_id)
            self._timer = timer = GroupTimer(
                groups,
                engine.offset_store,
                sweep_ms=lambda: engine.settings.number("offsets.retention.check.interval.ms"),
            )
            timer.start()
            engine.settings.watch(timer.replan)
            self._listener = Listener(node)
            await self._listener.start()
        except BaseException:
            await self.stop()
            raise

    @property
    def engine(self) -> EmbeddedEngine:
        assert self._engine is not None, "start() first"
        return self._engine

    @property
    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """Where each front listens."""
        assert self._listener is not None, "start() first"
        return {"kafka": self._listener.addresses[0]}

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Answer what is in flight, make everything durable, close. A second call does nothing."""
        listener, self._listener = self._listener, None
        groups, self._groups = self._groups, None
        timer, self._timer = self._timer, None
        engine, self._engine = self._engine, None
        if groups is not None:
            # Members that wait for a rebalance are sent to look for their coordinator again, not waited for.
            groups.close(now_ms())
        if listener is not None:
            await listener.stop(grace_s)
        if timer is not None:
            timer.stop()
        if engine is not None:
            await engine.close()


def _groups(engine: EmbeddedEngine) -> GroupCoordinator:
    store, settings = engine.offset_store, engine.settings
    groups = GroupCoordinator(GroupConfig.of(settings), store.save_group, store.forget_group, store.groups)
    groups.load(store.group_snapshots(), now_ms())
    engine.reads_topic = groups.may_read

    def settings_changed() -> None:
        groups.config = GroupConfig.of(settings)

    settings.watch(settings_changed)
    return groups


def run(config: BrokerConfig, on_ready: Callable[[Server], None]) -> None:
    """Run a broker until SIGTERM or SIGINT, which close it cleanly."""
    import uvloop

    _keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, on_ready))


async def _serve(config: BrokerConfig, on_ready: Callable[[Server], None]) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    server = Server(config)
    await server.start()
    try:
        on_ready(server)
        await told.wait()
    finally:
        await server.stop()


def _keep_freed_memory() -> None:
    """Have the C library use freed memory again instead of handing it back to the kernel.

    Answers are a few MiB each. By default each would be mapped, faulted in page by page and unmapped again, which costs
    as much as sending it; measured, a consumer costs half as much CPU without that. Up to 64 MiB stay with the process.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it, others do not
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, 64 * MiB)
        mallopt(_M_MMAP_THRESHOLD, 32 * MiB)
