"""Kafka's own ConsumerGroupCommand, unmodified, shown native groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from levada.v1 import stream_pb2 as pb
from support.brokers import Broker, levada_only
from support.driver import Driver
from support.levada import LevadaBroker
from support.native_consumer import NativeConsumer
from support.rpc import Stubs, connect_async, record

pytestmark = levada_only

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

LONG_MS = 600_000

Groups = Callable[..., str]


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Stubs]:
    assert isinstance(broker, LevadaBroker)
    async with connect_async(broker.grpc) as stubs:
        yield stubs


@pytest.fixture
def groups(drivers: Callable[[str], Driver], broker: Broker) -> Groups:
    """Run the tool, expect it to end well, and return what it printed."""

    def tool(*arguments: str) -> str:
        options = ("--bootstrap-server", broker.bootstrap, *arguments)
        answer = drivers("java-4.3").call("tool", main=TOOL, arguments=options, stdin="")
        assert answer["status"] == 0, answer
        return str(answer["out"])

    return tool


async def fill(client: Stubs, topic: str) -> None:
    await client.stream.CreateTopic(pb.CreateTopicRequest(name=topic, partitions=2))
    records = [record(b"v", partition=number % 2) for number in range(10)]
    await client.stream.Publish(pb.PublishRequest(topic=topic, records=records))


def rows(described: str, group: str) -> list[list[str]]:
    """The columns behind the group's name and the topic's: partition, offset, end, lag, member …"""
    return sorted(line.split()[2:] for line in described.splitlines() if line.split()[:1] == [group])


async def test_members_offsets_and_lag_of_a_dynamic_group_are_shown(client: Stubs, groups: Groups, topic: str) -> None:
    await fill(client, topic)
    # It says nothing while the tool runs.
    opening = {"topics": [topic], "group": topic, "client_id": "worker", "session_timeout_ms": LONG_MS}
    consumer = await NativeConsumer(client, **opening).open()
    consumer.read_on()
    await consumer.until(lambda: consumer.count == 10)
    await consumer.commit({(topic, 0): 3})
    await consumer.until(lambda: consumer.committed)
    member_id = consumer.assigned[-1].member_id

    assert topic in groups("--list").split()
    described = groups("--describe", "--group", topic)
    assert rows(described, topic) == [
        ["0", "3", "5", "2", member_id, "/127.0.0.1", "worker"],
        ["1", "-", "5", "-", member_id, "/127.0.0.1", "worker"],
    ], described
    state = groups("--describe", "--group", topic, "--state")
    assert "Stable" in state and "levada-stream" in state, state
    assert member_id in groups("--describe", "--group", topic, "--members", "--verbose")
    reset = partial(groups, "--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest", "--execute")
    assert "can only be reset if the group" in reset()
    await consumer.close()


async def test_a_registered_group_is_shown_reset_and_deleted_while_no_consumer_is_there(
    client: Stubs, groups: Groups, topic: str
) -> None:
    await fill(client, topic)
    await client.stream.RegisterGroup(pb.RegisterGroupRequest(topic=topic, group=topic, consumers=2))
    offsets = [pb.PartitionOffset(topic=topic, partition=index, offset=4) for index in range(2)]
    await client.stream.Commit(pb.CommitRequest(group=topic, offsets=offsets))

    assert [row[:4] for row in rows(groups("--describe", "--group", topic), topic)] == [
        ["0", "4", "5", "1"],
        ["1", "4", "5", "1"],
    ]
    assert "Empty" in groups("--describe", "--group", topic, "--state")
    groups("--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest", "--execute")
    places = (await client.stream.GetOffset(pb.GetOffsetRequest(group=topic))).offsets
    assert [place.committed for place in places] == [0, 0]
    groups("--delete", "--group", topic)
    assert await kind(client, topic) is None


async def kind(client: Stubs, group: str) -> Any:
    listed = (await client.stream.ListGroups(pb.ListGroupsRequest())).groups
    return next((one.kind for one in listed if one.group == group), None)
