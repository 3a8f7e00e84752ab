"""Native publishing: records are routed, packed into batches and appended; batches are appended as they come.

A request is checked as a whole before anything of it is stored. `start` returns when it is on its way, and what is started
first is appended first, so a stream of requests keeps its order without one waiting for the other to be durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any

from levada.broker.dedup import Dedup
from levada.broker.publishing.gate import Gate, Load
from levada.broker.publishing.packing import pack, prepare
from levada.broker.publishing.record import NewRecord, Position
from levada.broker.publishing.routing import check_partition, route
from levada.broker.publishing.spread import Spread
from levada.broker.publishing.started import Landed, Started
from levada.broker.topics import BOOKKEEPING_TOPICS, unknown_topic
from levada.config import TopicConfig
from levada.engine.histogram import Histogram
from levada.engine.port import Acks, At, Engine, TopicInfo, TopicView
from levada.errors import InvalidRecord, InvalidRequest, InvalidTopicName
from levada.records.batch import Batch, sole_batch

Buffer = bytes | bytearray | memoryview


class Publisher:
    """Publishes for all native fronts."""

    def __init__(
        self,
        engine: Engine,
        view: TopicView,
        spread: Spread,
        gate: Gate,
        dedup: Dedup | None = None,
        *,
        config_of: Callable[[str], TopicConfig],
        now_ms: Callable[[], int],
        admit: Callable[[At, Buffer], object],
    ) -> None:
        """`admit` refuses what the engine would refuse of a batch, without storing it."""
        self._engine = engine
        self._view = view
        self._spread = spread
        self._gate = gate
        self._dedup = dedup
        self._admit = admit
        self._config_of = config_of
        self._now_ms = now_ms
        #: From a request to when it may be answered, for measuring.
        self.latency = Histogram()

    async def publish(self, topic: str, records: Sequence[NewRecord], acks: Acks = Acks.ALL) -> list[Position]:
        """Store records where the topic's rules put them. Answers with a position for each, in their order."""
        return await (await self.start(topic, records, acks)).positions()

    async def publish_batches(
        self, topic: str, batches: Sequence[tuple[int, Buffer]], acks: Acks = Acks.ALL
    ) -> list[Position]:
        """Store ready-made batches in the partitions they name. Answers with the position of each one's first record."""
        return await (await self.start_batches(topic, batches, acks)).positions()

    async def start(self, topic: str, records: Sequence[NewRecord], acks: Acks = Acks.ALL) -> Started:
        """Check, route and pack the records, and begin to append them. What is refused is refused here, as a whole.

        UnknownTopic, UnknownPartition, InvalidRecord, InvalidTimestamp, RecordTooLarge, Overloaded; InvalidRequest for no
        records.
        """
        begun_ns = perf_counter_ns()
        if not records:
            raise InvalidRequest(f"topic {topic}: there are no records to publish")
        info = self._topic(topic)
        config = self._config_of(topic)
        made = prepare(config, records, self._now_ms())
        places = await route(info, config, records, self._spread)
        writes = [
            (At(topic, partition), batch)
            for partition, held in places.items()
            for batch in pack(config, [made[place] for place in held])
        ]
        order = [place for held in places.values() for place in held]
        del records, made  # while it waits, there is one copy of what it brought
        return await self._begin(writes, config, acks, order, begun_ns, info.partitions)

    async def start_batches(self, topic: str, batches: Sequence[tuple[int, Buffer]], acks: Acks = Acks.ALL) -> Started:
        """The same for batches. CorruptBatch and InvalidRecord for one that is not what it says.

        Of several, one whose producer's sequence does not fit is found only when it is appended; the others are stored.
        """
        begun_ns = perf_counter_ns()
        if not batches:
            raise InvalidRequest(f"topic {topic}: there are no batches to publish")
        info = self._topic(topic)
        for partition, batch in batches:
            check_partition(info, partition)
            _check_kind(batch)
            if len(batches) > 1:  # one alone is checked when it is appended
                self._admit(At(topic, partition), batch)
        writes = [(At(topic, partition), batch) for partition, batch in batches]
        return await self._begin(writes, self._config_of(topic), acks, None, begun_ns, info.partitions)

    def _topic(self, topic: str) -> TopicInfo:
        info = self._view.get(topic)
        if info is None:
            raise unknown_topic(topic, self._view)
        if topic in BOOKKEEPING_TOPICS:
            raise InvalidTopicName(f"topic {topic} is the broker's own bookkeeping and takes no records")
        return info

    async def _begin(
        self,
        writes: Sequence[tuple[At, Buffer]],
        config: TopicConfig,
        acks: Acks,
        places: Sequence[int] | None,
        begun_ns: int,
        partitions: int,
    ) -> Started:
        """Wait for room, which is given back batch by batch as they land; then append, in order."""
        loads = [(at, Load(Batch(memoryview(batch)).record_count, len(batch))) for at, batch in writes]
        dedup = self._dedup if self._dedup is not None and config.dedup != "off" else None
        if dedup is not None:
            await dedup.at_hand(writes[0][0])
        await self._gate.enter(_sums(loads), config.enqueue_timeout_ms)
        tasks = []
        for (at, batch), (_, load) in zip(writes, loads, strict=True):
            if dedup is None:
                append: Coroutine[Any, Any, Landed] = self._engine.append(at, batch, acks)
            else:
                append = dedup.publish(at, sole_batch(batch), acks, dense=places is not None)
            task = asyncio.ensure_future(append)
            task.add_done_callback(partial(self._landed, at, load))
            tasks.append((at, task))
        return Started(tasks, places, partitions, lambda: self.latency.observe(perf_counter_ns() - begun_ns))

    def _landed(self, at: At, load: Load, task: asyncio.Task[Landed]) -> None:
        self._gate.leave({at: load})
        if not task.cancelled():
            task.exception()  # whoever has gone meanwhile does not ask for it


def _check_kind(batch: Buffer) -> None:
    """There are no transactions natively: one that was begun would never end, and hold back whoever reads what is committed."""
    made = Batch(memoryview(batch))
    if made.is_transactional or made.is_control:
        kind = "control" if made.is_control else "transactional"
        raise InvalidRecord(f"the batch is a {kind} one; natively only batches outside of transactions are taken")


def _sums(loads: Sequence[tuple[At, Load]]) -> dict[At, Load]:
    sums: dict[At, Load] = {}
    for at, load in loads:
        before = sums.get(at, Load(0, 0))
        sums[at] = Load(before.records + load.records, before.size + load.size)
    return sums
