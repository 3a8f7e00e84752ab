"""Scenarios 5 to 7, through gRPC: each record lands in exactly one partition, and which one is no accident."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from levada.v1 import stream_pb2 as pb
from support.brokers import levada_only
from support.levada import LevadaBroker
from support.rpc import Stubs, connect, record, refused

pytestmark = levada_only

WAIT_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LevadaBroker]:
    with LevadaBroker(tmp_path_factory.mktemp("broker"), {"levada.durability": "os"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: LevadaBroker) -> Iterator[Stubs]:
    with connect(broker.grpc) as client:
        yield client


def landed(positions: list[pb.Position]) -> list[int]:
    return [position.partition for position in positions]


def test_scenario_5_keys_of_three_partitions(client: Stubs, topic: str) -> None:
    client.create(topic, 3)
    keys = [b"user-123", b"user-456", b"user-123", b"user-123"]
    positions = client.publish(topic, *(record(b"%d" % number, key=key) for number, key in enumerate(keys)))
    assert landed(positions) == [1, 0, 1, 1]
    assert client.values(topic, 1) == [b"0", b"2", b"3"]
    assert client.values(topic, 0) == [b"1"]


@pytest.mark.parametrize(("key", "partition"), [(b"user-123", 7), (b"user-456", 0), (b"order-123", 6), (b"user:1", 3)])
def test_scenario_5_keys_of_twelve_partitions(client: Stubs, topic: str, key: bytes, partition: int) -> None:
    client.create(topic, 12)
    assert landed(client.publish(topic, record(key=key))) == [partition]


def test_scenario_5_with_murmur2_a_key_goes_where_kafkas_clients_put_it(
    broker: LevadaBroker, client: Stubs, topic: str
) -> None:
    client.create(topic, 12, levada_router="murmur2")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
    theirs: dict[bytes, int] = {}
    for number in range(200):
        key = b"key-%d" % number
        producer.produce(
            topic, b"v", key=key, on_delivery=lambda _, message: theirs.__setitem__(message.key(), message.partition())
        )
    producer.flush(WAIT_S)
    ours = landed(client.publish(topic, *(record(key=key) for key in theirs)))
    assert dict(zip(theirs, ours, strict=True)) == theirs
    assert len(set(ours)) == 12


def test_scenario_6_eight_keyless_records_are_two_each(client: Stubs, topic: str) -> None:
    client.create(topic, 4)
    assert Counter(landed(client.publish(topic, *[record()] * 8))) == {0: 2, 1: 2, 2: 2, 3: 2}


def test_scenario_6_ten_thousand_by_eight_publishers_are_exactly_even(broker: LevadaBroker, topic: str) -> None:
    """Some by one, some by many; as calls of their own and as streams."""
    with connect(broker.grpc) as client:
        client.create(topic, 4)
    failures: list[BaseException] = []

    def publishes(number: int) -> None:
        try:
            size = (1, 5, 25, 125)[number % 4]
            requests = [pb.PublishRequest(topic=topic, records=[record()] * size) for _ in range(1250 // size)]
            with connect(broker.grpc) as client:
                if number < 4:
                    for request in requests:
                        client.stream.Publish(request)
                else:
                    for answer in client.stream.PublishStream(iter(requests)):
                        assert not answer.HasField("error")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=publishes, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with connect(broker.grpc) as client:
        assert client.stored(topic) == {0: 2500, 1: 2500, 2: 2500, 3: 2500}


def test_scenario_6_the_counter_goes_on_after_a_stop_and_an_expansion(tmp_path: Path) -> None:
    with LevadaBroker(tmp_path / "broker") as broker:
        with connect(broker.grpc) as client:
            client.create("t", 4)
            assert landed(client.publish("t", *[record()] * 6)) == [0, 1, 2, 3, 0, 1]
        broker.stop()
        broker.start()
        with connect(broker.grpc) as client:
            assert landed(client.publish("t", record())) == [6 % 4]
            client.create("t", 5)
            assert landed(client.publish("t", *[record()] * 5)) == [(7 + number) % 5 for number in range(5)]


def test_scenario_6_after_kill_9_no_stretch_is_repeated(tmp_path: Path) -> None:
    seen: set[int] = set()
    with LevadaBroker(tmp_path / "broker") as broker:
        for _ in range(3):
            with connect(broker.grpc) as client:
                client.create("t", 4)
                for count in (7, 1, 30):
                    first = client.stream.Spread(pb.SpreadRequest(topic="t", count=count)).first
                    taken = set(range(first, first + count))
                    assert not taken & seen
                    seen |= taken
            broker.kill()
            broker.start()


def test_scenario_6_zero_puts_all_into_the_first(client: Stubs, topic: str) -> None:
    client.create(topic, 4, levada_keyless="zero")
    assert set(landed(client.publish(topic, *[record()] * 9))) == {0}
    assert landed(client.publish(topic, record(key=b"user-123"), record(partition=3))) != [0, 0]


def test_scenario_6_sticky_keeps_a_request_together(client: Stubs, topic: str) -> None:
    client.create(topic, 4, levada_keyless="sticky")
    assert [set(landed(client.publish(topic, *[record()] * 9))) for _ in range(4)] == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize("key", [None, b"user-123", b""])
def test_scenario_7_a_partition_that_is_named_is_taken(client: Stubs, topic: str, key: bytes | None) -> None:
    client.create(topic, 3)
    assert landed(client.publish(topic, record(key=key, partition=2))) == [2]


@pytest.mark.parametrize("partition", [2, -1, 99])
@pytest.mark.parametrize("key", [None, b"user-123"])
def test_scenario_7_a_partition_that_is_not_there_stores_nothing_anywhere(
    client: Stubs, topic: str, partition: int, key: bytes | None
) -> None:
    client.create(topic, 2)
    with refused("UnknownPartition", f"partitions 0 to 1, not {partition}"):
        client.publish(topic, record(key=b"a"), record(key=key, partition=partition), record())
    assert client.stored(topic) == {0: 0, 1: 0}
    assert landed(client.publish(topic, record())) == [0], "the counter has not moved"
