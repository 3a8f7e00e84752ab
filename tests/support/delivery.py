"""Native delivery over a real engine, and consumers that note what they get and take it as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from levada.broker.delivery import (
    Assigned,
    Batches,
    Delivery,
    Failed,
    Records,
    Subscription,
    Subscriptions,
    Wanted,
)
from levada.broker.groups import GroupConfig
from levada.broker.streams import Positions, StreamGroups
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import Appended, At, Committed
from levada.log.disk import Disk
from levada.records.build import build
from levada.records.read import Record, read_all
from support.batches import make_record
from support.engines import make_topic
from support.engines import running as engine_running

#: What a test that would wait for ever waits at most. Nothing is proved by it.
LONG_S = 60.0
T0 = At("t", 0)


class Consumer:
    """What one consumer got. `stall` keeps its transport from taking anything; `grants` gives back what it got at once."""

    def __init__(self, *, grants: bool) -> None:
        self.grants = grants
        self.deliveries: list[Delivery] = []
        self.subscription: Subscription | None = None
        #: What it was handed, and not yet taken.
        self.held: Delivery | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._more = asyncio.Event()
        self.noted: Callable[[], None] = lambda: None

    async def deliver(self, delivery: Delivery) -> None:
        self.held = delivery
        self._note()
        await self._open.wait()
        self.held = None
        self.deliveries.append(delivery)
        self._note()
        if self.grants and isinstance(delivery, Records | Batches):
            self.it.grant(counted(delivery))

    def _note(self) -> None:
        self._more.set()
        self.noted()

    @property
    def it(self) -> Subscription:
        assert self.subscription is not None
        return self.subscription

    def stall(self) -> None:
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()

    async def until(self, look: Callable[[Consumer], Any]) -> None:
        """Wait for deliveries until this is true of them."""
        async with asyncio.timeout(LONG_S):
            while not look(self):
                self._more.clear()
                await self._more.wait()

    async def until_assigned(self, *ats: At) -> None:
        await self.until(lambda it: it.assigned and set(it.assigned[-1].partitions) == set(ats))

    async def until_got(self, count: int) -> None:
        await self.until(lambda it: len(it.records()) >= count)

    async def over(self) -> BaseException | None:
        """Wait until the subscription is over; why, if it did not just close."""
        async with asyncio.timeout(LONG_S):
            try:
                await self.it.wait()
            except Exception as reason:
                return reason
        return None

    # What it got

    @property
    def assigned(self) -> list[Assigned]:
        return [each for each in self.deliveries if isinstance(each, Assigned)]

    @property
    def failed(self) -> list[Failed]:
        return [each for each in self.deliveries if isinstance(each, Failed)]

    def records(self, since: int = 0) -> list[tuple[At, Record]]:
        """All records, of batches those that count; from this delivery on."""
        return [(each.at, record) for each in self.deliveries[since:] for record in records_of(each)]  # type: ignore[union-attr]

    def offsets(self, at: At, since: int = 0) -> list[int]:
        return [record.offset for place, record in self.records(since) if place == at]

    def values(self) -> list[bytes | None]:
        return [record.value for _, record in self.records()]

    @property
    def got(self) -> int:
        """Records as the credit counts them."""
        return sum(counted(each) for each in self.deliveries)


def counted(delivery: Delivery) -> int:
    if isinstance(delivery, Records):
        return len(delivery.records)
    return delivery.record_count if isinstance(delivery, Batches) else 0


def records_of(delivery: Delivery) -> Sequence[Record]:
    if isinstance(delivery, Records):
        return delivery.records
    if isinstance(delivery, Batches):
        read = read_all(delivery.data, from_offset=delivery.from_offset, aborted=delivery.aborted, committed_only=True)
        return [record for record in read if record.offset < delivery.to_offset]
    return ()


class World:
    """An engine, native groups on it with a clock that stands still, and subscriptions."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self.clock_ms = 1_700_000_000_000
        store = engine.offset_store
        self.groups = StreamGroups(
            engine.view,
            store.save_group,
            store.forget_group,
            config=GroupConfig(),
            durable=store.durable,
        )
        self.positions = Positions(engine, self.groups)
        self.out: dict[At, tuple[int, int]] = {}
        self._noted = asyncio.Event()
        self.subscriptions = Subscriptions(engine, self.groups, self.positions, lambda: self.clock_ms, self._counted)

    def _counted(self, at: At, records: int, size: int) -> None:
        before = self.out.get(at, (0, 0))
        self.out[at] = (before[0] + records, before[1] + size)

    async def create(self, name: str = "t", partitions: int = 1, **settings: str) -> At:
        return await make_topic(self.engine, name, partitions, **{"levada_durability": "os", **settings})

    async def expand(self, name: str, partitions: int) -> None:
        await self.engine.expand(name, partitions)
        self.groups.topics_changed(self.clock_ms)

    async def publish(self, at: At = T0, count: int = 1, *, first: int = 0, size: int = 0) -> Appended:
        """One batch of records with the values first, first + 1 …"""
        records = [make_record(value=b"%d" % (first + number) + b"." * size, key=None) for number in range(count)]
        return await self.engine.append(at, build(records))

    async def open(self, *, grants: bool = True, **wanted: Any) -> Consumer:
        """A consumer of what is wanted; of partition 0 of topic t, where nothing is."""
        if not wanted.get("group"):
            wanted.setdefault("partitions", [T0])
        elif "consumer" not in wanted:
            wanted.setdefault("topics", ["t"])
        consumer = Consumer(grants=grants)
        consumer.noted = self._noted.set
        consumer.subscription = await self.subscriptions.open(Wanted(**wanted), consumer.deliver)
        return consumer

    async def commit(self, group: str, offsets: Mapping[At, int]) -> None:
        await self.engine.commit_offsets(group, {at: Committed(offset) for at, offset in offsets.items()})

    async def until(self, look: Callable[[], Any]) -> None:
        """Wait for deliveries to whomever until this is true."""
        async with asyncio.timeout(LONG_S):
            while not look():
                self._noted.clear()
                await self._noted.wait()

    def pass_time(self, ms: int) -> None:
        self.clock_ms += ms
        self.groups.tick(self.clock_ms)


@asynccontextmanager
async def world(data: Path, disk: Disk | None = None) -> AsyncIterator[World]:
    async with engine_running(data, disk=disk) as engine:
        made = World(engine)
        try:
            yield made
        finally:
            await made.subscriptions.close()


async def settle(rounds: int = 50) -> None:
    """Let everything happen that can happen without anybody waiting for anything."""
    for _ in range(rounds):
        await asyncio.sleep(0)
