"""Native groups and Kafka's, side by side on one broker, with real clients of both kinds; and what a kill leaves of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient  # type: ignore[attr-defined]

from levada.v1 import stream_pb2 as pb
from support.levada import LevadaBroker
from support.rpc import Stubs, connect, record, refused
from support.subscriber import PATIENCE_S, subscribed
from support.wait import wait_until

SESSION_MS = 6_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LevadaBroker]:
    with LevadaBroker(tmp_path / "broker", {"group.min.session.timeout.ms": "1000"}) as running:
        yield running


@pytest.fixture
def client(broker: LevadaBroker) -> Iterator[Stubs]:
    with connect(broker.grpc) as client:
        client.create("t", 2)
        client.publish("t", *(record(b"%d" % number, partition=number % 2) for number in range(10)))
        yield client


@pytest.fixture
def admin(broker: LevadaBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def register(client: Stubs, consumers: int, group: str = "g", topic: str = "t") -> Any:
    return client.stream.RegisterGroup(pb.RegisterGroupRequest(topic=topic, group=group, consumers=consumers))


def describe(client: Stubs, group: str = "g") -> Any:
    return client.stream.DescribeGroup(pb.DescribeGroupRequest(group=group))


def kinds(client: Stubs) -> dict[str, int]:
    return {one.group: one.kind for one in client.stream.ListGroups(pb.ListGroupsRequest()).groups}


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
            if message is not None and message.error() is not None:
                self.errors.append(message.error().code())
        self._consumer.close()

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


def test_a_kafka_client_is_refused_by_a_native_group_and_welcome_once_it_is_empty(
    broker: LevadaBroker, client: Stubs
) -> None:
    with subscribed(client, "t", group="g") as native:
        native.wait_owned({0, 1})
        with kafka_member(broker) as member:
            wait_until(lambda: member.errors, PATIENCE_S, "an error")
            assert member.errors[0] == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        assert native.refusal is None and native.owned == {0, 1}
    wait_until(lambda: describe(client).state == "Empty", PATIENCE_S, "left")
    with kafka_member(broker) as member:
        wait_until(lambda: member.assigned, PATIENCE_S, "assigned")
        assert kinds(client) == {"g": pb.CLASSIC}


def test_a_native_consumer_is_refused_by_a_kafka_group_and_welcome_once_it_is_empty(
    broker: LevadaBroker, client: Stubs
) -> None:
    with kafka_member(broker) as member:
        wait_until(lambda: member.assigned, PATIENCE_S, "assigned")
        with subscribed(client, "t", group="g") as native:
            assert native.wait_refused().reason == "GroupKindMismatch"
        with refused("GroupKindMismatch"):
            register(client, 2)
        with refused("GroupKindMismatch"):
            client.stream.Seek(pb.SeekRequest(group="g", topic="t", start=pb.LATEST))
        generation = describe(client).generation
    with subscribed(client, "t", group="g") as native:
        native.wait_owned({0, 1})
        assert native.generation > generation
        assert kinds(client) == {"g": pb.DYNAMIC}


def test_a_registered_group_is_fixed_until_it_is_deleted(broker: LevadaBroker, client: Stubs) -> None:
    register(client, 2)
    with subscribed(client, "t", group="g") as native:
        assert native.wait_refused().reason == "GroupKindMismatch"
    with kafka_member(broker) as member:
        wait_until(lambda: member.errors, PATIENCE_S, "an error")
        assert member.errors[0] == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    assert kinds(client) == {"g": pb.FIXED}
    client.stream.DeleteGroup(pb.DeleteGroupRequest(group="g"))
    assert kinds(client) == {}
    with subscribed(client, "t", group="g") as native:
        native.wait_owned({0, 1})


# What Kafka's administrators see and do


def test_kafkas_administrators_see_native_groups_and_delete_them_once_empty(
    broker: LevadaBroker, client: Stubs, admin: AdminClient
) -> None:
    with subscribed(client, "t", group="g", client_id="worker") as native:
        native.wait_owned({0, 1})
        assert native.commit({0: 3}) == {}
        listed = admin.list_consumer_groups().result().valid
        assert [(one.group_id, one.state) for one in listed] == [("g", ConsumerGroupState.STABLE)]
        described = admin.describe_consumer_groups(["g"])["g"].result()
        (member,) = described.members
        assert (member.member_id, member.client_id) == (native.member_id, "worker")
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
    wait_until(lambda: describe(client).state == "Empty", PATIENCE_S, "left")
    asked = ConsumerGroupTopicPartitions("g")
    (found,) = [one.result() for one in admin.list_consumer_group_offsets([asked]).values()]
    assert [(at.partition, at.offset) for at in found.topic_partitions] == [(0, 3)]
    for future in admin.delete_consumer_groups(["g"]).values():
        future.result()
    assert kinds(client) == {}
    assert not client.stream.GetOffset(pb.GetOffsetRequest(group="g")).offsets


def test_kafkas_administrators_move_a_native_group_only_while_it_is_empty(client: Stubs, admin: AdminClient) -> None:
    def alter(offset: int) -> int | None:
        wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, offset)])
        (done,) = admin.alter_consumer_group_offsets([wanted]).values()
        return done.result().topic_partitions[0].error

    with subscribed(client, "t", group="g") as native:
        native.wait_owned({0, 1})
        error = alter(4)
        assert error is not None and error.code() == KafkaError.UNKNOWN_MEMBER_ID
    wait_until(lambda: describe(client).state == "Empty", PATIENCE_S, "left")
    assert alter(4) is None
    with subscribed(client, "t", group="g") as native:
        native.wait_read(6)
        assert native.offsets(0) == [4]


# What a kill leaves


def test_generations_and_registrations_are_there_after_a_kill(broker: LevadaBroker, client: Stubs) -> None:
    registered = register(client, 2, group="fixed")
    with subscribed(client, "t", group="g") as native:
        native.wait_owned({0, 1})
        assert native.commit({0: 3, 1: 4}) == {}
        told = native.generation
        broker.kill()
        native.wait_refused()
    broker.start()
    with connect(broker.grpc) as again:
        assert kinds(again) == {"g": pb.DYNAMIC, "fixed": pb.FIXED}
        with subscribed(again, "t", group="g") as native:
            native.wait_read(3)
            assert native.generation > told
            assert (native.offsets(0), native.offsets(1)) == ([3, 4], [4])
        same = register(again, 2, group="fixed")
        assert (same.same, same.generation) == (True, registered.generation)
        with subscribed(again, "t", group="fixed", consumer=1, generation=registered.generation) as fixed:
            fixed.wait_owned({1})
        with kafka_member(broker, "fixed") as member:
            wait_until(lambda: member.errors, PATIENCE_S, "an error")
            assert member.errors[0] == KafkaError.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_of_before_a_kill_commits_nothing_after_it(broker: LevadaBroker, client: Stubs) -> None:
    with subscribed(client, "t", group="g") as native:
        native.wait_owned({0, 1})
        late = pb.CommitRequest(
            group="g",
            member_id=native.member_id,
            generation=native.generation,
            offsets=[pb.PartitionOffset(topic="t", partition=0, offset=5)],
        )
        broker.kill()
        native.wait_refused()
    broker.start()
    with connect(broker.grpc) as again:
        (error,) = again.stream.Commit(late).errors
        assert error.error.reason == "UnknownMember"
        with subscribed(again, "t", group="g") as native:
            native.wait_owned({0, 1})
            (error,) = again.stream.Commit(late).errors
            assert error.error.reason == "IllegalGeneration"
