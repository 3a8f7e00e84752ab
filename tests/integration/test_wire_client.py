"""The two clients of `levada.wire` against Levada and against a real Apache Kafka: the same calls, the same answers."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from levada.errors import BrokerRefused, InvalidTransactionState, Unreachable, UnsupportedVersion
from levada.records.read import Record, read_all
from levada.wire.answers import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    OffsetAndMetadata,
    TopicPartition,
)
from levada.wire.apis import ApiKey
from levada.wire.calls.admin import BROKER
from levada.wire.calls.coordinator import TRANSACTION
from levada.wire.calls.transactions import TransactionCalls
from levada.wire.codes import ErrorCode
from support.batches import make_batch
from support.either import CLIENTS, make_client
from support.kafka import KafkaBroker
from support.levada import LevadaBroker

BROKERS = {"levada": LevadaBroker, "kafka": KafkaBroker}
#: Old timestamps would make Kafka roll segments, and delete them.
NOW_MS = time.time_ns() // 1_000_000
names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with BROKERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(params=CLIENTS)
async def client(request: pytest.FixtureRequest, broker: Any) -> Any:
    either = make_client(request.param, broker.bootstrap, timeout_ms=20_000, settle_ms=500)
    await either.connect()
    yield either
    await either.close()


@pytest.fixture
async def topic(client: Any) -> str:
    name = next(names)
    await client.create_topic(name, 2, replication_factor=1)
    await settled(client, name)
    return name


async def settled(client: Any, topic: str) -> None:
    """Kafka answers for a new topic some time after it said that it is there."""
    await client.list_offsets({(topic, 0): LATEST})


def batch(*values: bytes, **options: Any) -> memoryview:
    records = [Record(i, NOW_MS + i, b"k", value, ()) for i, value in enumerate(values)]
    return make_batch(records=records, **options).view


async def values(client: Any, at: tuple[str, int], offset: int = 0, **options: Any) -> list[bytes | None]:
    fetched = (await client.fetch({at: offset}, max_wait_ms=100, **options))[at]
    committed = options.get("isolation") == READ_COMMITTED
    aborted = fetched.aborted or ()
    return [
        record.value
        for record in read_all(fetched.records, from_offset=offset, aborted=aborted, committed_only=committed)
    ]


async def sees_committed(client: Any, at: tuple[str, int], expected: list[bytes]) -> None:
    """Kafka writes the markers of a transaction some time after it said how it ended."""
    seen: list[bytes | None] = []
    for _ in range(100):
        seen = await values(client, at, isolation=READ_COMMITTED)
        if seen == expected:
            break
        await asyncio.sleep(0.05)
    assert seen == expected


async def test_a_batch_comes_back_as_it_was_produced(client, topic):
    appended = await client.produce((topic, 0), batch(b"one", b"two"))
    assert (appended.base_offset, appended.duplicate) == (0, False)
    assert (await client.produce((topic, 0), batch(b"three"))).base_offset == 2
    assert await values(client, (topic, 0)) == [b"one", b"two", b"three"]
    assert await values(client, (topic, 0), 1) == [b"two", b"three"]


async def test_a_fetch_tells_where_the_partition_begins_and_ends(client, topic):
    await client.produce((topic, 0), batch(b"one", b"two"))
    fetched = (await client.fetch({(topic, 0): 0}))[topic, 0]
    assert (fetched.log_start_offset, fetched.last_stable_offset, fetched.high_watermark) == (0, 2, 2)


async def test_one_call_reaches_many_partitions(client, topic):
    appended = await client.produce_many({(topic, 0): batch(b"a"), (topic, 1): batch(b"b", b"c")})
    assert {at: one.base_offset for at, one in appended.items()} == {(topic, 0): 0, (topic, 1): 0}
    fetched = await client.fetch({(topic, 0): 0, (topic, 1): 1})
    assert list(fetched) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert [record.value for record in read_all(fetched[topic, 1].records, from_offset=1)] == [b"c"]


async def test_fetches_are_begun_before_their_answers_are_taken(client, topic):
    for value in (b"a", b"b"):
        await client.produce((topic, 0), batch(value))
    begun = [await client.begin_fetch((topic, 0), offset) for offset in (0, 1, 9)]
    first, second = [await client.end_fetch(one) for one in begun[:2]]
    assert [record.value for record in read_all(first.records)] == [b"a", b"b"]
    assert [record.value for record in read_all(second.records, from_offset=1)] == [b"b"]
    with pytest.raises(BrokerRefused) as refusal:
        await client.end_fetch(begun[2])
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_empty_fetch_waits_as_long_as_it_was_told(client, topic):
    began = time.monotonic()
    fetched = await client.fetch({(topic, 0): 0}, max_wait_ms=300)
    assert 0.25 < time.monotonic() - began < 30
    assert not fetched[topic, 0].records


async def test_a_stream_of_batches_keeps_its_order(client, topic):
    batches = [((topic, n % 2), batch(b"%d" % n)) for n in range(100)]
    appended = await client.produce_stream(batches)
    assert [one.base_offset for one in appended] == [n // 2 for n in range(100)]
    assert await values(client, (topic, 1)) == [b"%d" % n for n in range(1, 100, 2)]


async def test_an_idempotent_stream_is_taken_once(client, topic):
    producer = await client.init_producer_id()
    made = [
        ((topic, 0), batch(b"%d" % n, producer_id=producer.producer_id, producer_epoch=producer.epoch, sequence=n))
        for n in range(20)
    ]
    await client.produce_stream(made)
    again = await client.produce_stream(made[-3:])
    assert [one.base_offset for one in again] == [17, 18, 19]
    assert await values(client, (topic, 0)) == [b"%d" % n for n in range(20)]


async def test_acks_0_is_not_waited_for(client, topic):
    assert (await client.produce((topic, 0), batch(b"gone"), acks=0)).base_offset == -1
    # The next request on the connection is answered behind it.
    await client.produce((topic, 0), batch(b"kept"))
    assert await values(client, (topic, 0)) == [b"gone", b"kept"]


@pytest.mark.parametrize(("at", "code"), [(5, "UNKNOWN_TOPIC_OR_PARTITION"), (-1, "UNKNOWN_TOPIC_OR_PARTITION")])
async def test_a_partition_that_does_not_exist_is_named(client, topic, at, code):
    with pytest.raises(BrokerRefused, match=f"{topic}-{at}") as raised:
        await client.produce((topic, at), batch(b"x"))
    assert raised.value.name == code


async def test_a_topic_that_does_not_exist_is_not_made_by_asking(client):
    with pytest.raises(BrokerRefused, match="never-made") as raised:
        await client.fetch({("never-made", 0): 0})
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "never-made" not in await client.topics()


async def test_an_offset_outside_the_log_is_refused(client, topic):
    with pytest.raises(BrokerRefused) as raised:
        await client.fetch({(topic, 0): 99})
    assert raised.value.name == "OFFSET_OUT_OF_RANGE"


async def test_a_corrupt_batch_is_refused_at_once(client, topic):
    bad = bytearray(batch(b"x"))
    bad[-1] ^= 1
    began = time.monotonic()
    with pytest.raises(BrokerRefused) as raised:
        await client.produce((topic, 0), bad)
    assert raised.value.name == "CORRUPT_MESSAGE"
    assert time.monotonic() - began < 30


async def test_offsets_are_found_by_place_and_time(client, topic):
    await client.produce((topic, 0), batch(b"a", b"b", b"c"))
    at = (topic, 0)
    found = {
        where: (await client.list_offsets({at: where}))[at].offset
        for where in (EARLIEST, LATEST, MAX_TIMESTAMP, NOW_MS + 1, NOW_MS + 100_000)
    }
    assert list(found.values()) == [0, 3, 2, 1, -1]


async def test_a_leader_epoch_ends_where_the_log_does_while_there_is_no_later_one(client, topic):
    await client.produce((topic, 0), batch(b"a", b"b", b"c"))
    await client.produce((topic, 1), batch(b"a"))
    info = (await client.topics([topic]))[topic]
    epochs = {(topic, one.partition): one.leader_epoch for one in info.partitions[:2]}
    assert await client.epoch_ends(epochs) == {(topic, 0): 3, (topic, 1): 1}


async def test_records_are_deleted_from_the_beginning(client, topic):
    await client.produce((topic, 0), batch(b"a"))
    await client.produce((topic, 0), batch(b"b"))
    assert await client.delete_records({(topic, 0): 1}) == {(topic, 0): 1}
    assert (await client.list_offsets({(topic, 0): EARLIEST}))[topic, 0].offset == 1
    assert await client.delete_records({(topic, 0): -1}) == {(topic, 0): 2}


async def test_a_groups_offsets_are_kept_and_forgotten(client, topic):
    group = f"group-of-{topic}"
    assert await client.offset_fetch(group) == {}
    place = OffsetAndMetadata(7, 0, "where I was")
    await client.offset_commit(group, {(topic, 0): place, (topic, 1): 3})
    assert await client.offset_fetch(group) == {(topic, 0): place, (topic, 1): OffsetAndMetadata(3)}
    assert await client.offset_fetch(group, [(topic, 0)], require_stable=True) == {(topic, 0): place}
    assert group in [one.group_id for one in await client.list_groups()]
    assert (await client.describe_group(group)).state == "Empty"
    await client.offset_delete(group, [(topic, 1)])
    assert await client.offset_fetch(group) == {(topic, 0): place}
    await client.delete_group(group)
    assert await client.offset_fetch(group) == {}


async def test_a_commit_of_a_stranger_to_the_group_is_refused(client, topic):
    await client.offset_commit("strangers", {(topic, 0): 1})
    with pytest.raises(BrokerRefused) as raised:
        await client.offset_commit("strangers", {(topic, 0): 1}, member_id="nobody", generation=3)
    assert raised.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


async def test_topics_are_made_described_grown_and_deleted(client):
    name = next(names)
    topic_id = await client.create_topic(name, 1, configs={"retention.ms": "1000"})
    assert topic_id.int
    with pytest.raises(BrokerRefused) as raised:
        await client.create_topic(name, 1)
    assert raised.value.name == "TOPIC_ALREADY_EXISTS"
    await settled(client, name)
    described = (await client.topics([name]))[name]
    assert (described.topic_id, len(described.partitions), described.is_internal) == (topic_id, 1, False)
    await client.create_partitions(name, 3)
    await client.list_offsets({(name, 2): LATEST})
    assert len((await client.topics([name]))[name].partitions) == 3
    await client.delete_topic(name)
    # Kafka's controller answers before the broker that is asked next has heard of it.
    with pytest.raises(BrokerRefused):
        async with asyncio.timeout(30):
            while True:
                await client.topics([name])
                await asyncio.sleep(0.03)
    with pytest.raises(BrokerRefused):
        await client.delete_topic(name)


async def test_a_topic_that_was_made_again_is_written_under_its_new_id(client, topic):
    await client.produce((topic, 0), batch(b"old"))
    await client.request(ApiKey.DELETE_TOPICS, {"topics": [{"name": topic}], "timeout_ms": 5000})
    await client.request(
        ApiKey.CREATE_TOPICS, {"topics": [{"name": topic, "num_partitions": 2, "replication_factor": 1}]}
    )
    # The client still has the old id in its cache.
    assert (await client.produce((topic, 0), batch(b"new"))).base_offset == 0
    assert await values(client, (topic, 0)) == [b"new"]


async def test_settings_are_read_and_changed(client, topic):
    await client.alter_configs(topic, {"retention.ms": "5000", "segment.bytes": "2000000"})
    await client.alter_configs(topic, {"segment.bytes": None})
    # Kafka's controller answers before the broker that is asked next has heard of it.
    async with asyncio.timeout(30):
        while not (settings := await client.describe_configs(topic))["segment.bytes"].is_default:  # noqa: ASYNC110
            await asyncio.sleep(0.03)
    assert settings["retention.ms"].value == "5000"
    assert not settings["retention.ms"].is_default
    assert list(await client.describe_configs(topic, keys=["retention.ms"])) == ["retention.ms"]
    with pytest.raises(BrokerRefused, match=r"retention\.ms") as raised:
        await client.alter_configs(topic, {"retention.ms": "soon"})
    assert raised.value.name == "INVALID_CONFIG"


async def test_a_broker_has_settings_too(client):
    (node,) = (await client.describe_cluster()).brokers
    assert (await client.describe_configs(str(node), kind=BROKER))["num.partitions"].value == "1"


async def test_the_cluster_names_its_brokers(client, broker):
    cluster = await client.describe_cluster()
    assert list(cluster.brokers.values()) == [("127.0.0.1", int(broker.bootstrap.rpartition(":")[2]))]
    assert cluster.controller_id in cluster.brokers
    assert cluster.cluster_id
    assert (await client.find_coordinator("a-group")).node_id in cluster.brokers
    assert (await client.find_coordinator("an-id", kind=TRANSACTION)).node_id in cluster.brokers


async def test_any_other_call_can_be_made_by_its_fields(client):
    answer = await client.request(ApiKey.DESCRIBE_CLUSTER, {})
    assert answer.cluster_id == (await client.describe_cluster()).cluster_id


async def test_a_version_nobody_speaks_is_said_so(client, topic):
    with pytest.raises(UnsupportedVersion, match=r"is not known here|does not know"):
        await client.request(999, {})


@pytest.fixture(params=[1, 2], ids=["tv1", "tv2"])
def form(request, monkeypatch):
    """Both forms of transactions; a broker that has the second still speaks the first."""
    monkeypatch.setattr(TransactionCalls, "transaction_version", request.param)


@pytest.mark.usefixtures("form")
async def test_what_a_transaction_wrote_is_seen_together(client, topic):
    producer = client.producer(f"tx-{topic}")
    await producer.init()
    await producer.send({(topic, 0): batch(b"a"), (topic, 1): batch(b"b")})
    await producer.send({(topic, 0): batch(b"c")})
    assert await values(client, (topic, 0), isolation=READ_COMMITTED) == []
    assert await values(client, (topic, 0)) == [b"a", b"c"]
    await producer.commit()
    await sees_committed(client, (topic, 0), [b"a", b"c"])
    await sees_committed(client, (topic, 1), [b"b"])


@pytest.mark.usefixtures("form")
async def test_a_stream_of_batches_in_a_transaction_keeps_their_order(client, topic):
    producer = client.producer(f"tx-{topic}")
    await producer.init()
    places = [(topic, 0), (topic, 1)]
    for turn, end in enumerate(("commit", "abort", "commit")):
        made = [(places[number % 2], batch(b"%d/%d" % (turn, number))) for number in range(40)]
        appended = await producer.send_stream(places, made, in_flight=16)
        assert len(appended) == 40
        await producer.send({places[0]: batch(b"%d/end" % turn)})
        await getattr(producer, end)()
    for index, place in enumerate(places):
        expected = [
            value
            for turn in (0, 2)
            for value in [b"%d/%d" % (turn, number) for number in range(index, 40, 2)]
            + [b"%d/end" % turn] * (not index)
        ]
        await sees_committed(client, place, expected)


@pytest.mark.usefixtures("form")
async def test_a_stream_that_fails_leaves_a_transaction_that_can_only_be_aborted(client, topic):
    producer = client.producer(f"tx-{topic}")
    await producer.init()
    with pytest.raises(BrokerRefused):
        await producer.send_stream(
            [(topic, 0)], [((topic, 0), batch(b"half")), ((topic, 0), batch(b"too large" * 200_000))]
        )
    with pytest.raises(InvalidTransactionState, match="aborted"):
        await producer.commit()
    await producer.abort()
    await producer.send_stream([(topic, 0)], [((topic, 0), batch(b"whole"))])
    await producer.commit()
    await sees_committed(client, (topic, 0), [b"whole"])


@pytest.mark.usefixtures("form")
async def test_an_aborted_transaction_is_skipped_and_the_next_goes_on(client, topic):
    producer = client.producer(f"tx-{topic}")
    await producer.init()
    for value, end in [(b"no", "abort"), (b"yes", "commit"), (b"nor this", "abort"), (b"and this", "commit")]:
        await producer.send({(topic, 0): batch(value)})
        await getattr(producer, end)()
    await sees_committed(client, (topic, 0), [b"yes", b"and this"])


@pytest.mark.usefixtures("form")
async def test_offsets_are_committed_with_a_transaction(client, topic):
    producer, group = client.producer(f"tx-{topic}"), f"group-of-{topic}"
    await producer.init()
    await producer.send({(topic, 0): batch(b"a")})
    await producer.send_offsets(group, {(topic, 1): 5})
    assert await client.offset_fetch(group) == {}
    await producer.commit()
    assert await client.offset_fetch(group, [(topic, 1)], require_stable=True) == {(topic, 1): OffsetAndMetadata(5)}
    await producer.send_offsets(group, {(topic, 1): 9})
    await producer.abort()
    assert await client.offset_fetch(group, [(topic, 1)], require_stable=True) == {(topic, 1): OffsetAndMetadata(5)}


@pytest.mark.usefixtures("form")
async def test_a_newer_owner_of_a_transactional_id_fences_the_older(client, topic):
    old, new = client.producer(f"tx-{topic}"), client.producer(f"tx-{topic}")
    await old.init()
    await old.send({(topic, 0): batch(b"left open")})
    await new.init()
    await new.send({(topic, 0): batch(b"kept")})
    await new.commit()
    with pytest.raises(BrokerRefused) as raised:
        await old.commit()
    assert raised.value.name in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    await sees_committed(client, (topic, 0), [b"kept"])


@pytest.mark.usefixtures("form")
async def test_a_transaction_that_failed_can_only_be_aborted(client, topic):
    producer = client.producer(f"tx-{topic}")
    with pytest.raises(InvalidTransactionState, match="init"):
        await producer.commit()
    await producer.init()
    await producer.send({(topic, 0): batch(b"half")})
    with pytest.raises(BrokerRefused):
        await producer.send({(topic, 0): batch(b"too large" * 200_000)})
    with pytest.raises(InvalidTransactionState, match="aborted"):
        await producer.commit()
    await producer.abort()
    await producer.send({(topic, 0): batch(b"whole")})
    await producer.commit()
    await sees_committed(client, (topic, 0), [b"whole"])


@pytest.mark.parametrize("kind", CLIENTS)
async def test_nothing_there_is_unreachable_at_once(kind):
    client = make_client(kind, "127.0.0.1:1", client_id="nobody")
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        await client.connect()
    await client.close()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("make", BROKERS.values(), ids=BROKERS)
async def test_a_stream_outlives_the_broker_it_goes_to(kind, make, tmp_path):
    """kill −9 and a start on the same data, while batches with sequences are under way: each is there once, in order."""
    with make(tmp_path) as broker:
        # A JVM on a busy machine takes its time, and then a while to know its topics again.
        client = make_client(kind, broker.bootstrap, timeout_ms=300_000, settle_ms=300_000)
        await client.connect()
        topic = next(names)
        await client.create_topic(topic, 1)
        await settled(client, topic)
        producer = await client.init_producer_id()
        started = list[Future[object]]()

        def batches() -> Iterator[tuple[tuple[str, int], memoryview]]:
            for number in range(60):
                if number == 30:
                    broker.kill()
                    started.append(pool.submit(broker.start))
                yield (
                    (topic, 0),
                    batch(b"%d" % number, producer_id=producer.producer_id, producer_epoch=0, sequence=number),
                )

        with ThreadPoolExecutor(1) as pool:
            await client.produce_stream(batches())
        started[0].result()
        assert await values(client, (topic, 0)) == [b"%d" % number for number in range(60)]
        await client.close()
