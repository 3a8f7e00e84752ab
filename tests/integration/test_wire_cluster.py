"""The clients on a cluster of three Kafka brokers, one of which goes away and comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from levada.records.read import Record, read_all
from levada.wire.answers import LATEST, READ_COMMITTED
from levada.wire.apis import ApiKey
from support.batches import make_batch
from support.either import CLIENTS, make_client
from support.kafka_cluster import KafkaCluster

NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(params=CLIENTS)
async def client(request: pytest.FixtureRequest, cluster: KafkaCluster) -> Any:
    made = make_client(request.param, cluster.bootstrap)
    await made.connect()
    yield made
    await made.close()


def batch(value: bytes, **options: Any) -> memoryview:
    return make_batch(records=[Record(0, NOW_MS, b"k", value, ())], **options).view


async def make_topic(client: Any, name: str) -> str:
    """Three partitions, one led by each broker, once all of them are there."""
    for node in (1, 2, 3):
        await client.request(
            ApiKey.API_VERSIONS,
            {"client_software_name": "a", "client_software_version": "1"},
            node=node,
            repeatable=True,
        )
    others = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
    await client.create_topic(name, assignment=others, configs={"min.insync.replicas": "2"})
    await client.list_offsets({(name, index): LATEST for index in others})
    return name


async def read(client: Any, topic: str, partition: int, **options: Any) -> list[bytes | None]:
    fetched = (await client.fetch({(topic, partition): 0}, **options))[topic, partition]
    committed = "isolation" in options
    records = read_all(fetched.records, aborted=fetched.aborted or (), committed_only=committed)
    return [record.value for record in records]


async def test_each_partition_is_written_to_and_read_from_its_leader(client, request):
    topic = await make_topic(client, f"spread-{request.node.callspec.id}")
    appended = await client.produce_many({(topic, n): batch(b"%d" % n) for n in range(3)})
    assert {one.base_offset for one in appended.values()} == {0}
    fetched = await client.fetch({(topic, n): 0 for n in range(3)})
    assert [[one.value for one in read_all(found.records)] for found in fetched.values()] == [[b"0"], [b"1"], [b"2"]]
    leaders = [one.leader for one in (await client.topics([topic]))[topic].partitions]
    assert sorted(leaders) == [1, 2, 3]


async def test_leaders_move_in_the_middle_of_a_stream(client, cluster, request):
    """Broker 3 is killed: its partition is led by another, and every batch is there once and in order."""
    topic = await make_topic(client, f"moved-{request.node.callspec.id}")
    producer = await client.init_producer_id()

    def batches() -> Iterator[tuple[tuple[str, int], memoryview]]:
        for number in range(90):
            if number == 45:
                cluster.nodes[3].kill()
            stamp = {"producer_id": producer.producer_id, "producer_epoch": 0, "sequence": number // 3}
            yield (topic, number % 3), batch(b"%d" % number, **stamp)

    try:
        await client.produce_stream(batches())
        for partition in range(3):
            assert await read(client, topic, partition) == [b"%d" % n for n in range(partition, 90, 3)]
        group = f"group-{topic}"
        await client.offset_commit(group, {(topic, 2): 7})
        assert (await client.offset_fetch(group))[topic, 2].offset == 7
    finally:
        cluster.nodes[3].start()


async def test_a_transaction_spans_brokers(client, request):
    topic = await make_topic(client, f"tx-{request.node.callspec.id}")
    producer = client.producer(topic)
    await producer.init()
    await producer.send({(topic, n): batch(b"no") for n in range(3)})
    await producer.abort()
    await producer.send({(topic, n): batch(b"yes") for n in range(3)})
    await producer.commit()
    for partition in range(3):
        for _ in range(100):
            seen = await read(client, topic, partition, isolation=READ_COMMITTED)
            if seen:
                break
        assert seen == [b"yes"]
