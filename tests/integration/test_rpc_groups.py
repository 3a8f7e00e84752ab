"""The gRPC front: groups, offsets and subscriptions, over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from levada.records.read import read_all
from levada.server import Server
from levada.v1 import stream_pb2 as pb
from support.broker import running
from support.rpc import Stubs, connect_async, failure, record, refused

QUICK = {"group.min.session.timeout.ms": "100"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path, QUICK) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Stubs]:
    host, port = server.addresses["grpc"]
    async with connect_async(f"{host}:{port}") as client:
        yield client


async def create(client: Stubs, name: str = "t", partitions: int = 1) -> None:
    await client.stream.CreateTopic(pb.CreateTopicRequest(name=name, partitions=partitions))


async def publish(client: Stubs, *values: bytes, partition: int = 0, topic: str = "t") -> None:
    records = [record(value, partition=partition) for value in values]
    await client.stream.Publish(pb.PublishRequest(topic=topic, records=records))


class Subscriber:
    """A subscription as a client has it."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def say(self, **kind: Any) -> None:
        await self.call.write(pb.SubscribeRequest(**kind))

    async def next(self) -> pb.SubscribeResponse:
        answer = await asyncio.wait_for(self.call.read(), 20)
        if answer is grpc.aio.EOF:
            raise await failure(self.call)
        return answer

    async def assigned(self) -> dict[int, int]:
        """Partition → where reading goes on; whatever else comes before is passed over."""
        while True:
            answer = await self.next()
            if answer.HasField("assigned"):
                self.told = answer.assigned
                return {each.partition: each.offset for each in answer.assigned.partitions}

    async def values(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            answer = await self.next()
            assert answer.HasField("records"), answer
            found += [each.value for each in answer.records.records]
            self.next_offset = answer.records.next_offset
        return found

    async def committed(self) -> pb.SubscribeResponse.Committed:
        while True:
            answer = await self.next()
            if answer.HasField("committed"):
                return answer.committed


@asynccontextmanager
async def subscribed(client: Stubs, **fields: Any) -> AsyncIterator[Subscriber]:
    call = client.stream.Subscribe()
    subscriber = Subscriber(call)
    await subscriber.say(open=pb.SubscribeRequest.Open(**fields))
    try:
        yield subscriber
    finally:
        call.cancel()


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def at(partition: int, topic: str = "t") -> pb.TopicPartition:
    return pb.TopicPartition(topic=topic, partition=partition)


def to(offset: int, partition: int = 0, topic: str = "t", **more: Any) -> pb.PartitionOffset:
    return pb.PartitionOffset(topic=topic, partition=partition, offset=offset, **more)


# Subscriptions


async def test_a_member_gets_what_was_there_and_what_comes(client: Stubs) -> None:
    await create(client)
    await publish(client, *numbers(0, 3))
    async with subscribed(client, topics=["t"], group="g", client_id="me") as member:
        assert await member.assigned() == {0: 0}
        assert member.told.member_id.startswith("me-")
        assert await member.values(3) == numbers(0, 3)
        await publish(client, *numbers(3, 5))
        assert await member.values(2) == numbers(3, 5)
        assert member.next_offset == 5


async def test_commits_are_answered_by_their_id_and_kept(client: Stubs) -> None:
    await create(client)
    await publish(client, *numbers(0, 10))
    async with subscribed(client, topics=["t"], group="g") as member:
        await member.assigned()
        await member.values(10)
        commit = pb.SubscribeRequest.CommitOffsets
        await member.say(commit=commit(id=5, offsets=[to(4, metadata="m")]))
        await member.say(commit=commit(id=6, offsets=[to(99), to(0, topic="nope")]))
        first, second = await member.committed(), await member.committed()
        assert (first.id, list(first.errors)) == (5, [])
        assert {(each.topic, each.error.reason) for each in second.errors} == {
            ("t", "OffsetOutOfRange"),
            ("nope", "UnknownTopic"),
        }
    async with subscribed(client, topics=["t"], group="g") as member:
        assert await member.assigned() == {0: 4}


async def test_no_more_is_delivered_than_was_granted(client: Stubs) -> None:
    await create(client)
    for value in numbers(0, 10):
        await publish(client, value)
    async with subscribed(client, topics=["t"], group="g", records_max=3) as member:
        await member.assigned()
        assert await member.values(3) == numbers(0, 3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await asyncio.shield(waiting := asyncio.ensure_future(member.values(2)))
        await member.say(grant=pb.SubscribeRequest.Grant(records=2))
        assert await waiting == numbers(3, 5)


async def test_a_client_that_closes_its_side_gets_all(client: Stubs) -> None:
    await create(client)
    await publish(client, *numbers(0, 2500))
    async with subscribed(client, topics=["t"], group="g", records_max=10) as member:
        await member.call.done_writing()
        await member.assigned()
        assert await member.values(2500) == numbers(0, 2500)


async def test_seeking_pausing_and_going_on(client: Stubs) -> None:
    await create(client)
    await publish(client, *numbers(0, 4))
    async with subscribed(client, topics=["t"], group="g") as member:
        await member.assigned()
        await member.values(4)
        await member.say(seek=pb.SubscribeRequest.SeekTo(offsets=[to(2)]))
        assert await member.assigned() == {0: 2}
        assert await member.values(2) == numbers(2, 4)
        await member.say(pause=pb.SubscribeRequest.Pause(paused=[at(0)]))
        await member.say(commit=pb.SubscribeRequest.CommitOffsets(id=1, offsets=[to(4)]))
        await member.committed()  # by then the pause was taken too
        await publish(client, *numbers(4, 6))
        waiting = asyncio.ensure_future(member.values(2))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await member.say(pause=pb.SubscribeRequest.Pause(resumed=[at(0)]))
        assert await waiting == numbers(4, 6)


async def test_partitions_of_ones_own_choice(client: Stubs) -> None:
    await create(client, partitions=3)
    for partition in range(3):
        await publish(client, *numbers(partition * 10, partition * 10 + 3), partition=partition)
    chosen = [at(0), at(2)]
    async with subscribed(client, partitions=chosen, offsets=[to(1, 2)], start=pb.LATEST) as reader:
        assert await reader.assigned() == {0: 3, 2: 1}
        assert await reader.values(2) == [b"21", b"22"]


async def test_raw_batches_hold_the_same_records(client: Stubs) -> None:
    await create(client)
    await publish(client, *numbers(0, 5))
    async with subscribed(client, topics=["t"], group="g", raw=True) as member:
        await member.assigned()
        batches = (await member.next()).batches
        assert (getattr(batches, "from"), batches.to, batches.end, batches.count) == (0, 5, 5, 5)
        assert [each.value for each in read_all(batches.data)] == numbers(0, 5)


async def test_members_share_the_partitions_and_expansion_reaches_them(client: Stubs) -> None:
    await create(client, partitions=4)
    async with subscribed(client, topics=["t"], group="g") as one:
        assert set(await one.assigned()) == {0, 1, 2, 3}
        async with subscribed(client, topics=["t"], group="g") as two:
            first, second = await one.assigned(), await two.assigned()
            assert sorted([*first, *second]) == [0, 1, 2, 3]
            assert len(first) == len(second) == 2
            await create(client, partitions=6)
            assert sorted([*await one.assigned(), *await two.assigned()]) == [0, 1, 2, 3, 4, 5]
        assert set(await one.assigned()) == {0, 1, 2, 3, 4, 5}, "the other one left"


async def test_a_member_without_signs_of_life_is_taken_for_dead(client: Stubs) -> None:
    await create(client)
    async with subscribed(client, topics=["t"], group="g", session_timeout_ms=150) as member:
        with refused("UnknownMember", "no sign of life for 150 ms"):
            while True:
                await member.next()


@pytest.mark.parametrize(
    "said",
    [
        {"alive": pb.SubscribeRequest.SignOfLife()},
        {"grant": pb.SubscribeRequest.Grant(records=1)},
        {"pause": pb.SubscribeRequest.Pause()},
    ],
)
async def test_whatever_a_member_says_is_a_sign_of_life(
    server: Server, client: Stubs, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    assert server._native is not None
    groups = server._native.groups
    heard: asyncio.Queue[str] = asyncio.Queue()
    alive = groups.alive

    def listens(group_id: str, member_id: str, now_ms: int) -> None:
        alive(group_id, member_id, now_ms)
        heard.put_nowait(member_id)

    monkeypatch.setattr(groups, "alive", listens)
    await create(client)
    async with subscribed(client, topics=["t"], group="g", session_timeout_ms=60_000) as member:
        await member.assigned()
        await member.say(**said)
        assert await asyncio.wait_for(heard.get(), 20) == member.told.member_id


@pytest.mark.parametrize(
    ("fields", "reason", "match"),
    [
        ({"group": "g"}, "InvalidRequest", "at least one topic"),
        ({}, "InvalidRequest", "needs a group"),
        ({"group": "g", "topics": ["nope"]}, "UnknownTopic", "nope"),
        ({"group": "__levada.x", "topics": ["t"]}, "InvalidGroupId", "broker's own"),
        ({"partitions": [at(9)]}, "UnknownPartition", "not 9"),
        ({"group": "g", "topics": ["t"], "session_timeout_ms": 1}, "InvalidSessionTimeout", "from 100"),
        ({"group": "g", "topics": ["t"], "records_max": 5000}, "InvalidRequest", "1 to 1000"),
        ({"group": "g", "topics": ["t"], "start": 9}, "InvalidRequest", "start 9"),
        ({"group": "g", "consumer": 0}, "UnknownGroup", "g"),
        ({"partitions": [at(0)], "start": pb.NONE}, "OffsetOutOfRange", ""),
    ],
)
async def test_what_cannot_be_subscribed_to(client: Stubs, fields: dict[str, Any], reason: str, match: str) -> None:
    await create(client)
    async with subscribed(client, **fields) as member:
        with refused(reason, match):
            while True:
                await member.next()


async def test_the_first_request_opens_and_no_other_does(client: Stubs) -> None:
    await create(client)
    call = client.stream.Subscribe()
    await call.write(pb.SubscribeRequest(grant=pb.SubscribeRequest.Grant(records=1)))
    with refused("InvalidRequest", "open"):
        await Subscriber(call).next()
    async with subscribed(client, topics=["t"], group="g") as member:
        await member.assigned()
        await member.say(open=pb.SubscribeRequest.Open(topics=["t"], group="g"))
        with refused("InvalidRequest", "opened once"):
            await member.next()


async def test_stopping_tells_subscribers(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK) as server:
        host, port = server.addresses["grpc"]
        async with connect_async(f"{host}:{port}") as client:
            await create(client)
            async with subscribed(client, topics=["t"], group="g") as member:
                await member.assigned()
                async with subscribed(client, partitions=[at(0)]) as reader:
                    await reader.assigned()
                    await server.stop(grace_s=20)
                    for one in (member, reader):
                        with refused("ShuttingDown", code=grpc.StatusCode.UNAVAILABLE):
                            await one.next()


# Fixed groups


async def test_the_fixed_form(client: Stubs) -> None:
    await create(client, partitions=6)
    register = pb.RegisterGroupRequest(topic="t", group="g", consumers=3)
    first = await client.stream.RegisterGroup(register)
    again = await client.stream.RegisterGroup(register)
    assert (first.same, again.same, again.generation) == (False, True, first.generation)
    async with subscribed(client, group="g", consumer=1, generation=first.generation) as consumer:
        assert set(await consumer.assigned()) == {1, 4}
        other = await client.stream.RegisterGroup(pb.RegisterGroupRequest(topic="t", group="g", consumers=2))
        assert other.generation > first.generation
        with refused("IllegalGeneration"):
            await consumer.next()
    for consumers in (0, -1):
        with refused("InvalidRequest"):
            await client.stream.RegisterGroup(pb.RegisterGroupRequest(topic="t", group="g", consumers=consumers))
    with refused("GroupKindMismatch"):
        async with subscribed(client, topics=["t"], group="g") as member:
            await member.next()


# Where groups stand


async def test_committing_and_asking(client: Stubs) -> None:
    await create(client, partitions=2)
    await publish(client, *numbers(0, 10))
    answer = await client.stream.Commit(pb.CommitRequest(group="g", offsets=[to(4, metadata="m"), to(7, 1), to(1, 9)]))
    assert {each.partition: each.error.reason for each in answer.errors} == {
        1: "OffsetOutOfRange",
        9: "UnknownPartition",
    }
    rows = (await client.stream.GetOffset(pb.GetOffsetRequest(group="g", topic="t"))).offsets
    assert [(row.partition, row.HasField("committed"), row.committed, row.end, row.lag) for row in rows] == [
        (0, True, 4, 10, 6),
        (1, False, 0, 0, 0),
    ]
    assert rows[0].metadata == "m"
    assert [row.partition for row in (await client.stream.GetOffset(pb.GetOffsetRequest(group="g"))).offsets] == [0]
    with refused("UnknownTopic"):
        await client.stream.GetOffset(pb.GetOffsetRequest(group="g", topic="nope"))
    with refused("InvalidRequest", "more than once"):
        await client.stream.Commit(pb.CommitRequest(group="g", offsets=[to(1), to(2)]))


async def test_a_members_commit_is_fenced_by_its_generation(client: Stubs) -> None:
    await create(client)
    await publish(client, *numbers(0, 10))
    async with subscribed(client, topics=["t"], group="g") as member:
        await member.assigned()
        told = member.told
        good = pb.CommitRequest(group="g", member_id=told.member_id, generation=told.generation, offsets=[to(3)])
        assert list((await client.stream.Commit(good)).errors) == []
        bad = pb.CommitRequest(group="g", member_id=told.member_id, generation=told.generation + 1, offsets=[to(4)])
        [error] = (await client.stream.Commit(bad)).errors
        assert error.error.reason == "IllegalGeneration"


async def test_seeking_a_group(client: Stubs) -> None:
    await create(client, partitions=2)
    await publish(client, *numbers(0, 10))

    async def seek(**fields: Any) -> dict[int, int]:
        answer = await client.stream.Seek(pb.SeekRequest(group="g", topic="t", **fields))
        return {each.partition: each.offset for each in answer.offsets}

    assert await seek(offset=4, partitions=[0]) == {0: 4}
    assert await seek(shift=-1, partitions=[0], dry_run=True) == {0: 3}
    assert await seek(start=pb.LATEST) == {0: 10, 1: 0}
    assert await seek(start=pb.EARLIEST) == {0: 0, 1: 0}
    assert await seek(timestamp_ms=2**52) == {0: 10, 1: 0}
    assert await seek(shift=-3) == {0: 7, 1: 0}
    with refused("OffsetOutOfRange", "0 to 10") as refusal:
        await seek(offset=11, partitions=[0])
    assert refusal.metadata == {"start": "0", "end": "10"}
    with refused("UnknownPartition"):
        await seek(offset=0, partitions=[5])
    for wrong in ({}, {"start": pb.NONE}):
        with refused("InvalidRequest", "a seek goes to"):
            await seek(**wrong)
    async with subscribed(client, topics=["t"], group="g") as member:
        assert await member.assigned() == {0: 7, 1: 0}
        await member.values(3)
        await seek(offset=9, partitions=[0])
        assert (await member.assigned())[0] == 9
        assert await member.values(1) == [b"9"]


# All groups


async def test_groups_are_listed_described_and_deleted(client: Stubs) -> None:
    await create(client, partitions=2)
    await publish(client, *numbers(0, 10))
    await client.stream.Publish(pb.PublishRequest(topic="t", records=[record()]))  # makes the broker's own group
    await client.stream.Commit(pb.CommitRequest(group="just-offsets", offsets=[to(4)]))
    await client.stream.RegisterGroup(pb.RegisterGroupRequest(topic="t", group="fixed", consumers=2))
    async with subscribed(client, topics=["t"], group="dynamic", client_id="me") as member:
        await member.assigned()
        listed = (await client.stream.ListGroups(pb.ListGroupsRequest())).groups
        assert [(each.group, each.kind, each.members, each.state) for each in listed] == [
            ("dynamic", pb.DYNAMIC, 1, "Stable"),
            ("fixed", pb.FIXED, 0, "Empty"),
            ("just-offsets", pb.OFFSETS, 0, "Empty"),
        ]
        about = await client.stream.DescribeGroup(pb.DescribeGroupRequest(group="dynamic"))
        [seat] = about.members
        assert (seat.client_id, seat.host, seat.member_id) == ("me", "127.0.0.1", member.told.member_id)
        assert [each.partition for each in seat.partitions] == [0, 1]
        assert {each.member_id for each in about.offsets} == {member.told.member_id}
        with refused("GroupNotEmpty"):
            await client.stream.DeleteGroup(pb.DeleteGroupRequest(group="dynamic"))
    about = await client.stream.DescribeGroup(pb.DescribeGroupRequest(group="just-offsets"))
    assert (about.kind, [each.committed for each in about.offsets]) == (pb.OFFSETS, [4])
    for name in ("just-offsets", "fixed"):
        await client.stream.DeleteGroup(pb.DeleteGroupRequest(group=name))
        with refused("UnknownGroup", name):
            await client.stream.DescribeGroup(pb.DescribeGroupRequest(group=name))
    for name in ("nope", "__levada.keyless"):
        with refused("UnknownGroup"):
            await client.stream.DeleteGroup(pb.DeleteGroupRequest(group=name))


async def test_a_kafka_group_is_shown_and_cannot_be_joined(server: Server, client: Stubs) -> None:
    from aiokafka import AIOKafkaConsumer

    await create(client, partitions=2)
    host, port = server.addresses["kafka"]
    consumer = AIOKafkaConsumer("t", bootstrap_servers=f"{host}:{port}", group_id="theirs", client_id="kafka-me")
    await consumer.start()
    try:
        async with asyncio.timeout(60):
            while len(consumer.assignment()) < 2:  # noqa: ASYNC110  # the client has no event for it
                await asyncio.sleep(0.01)
        [listed] = (await client.stream.ListGroups(pb.ListGroupsRequest())).groups
        assert (listed.group, listed.kind, listed.members) == ("theirs", pb.CLASSIC, 1)
        about = await client.stream.DescribeGroup(pb.DescribeGroupRequest(group="theirs"))
        assert [each.partition for each in about.members[0].partitions] == [0, 1]
        assert about.members[0].client_id == "kafka-me"
        with refused("GroupKindMismatch", "Kafka"):
            async with subscribed(client, topics=["t"], group="theirs") as member:
                await member.next()
    finally:
        await consumer.stop()
