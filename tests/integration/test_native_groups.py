"""Native groups and Kafka's, side by side on one broker, with real clients of both kinds; and what a kill leaves of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient  # type: ignore[attr-defined]

from levada.config import DAY_MS
from levada.v1 import stream_pb2 as pb
from support.broker import running
from support.levada import LevadaBroker
from support.native_consumer import NativeConsumer
from support.rpc import Stubs, connect_async, record, refusal_of, refused
from support.wait import wait_until

SESSION_MS = 6_000
PATIENCE_S = 60.0
#: Nobody is taken for dead in a test that takes long.
LONG_MS = 600_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LevadaBroker]:
    with LevadaBroker(tmp_path / "broker", {"group.min.session.timeout.ms": "1000"}) as running:
        yield running


@pytest.fixture
async def client(broker: LevadaBroker) -> AsyncIterator[Stubs]:
    async with connect_async(broker.grpc) as client:
        await client.stream.CreateTopic(pb.CreateTopicRequest(name="t", partitions=2))
        records = [record(b"%d" % number, partition=number % 2) for number in range(10)]
        await client.stream.Publish(pb.PublishRequest(topic="t", records=records))
        yield client


@pytest.fixture
def admin(broker: LevadaBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


async def register(client: Stubs, consumers: int, group: str = "g") -> Any:
    return await client.stream.RegisterGroup(pb.RegisterGroupRequest(topic="t", group=group, consumers=consumers))


async def describe(client: Stubs, group: str = "g") -> Any:
    return await client.stream.DescribeGroup(pb.DescribeGroupRequest(group=group))


async def kinds(client: Stubs) -> dict[str, int]:
    return {one.group: one.kind for one in (await client.stream.ListGroups(pb.ListGroupsRequest())).groups}


@asynccontextmanager
async def subscribed(client: Stubs, **fields: Any) -> AsyncIterator[NativeConsumer]:
    """A native consumer, of topic t where nothing else is said; it has left when this ends."""
    if "consumer" not in fields:
        fields["topics"] = ["t"]
    consumer = await NativeConsumer(client, session_timeout_ms=LONG_MS, **fields).open()
    consumer.read_on()
    try:
        yield consumer
    finally:
        await consumer.close()
        if consumer.error is None:
            await empty(client, fields["group"])


async def empty(client: Stubs, group: str = "g") -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await describe(client, group)).members:  # noqa: ASYNC110
            await asyncio.sleep(0.03)


async def all_is_its_own(consumer: NativeConsumer) -> None:
    await consumer.until(lambda: consumer.owned.keys() == {("t", 0), ("t", 1)})


async def reason_of_its_end(consumer: NativeConsumer) -> str:
    error = await consumer.over()
    assert error is not None
    return refusal_of(error).reason


def offsets(consumer: NativeConsumer, partition: int) -> list[int]:
    return [offset for offset, _ in consumer.got.get(("t", partition), [])]


class KafkaMember:
    """librdkafka's consumer, polled by a thread; its errors are noted."""

    def __init__(self, bootstrap: str, group: str = "g") -> None:
        self.errors: list[int] = []
        self.assigned = False
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "session.timeout.ms": SESSION_MS,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe(["t"], on_assign=self._on_assign)
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _on_assign(self, *_: object) -> None:
        self.assigned = True

    def _poll(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            error = None if message is None else message.error()
            if error is not None:
                self.errors.append(error.code())
        self._consumer.close()

    async def until(self, look: Callable[[], Any]) -> None:
        await asyncio.to_thread(wait_until, look, PATIENCE_S, "what was waited for of a Kafka member")

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@contextmanager
def kafka_member(broker: LevadaBroker, group: str = "g") -> Iterator[KafkaMember]:
    member = KafkaMember(broker.bootstrap, group)
    try:
        yield member
    finally:
        member.close()


# One kind at a time


async def test_a_kafka_client_is_refused_by_a_native_group_and_welcome_once_it_is_empty(
    broker: LevadaBroker, client: Stubs
) -> None:
    async with subscribed(client, group="g") as native:
        await all_is_its_own(native)
        with kafka_member(broker) as member:
            await member.until(lambda: member.errors)
            assert member.errors[0] == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        assert len(native.assigned) == 1, "it is not disturbed"
    with kafka_member(broker) as member:
        await member.until(lambda: member.assigned)
        assert await kinds(client) == {"g": pb.CLASSIC}


async def test_a_native_consumer_is_refused_by_a_kafka_group_and_welcome_once_it_is_empty(
    broker: LevadaBroker, client: Stubs
) -> None:
    with kafka_member(broker) as member:
        await member.until(lambda: member.assigned)
        async with subscribed(client, group="g") as native:
            assert await reason_of_its_end(native) == "GroupKindMismatch"
        with refused("GroupKindMismatch"):
            await register(client, 2)
        with refused("GroupKindMismatch"):
            await client.stream.Seek(pb.SeekRequest(group="g", topic="t", start=pb.LATEST))
        described = await describe(client)
        generation, (reader,) = described.generation, described.members
        assert [(place.partition, place.lag, place.member_id) for place in described.offsets] == [
            (0, 5, reader.member_id),
            (1, 5, reader.member_id),
        ]
    async with subscribed(client, group="g") as native:
        await all_is_its_own(native)
        assert native.assigned[-1].generation > generation
        assert await kinds(client) == {"g": pb.DYNAMIC}


async def test_a_registered_group_is_fixed_until_it_is_deleted(broker: LevadaBroker, client: Stubs) -> None:
    await register(client, 2)
    async with subscribed(client, group="g") as native:
        assert await reason_of_its_end(native) == "GroupKindMismatch"
    with kafka_member(broker) as member:
        await member.until(lambda: member.errors)
        assert member.errors[0] == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    assert await kinds(client) == {"g": pb.FIXED}
    await client.stream.DeleteGroup(pb.DeleteGroupRequest(group="g"))
    assert await kinds(client) == {}
    async with subscribed(client, group="g") as native:
        await all_is_its_own(native)


# What Kafka's administrators see and do


async def test_kafkas_administrators_see_native_groups_and_delete_them_once_empty(
    broker: LevadaBroker, client: Stubs, admin: AdminClient
) -> None:
    async with subscribed(client, group="g", client_id="worker") as native:
        await all_is_its_own(native)
        await native.commit({("t", 0): 3})
        await native.until(lambda: native.committed)
        listed = admin.list_consumer_groups().result().valid
        assert [(one.group_id, one.state) for one in listed] == [("g", ConsumerGroupState.STABLE)]
        described = admin.describe_consumer_groups(["g"])["g"].result()
        (member,) = described.members
        assert (member.member_id, member.client_id) == (native.assigned[-1].member_id, "worker")
        assert {(at.topic, at.partition) for at in member.assignment.topic_partitions} == {("t", 0), ("t", 1)}
        assert described.partition_assignor == "levada-stream"
        python = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        try:
            assert [(one["group_id"], one["protocol_type"]) for one in python.list_groups()] == [("g", "consumer")]
            assert len(python.describe_groups(["g"])["g"]["members"]) == 1
        finally:
            python.close()
        (refusal,) = [future.exception() for future in admin.delete_consumer_groups(["g"]).values()]
        assert refusal is not None and refusal.args[0].code() == KafkaError.NON_EMPTY_GROUP
    asked = ConsumerGroupTopicPartitions("g")
    (found,) = [one.result() for one in admin.list_consumer_group_offsets([asked]).values()]
    assert [(at.partition, at.offset) for at in found.topic_partitions] == [(0, 3)]
    for future in admin.delete_consumer_groups(["g"]).values():
        future.result()
    assert await kinds(client) == {}
    assert not (await client.stream.GetOffset(pb.GetOffsetRequest(group="g"))).offsets


async def test_kafkas_administrators_move_a_native_group_only_while_it_is_empty(
    client: Stubs, admin: AdminClient
) -> None:
    def alter(offset: int) -> Any:
        wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, offset)])
        (done,) = admin.alter_consumer_group_offsets([wanted]).values()
        return done.result().topic_partitions[0].error

    async with subscribed(client, group="g") as native:
        await all_is_its_own(native)
        assert alter(4).code() == KafkaError.UNKNOWN_MEMBER_ID
    assert alter(4) is None
    async with subscribed(client, group="g") as native:
        await native.until(lambda: native.count == 6)
        assert offsets(native, 0) == [4]


# What a kill leaves


async def test_generations_and_registrations_are_there_after_a_kill(broker: LevadaBroker, client: Stubs) -> None:
    registered = await register(client, 2, group="fixed")
    async with subscribed(client, group="g") as native:
        await all_is_its_own(native)
        await native.commit({("t", 0): 3, ("t", 1): 4})
        await native.until(lambda: native.committed)
        told = native.assigned[-1].generation
        broker.kill()
        await native.over()
    broker.start()
    async with connect_async(broker.grpc) as again:
        assert await kinds(again) == {"g": pb.DYNAMIC, "fixed": pb.FIXED}
        async with subscribed(again, group="g") as native:
            await native.until(lambda: native.count == 3)
            assert native.assigned[-1].generation > told
            assert (offsets(native, 0), offsets(native, 1)) == ([3, 4], [4])
        same = await register(again, 2, group="fixed")
        assert (same.same, same.generation) == (True, registered.generation)
        async with subscribed(again, group="fixed", consumer=1, generation=registered.generation) as fixed:
            await fixed.until(lambda: fixed.owned.keys() == {("t", 1)})
        with kafka_member(broker, "fixed") as member:
            await member.until(lambda: member.errors)
            assert member.errors[0] == KafkaError.INCONSISTENT_GROUP_PROTOCOL


async def test_a_member_of_before_a_kill_commits_nothing_after_it(broker: LevadaBroker, client: Stubs) -> None:
    async with subscribed(client, group="g") as native:
        await all_is_its_own(native)
        late = pb.CommitRequest(
            group="g",
            member_id=native.assigned[-1].member_id,
            generation=native.assigned[-1].generation,
            offsets=[pb.PartitionOffset(topic="t", partition=0, offset=5)],
        )
        broker.kill()
        await native.over()
    broker.start()
    async with connect_async(broker.grpc) as again:
        (error,) = (await again.stream.Commit(late)).errors
        assert error.error.reason == "UnknownMember"
        async with subscribed(again, group="g") as native:
            await all_is_its_own(native)
            (error,) = (await again.stream.Commit(late)).errors
            assert error.error.reason == "IllegalGeneration"


# Offsets that expire


async def test_offsets_expire_neither_while_they_are_read_nor_while_they_are_registered(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        engine = server.engine
        host, port = server.addresses["grpc"]
        later_ms, day_ms = engine.now_ms() + 30 * DAY_MS, DAY_MS

        def expire() -> set[str]:
            """The groups that lost their offsets, thirty days later."""
            before = {group for group in ("read", "registered", "idle") if engine.offset_store.fetch(group)}
            engine.offset_store.expire(later_ms, day_ms, engine.reads_topic)
            return {group for group in before if not engine.offset_store.fetch(group)}

        async with connect_async(f"{host}:{port}") as client:
            await client.stream.CreateTopic(pb.CreateTopicRequest(name="t", partitions=2))
            await register(client, 2, group="registered")
            for group in ("read", "registered", "idle"):
                await client.stream.Seek(pb.SeekRequest(group=group, topic="t", start=pb.EARLIEST))
            async with subscribed(client, group="read") as native:
                await all_is_its_own(native)
                assert expire() == {"idle"}
            assert expire() == {"read"}
            await client.stream.DeleteGroup(pb.DeleteGroupRequest(group="registered"))
            assert await kinds(client) == {"read": pb.DYNAMIC}


async def test_the_brokers_own_counters_are_no_group_to_kafkas_clients(
    broker: LevadaBroker, client: Stubs, admin: AdminClient
) -> None:
    """Deleting or setting them would have the keyless spread repeat itself."""
    await client.stream.Publish(pb.PublishRequest(topic="t", records=[record(b"v")] * 3))
    listed = await asyncio.to_thread(lambda: admin.list_consumer_groups().result())
    assert "__levada.keyless" not in [group.group_id for group in listed.valid]
    deleted = admin.delete_consumer_groups(["__levada.keyless"])["__levada.keyless"]
    assert (await asyncio.to_thread(deleted.exception)).args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    moved = [ConsumerGroupTopicPartitions("__levada.keyless", [TopicPartition("t", 0, 0)])]
    altered = admin.alter_consumer_group_offsets(moved)["__levada.keyless"]
    outcome = await asyncio.to_thread(altered.result)
    assert [part.error.code() for part in outcome.topic_partitions] == [KafkaError.INVALID_GROUP_ID]
