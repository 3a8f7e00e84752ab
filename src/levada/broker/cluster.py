"""The cluster's nodes as they are kept, and the plan that follows from them.

Every join and leave is a record in the compacted topic `__levada.nodes`, which is made when the first node joins: key = id,
no value = gone, value = JSON:

    {"address": "10.0.0.2:9094", "kafka": "10.0.0.2:9092", "timeout_ms": 15000, "joined_ms": 1700000000000}

Heartbeats are not written: after a restart each node has one timeout to give a sign of life. A join or leave is durable
before it is true; a node that gave no sign of life is out at once, and its record follows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

import structlog

from levada.broker.nodes import Node, Nodes
from levada.broker.placement import extended
from levada.config import MiB
from levada.engine.names import NODES
from levada.engine.port import At, Engine, Placement, TopicInfo, TopicSpec, TopicView
from levada.errors import LevadaError, TopicExists, UnknownTopic
from levada.records.batch import Batch, batches
from levada.records.build import build
from levada.records.read import read

_SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * MiB)}
_READ_BYTES: Final = MiB
#: So many partitions are looked at in one turn of the loop: the first look at one opens its files.
_LOOKS: Final = 16

_log = structlog.get_logger("levada.cluster")


class Placed(NamedTuple):
    """Where a partition is planned to lie, and the offset of its last record: −1 where there is none."""

    at: At
    replicas: Sequence[str]
    last_offset: int

    @property
    def leader(self) -> str:
        return self.replicas[0]


class Cluster:
    """All about nodes that native fronts translate for. `now_ms` is the clock of sessions, which nobody can set."""

    def __init__(
        self, engine: Engine, view: TopicView, cluster_id: str, own_id: str, *, now_ms: Callable[[], int]
    ) -> None:
        self.id = cluster_id
        self._engine = engine
        self._view = view
        self._now_ms = now_ms
        self._nodes = Nodes(own_id, now_ms())
        self._changing = asyncio.Lock()
        self._alarm: asyncio.TimerHandle | None = None
        self._changes: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        """Take up the nodes that were kept."""
        kept: dict[str, Node] = {}
        if self._view.get(NODES) is not None:
            async for batch in self._batches():
                for record in read(batch):
                    _replay(kept, (record.key or b"").decode(errors="replace"), record.value)
        self._nodes.restore(kept.values(), self._now_ms())
        self._set_alarm()

    async def _batches(self) -> AsyncIterator[Batch]:
        at = At(NODES, 0)
        offset = (await self._engine.bounds(at)).start
        while (found := await self._engine.read(at, offset, _READ_BYTES)).batches:
            for batch in batches(found.batches):
                yield batch
                offset = batch.next_offset

    async def close(self) -> None:
        """Watch over nobody any more."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._changes:
            await asyncio.wait(self._changes)

    # Nodes

    def own_at(self, address: str, kafka: str) -> None:
        """Where this broker itself listens."""
        self._nodes.own_at(address, kafka)

    def nodes(self) -> Sequence[Node]:
        """All that are in, by id: the leader first."""
        self._expire()
        return self._nodes.all()

    def leader(self) -> Node:
        self._expire()
        return self._nodes.leader()

    async def join(self, node_id: str, address: str, *, kafka: str = "", timeout_ms: int = 0) -> Sequence[Node]:
        """Add a node, or say where one is now; durable when it returns. All nodes are the answer. InvalidNode."""
        await self._to_the_end(self._join(node_id, address, kafka, timeout_ms))
        return self.nodes()

    async def _join(self, node_id: str, address: str, kafka: str, timeout_ms: int) -> None:
        async with self._changing:
            self._expire()
            node = self._nodes.applicant(node_id, address, self._now_ms(), kafka=kafka, timeout_ms=timeout_ms)
            known = self._nodes.get(node_id)
            if known is None or not node.is_at(known):
                await self._write(node_id, _encode(node))
                node = node._replace(last_heartbeat_ms=self._now_ms())
            self._nodes.admit(node)
            self._set_alarm()

    async def leave(self, node_id: str) -> None:
        """The node is out; durable when it returns. UnknownNode; InvalidNode for this broker itself."""
        await self._to_the_end(self._leave(node_id))

    async def _leave(self, node_id: str) -> None:
        async with self._changing:
            self._expire()
            self._nodes.check_leave(node_id)
            await self._write(node_id, None)
            if self._nodes.get(node_id) is not None:  # its time may have run out meanwhile
                self._nodes.leave(node_id)

    def heartbeat(self, node_id: str) -> Node:
        """A sign of life; the leader is the answer. UnknownNode."""
        self._expire()
        self._nodes.heartbeat(node_id, self._now_ms())
        return self._nodes.leader()

    # The plan

    def plan(self, before: TopicInfo | None, partitions: int, replication_factor: int) -> Placement:
        """Where the partitions of a topic are to lie, that is made or grows. InvalidReplicationFactor.

        A topic that grows keeps the number of copies it was made with.
        """
        existing = () if before is None else self.placement_of(before)
        copies = replication_factor if before is None else len(existing[0])
        self._expire()
        return tuple(map(tuple, extended(existing, self._nodes.ids(), partitions, copies)))

    def placement_of(self, info: TopicInfo) -> Placement:
        """The plan of a topic. One that was made without, lies here."""
        here = ((self._nodes.own_id,),)
        return (*info.placement, *here * (info.partitions - len(info.placement)))

    async def placement(self, topic: str | None = None) -> list[Placed]:
        """The plan of a topic, or of all, as far as it is carried out: with each partition's last offset. UnknownTopic."""
        if topic is None:
            infos: Sequence[TopicInfo] = self._view.all()
        elif (info := self._view.get(topic)) is not None:
            infos = [info]
        else:
            raise UnknownTopic(f"there is no topic {topic}")
        placed: list[Placed] = []
        for info in infos:
            for index, replicas in enumerate(self.placement_of(info)):
                found = await self._placed(At(info.name, index), replicas, named=topic is not None)
                if found is not None:
                    placed.append(found)
                if len(placed) % _LOOKS == 0:
                    await asyncio.sleep(0)
        return placed

    async def _placed(self, at: At, replicas: Sequence[str], *, named: bool) -> Placed | None:
        try:
            start, _, end = await self._engine.bounds(at)
        except UnknownTopic:
            if named:
                raise
            return None  # deleted while we looked
        return Placed(at, replicas, end - 1 if end > start else -1)

    # Time

    def _expire(self) -> None:
        late = self._nodes.expire(self._now_ms())
        for node in late:
            _log.warning("node gave no sign of life", node=node.id, timeout_ms=node.timeout_ms)
            self._begin(self._bury(node.id))

    async def _bury(self, node_id: str) -> None:
        async with self._changing:
            if self._nodes.get(node_id) is not None:
                return  # it came back, and its record says so
            try:
                await self._write(node_id, None)
            except LevadaError as reason:
                _log.warning("node not forgotten; it comes back with the next start", node=node_id, reason=str(reason))

    async def _to_the_end(self, change: Coroutine[Any, Any, None]) -> None:
        """Carry a change out to its end, also when whoever asked for it has gone: records and memory say the same."""
        await asyncio.shield(self._begin(change))

    def _begin(self, change: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # whoever has gone meanwhile does not ask for it

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        deadline_ms = self._nodes.next_deadline()
        if deadline_ms is not None:
            delay_s = max(0, deadline_ms - self._now_ms()) / 1000
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        """A node's time has run out, unless it gave a sign of life meanwhile."""
        self._expire()
        self._set_alarm()

    async def _write(self, node_id: str, value: bytes | None) -> None:
        if self._view.get(NODES) is None:
            try:
                await self._engine.create(TopicSpec(name=NODES, partitions=1, settings=_SETTINGS))
            except TopicExists:
                pass
        batch = build([(node_id.encode(), value)], timestamp_ms=self._now_ms())
        await self._engine.append(At(NODES, 0), batch)


def _encode(node: Node) -> bytes:
    fields = {
        "address": node.address,
        "kafka": node.kafka,
        "timeout_ms": node.timeout_ms,
        "joined_ms": node.joined_ms,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def _replay(kept: dict[str, Node], node_id: str, value: bytes | None) -> None:
    """Take one record in. One that cannot be read is passed over: its node joins again."""
    if value is None:
        kept.pop(node_id, None)
        return
    try:
        fields = json.loads(value)
        kept[node_id] = Node(
            node_id, str(fields["address"]), str(fields["kafka"]), int(fields["timeout_ms"]), int(fields["joined_ms"])
        )
    except (ValueError, KeyError, TypeError) as reason:
        _log.warning("record of a node passed over", node=node_id, reason=repr(reason))
