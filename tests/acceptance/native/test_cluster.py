"""Scenarios 32 and 33, through gRPC: the plan of partitions over nodes, and nodes that come and go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from confluent_kafka.admin import AdminClient

from levada.v1 import cluster_pb2 as pb
from levada.v1 import stream_pb2
from support.levada import LevadaBroker
from support.rpc import Stubs, connect, record, refused
from support.wait import wait_until

PLAN = [["n1", "n2"], ["n2", "n3"], ["n3", "n1"], ["n1", "n2"]]
WAIT_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LevadaBroker]:
    with LevadaBroker(tmp_path / "broker", {"levada.durability": "os"}) as broker:
        yield broker


@pytest.fixture
def client(broker: LevadaBroker) -> Iterator[Stubs]:
    with connect(f"127.0.0.1:{broker.grpc_port}") as client:
        yield client


def join(client: Stubs, *ids: str, timeout_ms: int = 60_000) -> None:
    for place, node_id in enumerate(ids, 1):
        address, kafka = f"10.0.0.{place}:9094", f"10.0.0.{place}:9092"
        client.cluster.Join(pb.JoinRequest(id=node_id, address=address, kafka=kafka, timeout_ms=timeout_ms))


def nodes(client: Stubs) -> list[str]:
    return [node.id for node in client.cluster.GetNodes(pb.GetNodesRequest()).nodes]


def leader(client: Stubs) -> str:
    return str(client.cluster.GetLeader(pb.GetLeaderRequest()).leader.id)


def create(client: Stubs, name: str, partitions: int, replication_factor: int) -> None:
    client.stream.CreateTopic(
        stream_pb2.CreateTopicRequest(name=name, partitions=partitions, replication_factor=replication_factor)
    )


def placement(client: Stubs, topic: str = "") -> list[pb.PartitionPlacement]:
    return list(client.cluster.GetPlacement(pb.GetPlacementRequest(topic=topic)).partitions)


def replicas(client: Stubs, topic: str) -> list[list[str]]:
    return [list(each.replicas) for each in placement(client, topic)]


def test_32_leaders_go_round_the_nodes_and_replicas_wrap_on(client: Stubs) -> None:
    join(client, "n2", "n3")
    create(client, "t", 4, 2)
    assert [each.leader for each in placement(client, "t")] == ["n1", "n2", "n3", "n1"]
    assert replicas(client, "t") == PLAN
    described = client.stream.DescribeTopic(stream_pb2.DescribeTopicRequest(name="t"))
    assert [list(each.replicas) for each in described.partitions] == PLAN
    assert [each.leader for each in described.partitions] == ["n1", "n2", "n3", "n1"]


def test_32_there_are_at_most_as_many_copies_as_nodes(client: Stubs) -> None:
    join(client, "n2", "n3")
    create(client, "t", 2, 5)
    assert replicas(client, "t") == [["n1", "n2", "n3"], ["n2", "n3", "n1"]]
    with refused("InvalidReplicationFactor", "-1: must be at least 1", grpc.StatusCode.INVALID_ARGUMENT):
        create(client, "u", 2, -1)


def test_32_the_plan_and_the_nodes_survive_kill_9(broker: LevadaBroker) -> None:
    with connect(f"127.0.0.1:{broker.grpc_port}") as client:
        join(client, "n3", "n2")
        create(client, "t", 4, 2)
        join(client, "n10")
        client.cluster.Leave(pb.LeaveRequest(id="n2"))
    broker.kill()
    broker.start()
    with connect(f"127.0.0.1:{broker.grpc_port}") as client:
        assert nodes(client) == ["n1", "n3", "n10"]
        assert replicas(client, "t") == PLAN


def test_32_an_expanded_topic_goes_on_with_the_plan_and_keeps_what_it_has(client: Stubs) -> None:
    join(client, "n2", "n3")
    create(client, "t", 4, 2)
    client.cluster.Leave(pb.LeaveRequest(id="n2"))
    client.stream.ExpandTopic(stream_pb2.ExpandTopicRequest(name="t", partitions=6))
    assert replicas(client, "t") == [*PLAN, ["n1", "n3"], ["n3", "n1"]]


def test_32_each_partition_is_shown_with_its_last_offset(client: Stubs) -> None:
    create(client, "t", 2, 1)
    client.publish("t", record(b"a", partition=0), record(b"b", partition=0))
    assert [(each.partition, each.last_offset) for each in placement(client, "t")] == [(0, 1), (1, -1)]
    create(client, "u", 1, 1)
    assert [(each.topic, each.last_offset) for each in placement(client) if each.topic in "tu"] == [
        ("t", 1),
        ("t", -1),
        ("u", -1),
    ]
    with refused("UnknownTopic", "there is no topic nope", grpc.StatusCode.NOT_FOUND):
        placement(client, "nope")


def test_32_kafka_clients_are_always_sent_to_this_broker(broker: LevadaBroker, client: Stubs) -> None:
    join(client, "n2", "n3")
    create(client, "t", 4, 3)
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics("t", timeout=WAIT_S)
    assert list(found.brokers) == [1]
    assert [(each.leader, each.replicas, each.isrs) for each in found.topics["t"].partitions.values()] == [
        (1, [1], [1])
    ] * 4


def test_33_a_node_that_stops_its_heartbeat_leaves_the_list(client: Stubs) -> None:
    join(client, "n0", "n2", timeout_ms=1000)
    assert (nodes(client), leader(client)) == (["n0", "n1", "n2"], "n0")
    stopped = threading.Event()

    def keep_alive() -> None:
        while not stopped.wait(0.1):
            client.cluster.Heartbeat(pb.HeartbeatRequest(id="n2"))

    beating = threading.Thread(target=keep_alive)
    beating.start()
    try:
        wait_until(lambda: nodes(client) == ["n1", "n2"], WAIT_S, lambda: f"the nodes are {nodes(client)}")
        assert leader(client) == "n1"
    finally:
        stopped.set()
        beating.join()
    wait_until(lambda: nodes(client) == ["n1"], WAIT_S, lambda: f"the nodes are {nodes(client)}")
    with refused("UnknownNode", "no node 'n0'", grpc.StatusCode.NOT_FOUND):
        client.cluster.Heartbeat(pb.HeartbeatRequest(id="n0"))


def test_33_the_leader_is_the_smallest_id_among_the_rest(client: Stubs) -> None:
    join(client, "n10", "n2", "a9")
    assert nodes(client) == ["a9", "n1", "n2", "n10"]
    assert client.cluster.Heartbeat(pb.HeartbeatRequest(id="n2")).leader == "a9"
    client.cluster.Leave(pb.LeaveRequest(id="a9"))
    assert leader(client) == "n1"
    assert [node.leader for node in client.cluster.GetNodes(pb.GetNodesRequest()).nodes] == [True, False, False]


def test_33_this_broker_is_a_node_like_the_others_but_cannot_leave(broker: LevadaBroker, client: Stubs) -> None:
    answer = client.cluster.GetNodes(pb.GetNodesRequest())
    (own,) = answer.nodes
    assert (own.id, own.address, own.kafka) == ("n1", f"127.0.0.1:{broker.grpc_port}", broker.bootstrap)
    assert own.self and own.leader and answer.cluster_id
    with refused("InvalidNode", "this broker itself", grpc.StatusCode.INVALID_ARGUMENT):
        client.cluster.Leave(pb.LeaveRequest(id="n1"))
    for bad in (pb.JoinRequest(id="n 2", address="a:1"), pb.JoinRequest(id="n2", address="a")):
        with refused("InvalidNode"):
            client.cluster.Join(bad)
    assert nodes(client) == ["n1"]


def test_stats_tell_what_there_is(client: Stubs) -> None:
    create(client, "t", 3, 1)
    client.publish("t", *(record(b"x" * 100) for _ in range(7)))
    for partition in range(3):
        client.read("t", partition)
    stats = client.cluster.GetStats(pb.GetStatsRequest())
    assert stats.version
    assert (stats.topics, stats.partitions, stats.groups) == (1, 3, 0)
    assert stats.connections >= 1
    assert stats.bytes_on_disk > 700
    assert stats.records_in >= 7 and stats.records_out >= 7
    assert stats.resident_bytes > 10_000_000
    again = client.cluster.GetStats(pb.GetStatsRequest())
    assert again.uptime_ms >= stats.uptime_ms >= 0
