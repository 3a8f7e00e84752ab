"""Scenarios 1 to 4, through gRPC: topics are created, expanded, never shrunk, deleted and made again; their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from levada.v1 import stream_pb2 as pb
from support.brokers import levada_only
from support.levada import LevadaBroker
from support.rpc import Stubs, connect, record, refused
from support.wait import wait_until

pytestmark = levada_only

WAIT_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LevadaBroker]:
    with LevadaBroker(tmp_path / "broker", {"file.delete.delay.ms": "100"}) as broker:
        yield broker


@pytest.fixture
def client(broker: LevadaBroker) -> Iterator[Stubs]:
    with connect(broker.grpc) as client:
        yield client


def consumer(broker: LevadaBroker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )


def partitions_seen_by_kafka(broker: LevadaBroker, topic: str) -> int:
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=WAIT_S).topics
    return len(topics[topic].partitions) if topic in topics else 0


def test_scenario_1_create_again_expand_and_never_shrink(broker: LevadaBroker, client: Stubs) -> None:
    outcome = pb.CreateTopicResponse
    assert client.create("t", 4).outcome == outcome.CREATED
    for partition in range(4):
        client.publish("t", *(record(b"%d-%d" % (partition, number), partition=partition) for number in range(3)))
    same = client.create("t", 4)
    assert (same.outcome, same.topic.partitions) == (outcome.SAME, 4)

    running = consumer(broker, "running")
    running.subscribe(["t"])
    got: list[tuple[int, int, bytes]] = []

    def poll_until(count: int) -> None:
        def look() -> bool:
            message = running.poll(0.1)
            if message is not None and message.error() is None:
                got.append((message.partition(), message.offset(), message.value()))
            return len(got) >= count

        wait_until(look, WAIT_S, lambda: f"{count} records; came {got}")

    poll_until(12)
    native = client.stream.Subscribe(
        iter([pb.SubscribeRequest(open=pb.SubscribeRequest.Open(topics=["t"], group="native"))]), timeout=WAIT_S
    )
    assert len(next(native).assigned.partitions) == 4

    more = client.create("t", 6)
    assert (more.outcome, more.topic.partitions, more.topic.id) == (outcome.EXPANDED, 6, same.topic.id)
    assert client.stored("t") == {0: 3, 1: 3, 2: 3, 3: 3, 4: 0, 5: 0}
    for partition in range(4):
        assert client.values("t", partition) == [b"%d-%d" % (partition, number) for number in range(3)]
    client.publish("t", record(b"4-0", partition=4), record(b"5-0", partition=5))
    poll_until(14)
    assert {(4, 0, b"4-0"), (5, 0, b"5-0")} <= set(got)
    delivered: set[bytes] = set()
    for answer in native:
        delivered |= {each.value for each in answer.records.records}
        if {b"4-0", b"5-0"} <= delivered:
            break
    native.cancel()
    running.close()

    with refused("PartitionsCannotShrink", "has 6 partitions; it cannot be made to have 3"):
        client.create("t", 3)
    with refused("PartitionsCannotShrink"):
        client.stream.ExpandTopic(pb.ExpandTopicRequest(name="t", partitions=5))
    assert len(client.partitions("t")) == 6
    assert partitions_seen_by_kafka(broker, "t") == 6


def test_scenario_2_an_empty_topic_is_there_after_kill_9(broker: LevadaBroker) -> None:
    with connect(broker.grpc) as client:
        made = client.create("empty", 6, retention_ms="1234").topic
    broker.kill()
    broker.start()
    with connect(broker.grpc) as client:
        about = client.stream.DescribeTopic(pb.DescribeTopicRequest(name="empty"))
    assert about.topic == made
    assert [(each.index, each.start, each.end) for each in about.partitions] == [(index, 0, 0) for index in range(6)]
    assert partitions_seen_by_kafka(broker, "empty") == 6


def test_scenario_2_an_expansion_is_there_after_kill_9(broker: LevadaBroker) -> None:
    with connect(broker.grpc) as client:
        client.create("t", 2)
        client.publish("t", record(b"kept", partition=1))
        client.create("t", 5)
    broker.kill()
    broker.start()
    with connect(broker.grpc) as client:
        assert client.stored("t") == {0: 0, 1: 1, 2: 0, 3: 0, 4: 0}


def test_scenario_3_a_deleted_topic_leaves_nothing_and_begins_anew(broker: LevadaBroker, client: Stubs) -> None:
    first = client.create("t", 2).topic
    client.publish("t", *(record(b"%d" % number, partition=number % 2) for number in range(10)))
    commit = pb.CommitRequest(group="native", offsets=[pb.PartitionOffset(topic="t", partition=0, offset=3)])
    assert list(client.stream.Commit(commit).errors) == []
    theirs = consumer(broker, "kafka")
    theirs.commit(offsets=[TopicPartition("t", 1, 4)], asynchronous=False)

    client.stream.DeleteTopic(pb.DeleteTopicRequest(name="t"))
    topics = broker.data / "topics"
    wait_until(lambda: not list(topics.glob("t-*")), WAIT_S, lambda: f"left are {list(topics.glob('t-*'))}")
    with refused("UnknownTopic"):
        client.read("t")
    assert partitions_seen_by_kafka(broker, "t") == 0

    again = client.create("t", 2).topic
    assert again.id != first.id
    assert client.stored("t") == {0: 0, 1: 0}
    [position] = client.publish("t", record(b"new", partition=0))
    assert position.offset == 0
    for group in ("native", "kafka"):
        rows = client.stream.GetOffset(pb.GetOffsetRequest(group=group, topic="t")).offsets
        assert [row.HasField("committed") for row in rows] == [False, False]
    [committed] = theirs.committed([TopicPartition("t", 1)], timeout=WAIT_S)
    assert committed.offset < 0
    theirs.close()


@pytest.mark.parametrize(
    ("name", "reason", "rule"),
    [
        ("", "InvalidTopicName", "at least one character"),
        ("a" * 250, "InvalidTopicName", "at most 249 characters, this one has 250"),
        (".", "InvalidTopicName", r'cannot be called "\."'),
        ("..", "InvalidTopicName", r'cannot be called "\.\."'),
        ("a/b", "InvalidTopicName", r"only \[A-Za-z0-9._-\]"),
        ("a b", "InvalidTopicName", r"only \[A-Za-z0-9._-\]"),
        ("ü", "InvalidTopicName", r"only \[A-Za-z0-9._-\]"),
        ("__levada.x", "ReservedName", "the broker's own"),
        ("dlq.x", "ReservedName", "the broker's own"),
    ],
)
def test_scenario_4_names_that_are_refused(shared: Stubs, name: str, reason: str, rule: str) -> None:
    with refused(reason, rule):
        shared.create(name, 1)
    assert name not in {topic.name for topic in shared.stream.ListTopics(pb.ListTopicsRequest(internal=True)).topics}


@pytest.mark.parametrize("name", ["a.b_c-9", "a" * 249])
def test_scenario_4_names_that_are_accepted(shared: Stubs, name: str) -> None:
    assert shared.create(name, 1).topic.name == name
    shared.publish(name, record(b"kept"))
    assert shared.values(name) == [b"kept"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stubs]:
    """One broker for all names."""
    with LevadaBroker(tmp_path_factory.mktemp("names")) as broker, connect(broker.grpc) as client:
        yield client


def test_a_topic_made_over_the_kafka_wire_is_the_same_to_native_clients(broker: LevadaBroker, client: Stubs) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    producer.produce("theirs", b"v", key=b"user-123")
    producer.flush(WAIT_S)
    topic = client.stream.DescribeTopic(pb.DescribeTopicRequest(name="theirs")).topic
    assert topic.router == "murmur2"
    assert client.values("theirs") == [b"v"]
