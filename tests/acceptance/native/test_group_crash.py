"""A native group through kill −9, again and again, while it reads and commits."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from levada.v1 import stream_pb2 as pb
from support.brokers import levada_only
from support.levada import LevadaBroker
from support.native_consumer import LONG_S, NativeConsumer
from support.rpc import Stubs, connect_async, record

pytestmark = levada_only

PARTITIONS = 4
ROUNDS = 4
EACH = 300


class Reader(NativeConsumer):
    """Commits each message's end as it comes, and notes what was acknowledged."""

    def __init__(self, client: Stubs, ledger: Ledger, **fields: Any) -> None:
        super().__init__(client, **fields)
        self._ledger = ledger
        self._asked: dict[int, tuple[int, int]] = {}
        self._number = 0

    async def commit_as_it_reads(self) -> None:
        """Until the call is over."""
        done: dict[int, int] = {}
        while self.error is None:
            for (topic, partition), held in list(self.got.items()):
                if held and held[-1][0] >= done.get(partition, 0):
                    done[partition] = held[-1][0] + 1
                    await self._commit(topic, partition, done[partition])
            for answer in self.committed:
                partition, offset = self._asked.pop(answer.id)
                if not answer.errors:
                    self._ledger.acknowledged[partition] = max(self._ledger.acknowledged[partition], offset)
            self.committed.clear()
            await asyncio.sleep(0.001)

    async def _commit(self, topic: str, partition: int, offset: int) -> None:
        self._number += 1
        self._asked[self._number] = (partition, offset)
        await self.commit({(topic, partition): offset}, self._number)


class Ledger:
    """What the group was promised."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, int] = defaultdict(int)
        self.read: dict[int, set[int]] = defaultdict(set)
        self.generation = 0

    def note(self, reader: Reader) -> None:
        for (_, partition), held in reader.got.items():
            self.read[partition] |= {offset for offset, _ in held}
        self.generation = max([self.generation, *(told.generation for told in reader.assigned)])


async def publish(client: Stubs, topic: str) -> None:
    records = [record(b"v", partition=number % PARTITIONS) for number in range(EACH * PARTITIONS)]
    await client.stream.Publish(pb.PublishRequest(topic=topic, records=records))


async def one_round(broker: LevadaBroker, topic: str, ledger: Ledger, kill_at: int | None) -> None:
    """Two consumers read and commit until so much of the round is acknowledged; then the broker is killed."""
    async with connect_async(broker.grpc) as client:
        rows = (await client.stream.GetOffset(pb.GetOffsetRequest(group="g", topic=topic))).offsets
        committed = {row.partition: row.committed for row in rows}
        for partition, offset in ledger.acknowledged.items():
            assert committed[partition] >= offset, "an acknowledged commit is gone"
        opening = {"topics": [topic], "group": "g", "session_timeout_ms": 600_000, "records_max": 50}
        readers = [Reader(client, ledger, **opening) for _ in range(2)]
        tasks = []
        for reader in readers:
            await reader.open()
            reader.read_on()
            await reader.until(lambda reader=reader: reader.assigned)  # type: ignore[misc]
            first = reader.assigned[0]
            assert first.generation > ledger.generation, "a generation came twice"
            ledger.generation = first.generation
            tasks.append(asyncio.create_task(reader.commit_as_it_reads()))
        begun = sum(ledger.acknowledged.values())
        await publish(client, topic)
        goal = begun + kill_at if kill_at is not None else sum(row.end for row in rows) + EACH * PARTITIONS
        async with asyncio.timeout(LONG_S):
            while sum(ledger.acknowledged.values()) < goal:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        if kill_at is not None:
            broker.kill()
            for reader in readers:
                await reader.over()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for reader in readers:
            await reader.close()
            ledger.note(reader)


async def test_13_no_acknowledged_commit_is_lost_no_record_skipped_and_no_generation_comes_twice(
    own_broker: LevadaBroker, topic: str
) -> None:
    ledger = Ledger()
    async with connect_async(own_broker.grpc) as client:
        await client.stream.CreateTopic(pb.CreateTopicRequest(name=topic, partitions=PARTITIONS))
    for number in range(ROUNDS):
        await one_round(own_broker, topic, ledger, kill_at=1 + number * EACH)
        own_broker.start()
    await one_round(own_broker, topic, ledger, kill_at=None)
    for partition in range(PARTITIONS):
        assert sorted(ledger.read[partition]) == list(range((ROUNDS + 1) * EACH)), "a record was passed over"
