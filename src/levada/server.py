"""A broker: opens the engine, starts the fronts, and closes both in order.

Handlers and message schemas are loaded when they are first asked for, so a broker is ready in a fraction of a second.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Mapping, Sized
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from levada.broker.cluster import Cluster
from levada.broker.dedup import Dedup
from levada.broker.delivery import Opener, Subscriptions
from levada.broker.group_directory import GroupDirectory
from levada.broker.groups import GroupConfig, GroupCoordinator, now_ms
from levada.broker.native import Native
from levada.broker.publishing import Gate, Publisher, Spread
from levada.broker.stats import Statistician
from levada.broker.streams import KafkaView, Positions, StreamGroups, TopicWatch
from levada.broker.topics import Topics
from levada.config import BrokerConfig
from levada.engine.embedded.engine import EmbeddedEngine
from levada.fronts.http import HttpFront, Sources
from levada.fronts.kafka.call import Node
from levada.fronts.kafka.group_timer import GroupTimer
from levada.fronts.kafka.listener import Listener
from levada.wire.memory import keep_freed_memory

if TYPE_CHECKING:
    from levada.fronts.rpc.listener import Listener as RpcListener

#: How long requests in flight may take to be answered when the broker is told to stop.
GRACE_S: Final = 5.0


class Server:
    """One broker in this process, on the running event loop."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._engine: EmbeddedEngine | None = None
        self._listener: Listener | None = None
        self._groups: Groups | None = None
        self._dedup: Dedup | None = None
        self._native: Native | None = None
        self._rpc: RpcListener | None = None
        self._http: HttpFront | None = None
        self._is_closing = False

    async def start(self) -> None:
        """Open the data and accept connections. What fails here leaves nothing open."""
        self._engine = engine = await EmbeddedEngine.open(self.config.data, self.config)
        try:
            self._groups = groups = Groups(engine)
            groups.start()
            self._dedup = dedup = _dedup(engine)
            node = Node(self.config, engine, groups.classic, self.config.node_id, dedup=dedup)
            self._listener = Listener(node)
            self._native = native = _native(engine, groups, dedup, self._open_connections)
            await native.cluster.load()
            engine.place_by(native.cluster.plan)
            await self._start_fronts(node, native)
        except BaseException:
            await self.stop()
            raise

    async def _start_fronts(self, node: Node, native: Native) -> None:
        """Kafka's, and those that are not turned off. What a front needs is loaded with it."""
        config = self.config
        assert self._listener is not None
        await self._listener.start()
        if config.grpc_port is not None:
            from levada.fronts.rpc.listener import Listener as RpcListener

            self._rpc = RpcListener(native, config.host, config.grpc_port)
            await self._rpc.start()
        if config.http_port is not None:
            self._http = HttpFront(config, self._sources(node, native))
            await self._http.start()
        places = {name: f"{host}:{port}" for name, (host, port) in self.addresses.items()}
        native.cluster.own_at(places.get("grpc", ""), places["kafka"])

    def _sources(self, node: Node, native: Native) -> Sources:
        assert self._listener is not None
        connections: dict[str, Sized] = {"kafka": self._listener.connections}
        if self._rpc is not None:
            connections["grpc"] = self._rpc.calls
        return Sources(
            engine=self.engine,
            node_name=self.config.node_name,
            connections=connections,
            held=node.budget,
            publish_latency={"kafka": node.publish_latency, "native": native.publisher.latency},
            waiting=native.gate.waiting,
            delivered=native.subscriptions.out,
            nodes=native.cluster.nodes,
            dedup=self._dedup.counts if self._dedup is not None else list,
            is_closing=lambda: self._is_closing,
        )

    def _open_connections(self) -> int:
        kafka = len(self._listener.connections) if self._listener is not None else 0
        return kafka + (len(self._rpc.calls) if self._rpc is not None else 0)

    @property
    def engine(self) -> EmbeddedEngine:
        assert self._engine is not None, "start() first"
        return self._engine

    @property
    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """Where each front listens."""
        assert self._listener is not None, "start() first"
        fronts = {"kafka": self._listener.addresses[0]}
        if self._rpc is not None:
            fronts["grpc"] = self._rpc.address
        if self._http is not None:
            fronts["http"] = self._http.address
        return fronts

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Answer what is in flight, make everything durable, close. A second call does nothing."""
        self._is_closing = True
        fronts = [front for front in (self._listener, self._rpc) if front is not None]
        http, self._http = self._http, None
        self._listener = self._rpc = None
        groups, self._groups = self._groups, None
        native, self._native = self._native, None
        dedup, self._dedup = self._dedup, None
        engine, self._engine = self._engine, None
        if groups is not None:
            # Members that wait for a rebalance are sent to look for their coordinator again, not waited for.
            groups.close()
        await asyncio.gather(*(front.stop(grace_s) for front in fronts))
        if http is not None:
            # Until here it says that the broker is closing.
            await http.stop(grace_s)
        if native is not None:
            await native.close()
        if groups is not None:
            await groups.stop()
        if dedup is not None:
            await dedup.close()
        if engine is not None:
            await engine.close()


def _dedup(engine: EmbeddedEngine) -> Dedup:
    """Which messages were seen, of topics that want to know."""
    dedup = Dedup(
        engine,
        engine.view,
        partition_of=lambda at: engine.partition(*at),
        config_of=engine.config_of,
        shelf=engine.shelf("dedup"),
        in_thread=engine.in_thread,
        now_ms=engine.now_ms,
    )
    engine.settings.watch(dedup.settings_changed)
    dedup.start()
    return dedup


def _native(engine: EmbeddedEngine, groups: Groups, dedup: Dedup, connections: Callable[[], int]) -> Native:
    """The rules that native fronts translate for, over this engine."""
    view, streams = engine.view, groups.streams
    gate, spread = Gate(), Spread(engine, view)
    directory = GroupDirectory(streams, groups.classic, delete_offsets=engine.offset_store.delete, now_ms=now_ms)
    positions = Positions(engine, streams, engine.settings.number("offset.metadata.max.bytes"), directory.owners)

    def settings_changed() -> None:
        positions.metadata_max = engine.settings.number("offset.metadata.max.bytes")

    engine.settings.watch(settings_changed)
    statistician = Statistician(
        view,
        groups=lambda: len(directory.list()),
        connections=connections,
        records=engine.records,
        bytes_on_disk=engine.bytes_on_disk,
    )
    return Native(
        engine=engine,
        topics=Topics(engine, view, engine.settings, engine.config_of),
        gate=gate,
        spread=spread,
        publisher=Publisher(
            engine, view, spread, gate, dedup, config_of=engine.config_of, now_ms=engine.now_ms, admit=engine.admit
        ),
        groups=streams,
        positions=positions,
        subscriptions=Subscriptions(engine, streams, positions, now_ms, engine.count_out, Opener(engine.in_thread)),
        directory=directory,
        cluster=Cluster(engine, view, engine.cluster_id, engine.config.node_name, now_ms=now_ms),
        new_producer=lambda: engine.transactions.init_producer_id(None, 0),
        stats=statistician.read,
        enqueue_timeout_ms=lambda: engine.settings.number("levada.enqueue.timeout.ms"),
        count_out=engine.count_out,
        now_ms=now_ms,
    )


class Groups:
    """The groups of this broker, Kafka's and native ones under the same ids, and what makes time pass for them."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        store, settings = engine.offset_store, engine.settings
        config = GroupConfig.of(settings)
        self._settings = settings
        self.classic = GroupCoordinator(config, store.save_group, store.forget_group, store.groups)
        self.streams = StreamGroups(
            engine.view, store.save_group, store.forget_group, self.classic, config, store.durable
        )
        self.classic.neighbour = KafkaView(self.streams)
        for coordinator in (self.classic, self.streams):
            coordinator.load(store.group_snapshots(), now_ms())
        engine.reads_topic = self._may_read
        self._timers = [GroupTimer(one, store, sweep_ms=self._sweep_ms) for one in (self.classic, self.streams)]
        self._watch = TopicWatch(engine.view, self.streams, now_ms)

    def start(self) -> None:
        for timer in self._timers:
            timer.start()
        self._watch.start()
        self._settings.watch(self._settings_changed)

    def close(self) -> None:
        """Tell every member, and take no more."""
        self.classic.close(now_ms())
        self.streams.close(now_ms())

    async def stop(self) -> None:
        for timer in self._timers:
            timer.stop()
        await self._watch.stop()

    def _may_read(self, group: str, topic: str) -> bool:
        return self.classic.may_read(group, topic) or self.streams.reads(group, topic, now_ms())

    def _sweep_ms(self) -> int:
        return self._settings.number("offsets.retention.check.interval.ms")

    def _settings_changed(self) -> None:
        self.classic.config = self.streams.config = GroupConfig.of(self._settings)
        for timer in self._timers:
            timer.replan()


#: Something that runs beside a broker: it begins when that is ready, and has ended before that does.
Beside = Callable[[Server], AbstractAsyncContextManager[object]]


def run(config: BrokerConfig, on_ready: Callable[[Server], None], beside: Beside | None = None) -> None:
    """Run a broker until SIGTERM or SIGINT, which close it cleanly."""
    import uvloop

    keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, on_ready, beside or (lambda _: nullcontext())))


async def _serve(config: BrokerConfig, on_ready: Callable[[Server], None], beside: Beside) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    server = Server(config)
    await server.start()
    gc.freeze()  # what is there now stays: looking through it for cycles holds up the loop for 35 ms, and longer with many topics
    try:
        on_ready(server)
        async with beside(server):
            await told.wait()
    finally:
        await server.stop()
