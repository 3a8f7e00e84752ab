"""Scenarios 8 to 10: a message that was seen is not stored again, through gRPC and through Kafka's clients."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from confluent_kafka import Producer

import levada
from levada.records.build import build
from levada.v1 import stream_pb2 as pb
from support import clients
from support.brokers import levada_only
from support.driver import Client, Driver
from support.levada import LevadaBroker
from support.rpc import Stubs, connect, record, refused
from support.wait import wait_until

pytestmark = levada_only

WAIT_S = 60.0
PUBLISHERS = 100
PAYLOAD, ID = {"levada_dedup": "payload"}, {"levada_dedup": "id"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LevadaBroker]:
    with LevadaBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(shared: LevadaBroker) -> Iterator[Stubs]:
    with connect(shared.grpc) as client:
        yield client


def landed(positions: list[pb.Position]) -> list[tuple[int, int, bool]]:
    return [(position.partition, position.offset, position.duplicate) for position in positions]


# 8


def test_scenario_8_without_dedup_everything_is_stored(client: Stubs, topic: str) -> None:
    client.create(topic)
    for offset in range(3):
        assert landed(client.publish(topic, record(b"same"))) == [(0, offset, False)]
    assert client.values(topic) == [b"same"] * 3


def test_scenario_8_a_payload_that_was_seen_is_answered_with_the_first_position(client: Stubs, topic: str) -> None:
    client.create(topic, 3, **PAYLOAD)
    first = landed(client.publish(topic, record(b"a", partition=2), record(b"b", partition=2)))
    assert first == [(2, 0, False), (2, 1, False)]
    again = client.publish(topic, record(b"b", key=b"elsewhere"), record(b"c", partition=2), record(b"a"))
    assert landed(again) == [(2, 1, True), (2, 2, False), (2, 0, True)]
    one, other = landed(client.publish(topic, record(b"d", partition=0), record(b"d", partition=1)))
    assert one[:2] == other[:2], "of copies in one request one is stored"
    assert {one[2], other[2]} == {False, True}
    assert client.values(topic, 2) == [b"a", b"b", b"c"]
    assert sum(client.stored(topic).values()) == 4


def test_scenario_8_another_topic_stores_it_unless_they_share_what_they_have_seen(client: Stubs, topic: str) -> None:
    alone, together = (f"{topic}-alone", f"{topic}-alone-too"), (f"{topic}-shared", f"{topic}-shared-too")
    for name in alone:
        client.create(name, **PAYLOAD)
        assert landed(client.publish(name, record(b"x"))) == [(0, 0, False)]
    client.create(together[0], 4, levada_dedup_scope="broker", **PAYLOAD)
    client.create(together[1], levada_dedup_scope="broker", **PAYLOAD)
    value = f"only of {topic}".encode()
    assert landed(client.publish(together[0], record(value, partition=3))) == [(3, 0, False)]
    assert landed(client.publish(together[1], record(value))) == [(3, 0, True)]
    assert client.values(together[1]) == []


def test_scenario_8_after_the_window_it_is_stored_again(client: Stubs, topic: str) -> None:
    client.create(topic, levada_dedup_window_ms="500", **PAYLOAD)
    assert landed(client.publish(topic, record(b"a"))) == [(0, 0, False)]
    answers: list[tuple[int, int, bool]] = []

    def stored_again() -> bool:
        answers.extend(landed(client.publish(topic, record(b"a"))))
        return not answers[-1][2]

    wait_until(stored_again, 20, "the window to pass")
    assert answers[-1] == (0, 1, False)
    assert set(answers[:-1]) <= {(0, 0, True)}
    assert client.values(topic) == [b"a", b"a"]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_scenario_8_after_a_restart_within_the_window_it_is_still_a_repeat(tmp_path: Path, end: str) -> None:
    with LevadaBroker(tmp_path / "broker") as broker:
        with connect(broker.grpc) as client:
            client.create("t", 2, **PAYLOAD)
            client.create("u", 1, **ID)
            # However old its producer says it is.
            client.publish("t", record(b"old", partition=1, timestamp_ms=1), record(b"new", partition=0))
            client.publish("u", record(b"first", message_id="m"))
        for turn in range(2):
            getattr(broker, end)()
            broker.start()
            with connect(broker.grpc) as client:
                again = client.publish("t", record(b"old"), record(b"new"), record(b"%d" % turn, partition=1))
                assert landed(again) == [(1, 0, True), (0, 0, True), (1, 1 + turn, False)]
                assert landed(client.publish("u", record(b"second", message_id="m"))) == [(0, 0, True)]
        with connect(broker.grpc) as client:
            assert client.values("t", 1) == [b"old", b"0", b"1"]


def produced(broker: LevadaBroker, topic: str, *batches: list[bytes]) -> list[list[int]]:
    """The offsets a Kafka client believes in. One idempotent producer, each list sent together and waited for."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 200})
    answers: list[list[int]] = []
    for values in batches:
        offsets: list[int] = []

        def delivered(error: object, message: object, offsets: list[int] = offsets) -> None:
            assert error is None, error
            offsets.append(message.offset())  # type: ignore[attr-defined]

        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=delivered)
        assert producer.flush(WAIT_S) == 0
        answers.append(offsets)
    return answers


@pytest.mark.parametrize("name", clients.ALL)
def test_scenario_8_over_the_kafka_wire_repeats_leave_holes_that_every_client_passes(
    name: str, shared: LevadaBroker, client: Stubs, drivers: Callable[[str], Driver], topic: str
) -> None:
    client.create(topic, **PAYLOAD)
    sent = produced(shared, topic, [b"a"], [b"b", b"a", b"c", b"b", b"d"], [b"a", b"b"], [b"e"], [b"e", b"d", b"c"])
    assert sent == [[0], [1, 2, 3, 4, 5], [6, 7], [8], [9, 10, 11]]
    reader = Client(drivers(name), shared.bootstrap)
    expected = [(0, b"a"), (1, b"b"), (3, b"c"), (5, b"d"), (8, b"e")]
    for committed in (False, True):
        assert [(seen.offset, seen.value) for seen in reader.consume(topic, committed=committed)] == expected
    found = client.read(topic).records
    assert [(each.offset, each.value) for each in found] == expected


def test_scenario_8_a_batch_of_a_native_client_keeps_its_offsets_too(client: Stubs, topic: str) -> None:
    client.create(topic, **PAYLOAD)
    client.publish(topic, record(b"a"))
    producer = client.stream.InitProducer(pb.InitProducerRequest())

    def send(sequence: int, *values: bytes, codec: str = "none") -> pb.Position:
        data = build(
            [(None, value) for value in values], codec=codec,
            producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=sequence,
        )  # fmt: skip
        request = pb.PublishRequest(topic=topic, batches=[pb.Batch(partition=0, data=bytes(data))])
        return client.stream.Publish(request).positions[0]

    def repeats(position: pb.Position) -> list[tuple[int, int]]:
        return [(each.index, each.offset) for each in position.duplicates]

    partly = send(0, b"x", b"a", b"y", codec="lz4")
    assert (partly.offset, partly.duplicate, repeats(partly)) == (1, False, [(1, 0)])
    wholly = send(3, b"y", b"x")
    assert (wholly.offset, wholly.duplicate, repeats(wholly)) == (3, True, [(0, 3), (1, 1)])
    assert send(3, b"y", b"x") == wholly, "the producer's own retry is answered as the first was"
    assert send(5, b"z").offset == 6, "the producer goes on"
    assert client.values(topic) == [b"a", b"x", b"y", b"z"]


def test_scenario_8_through_the_python_client(shared: LevadaBroker, topic: str) -> None:
    with levada.connect(shared.grpc) as client:
        client.manager.create_topic(topic, partitions=1, settings={"levada.dedup": "payload"})
        produced(shared, topic, [b"a"], [b"b", b"a", b"c"], [b"a", b"b"])
        with client.consumer(topic, group=topic, start="earliest") as consumer:
            found: list[levada.Record] = []
            wait_until(lambda: found.extend(consumer.poll(timeout_ms=500)) or len(found) >= 3, WAIT_S, "all records")
            assert [(each.offset, each.value) for each in found] == [(0, b"a"), (1, b"b"), (3, b"c")]
            # The holes at the end are passed as well: nothing is left to read.
            wait_until(lambda: consumer.poll(timeout_ms=100) or set(consumer.lag().values()) == {0}, WAIT_S, "no lag")
        with client.producer() as producer:
            one_by_one = [producer.publish(topic, value) for value in (b"x", b"a", b"y")]
            producer.flush()
            assert [(each.result().offset, each.result().duplicate) for each in one_by_one] == [
                (6, False), (0, True), (8, False),
            ]  # fmt: skip
            together = producer.publish_many(topic, [b"y", b"z", b"x"]).result()
            assert [(each.offset, each.duplicate) for each in together] == [(8, True), (10, False), (6, True)]


# 9


def test_scenario_9_a_hundred_publishers_of_one_id_store_one_record(client: Stubs, topic: str) -> None:
    client.create(topic, 4, **ID)
    with ThreadPoolExecutor(PUBLISHERS) as pool:
        answers = list(
            pool.map(lambda number: client.publish(topic, record(b"%d" % number, message_id="one")), range(PUBLISHERS))
        )
    positions = [landed(answer)[0] for answer in answers]
    assert sorted(repeat for _, _, repeat in positions) == [False] + [True] * (PUBLISHERS - 1)
    assert len({(partition, offset) for partition, offset, _ in positions}) == 1
    assert sum(client.stored(topic).values()) == 1


def test_scenario_9_the_id_alone_counts_and_a_record_without_one_is_never_a_repeat(
    shared: LevadaBroker, client: Stubs, topic: str
) -> None:
    client.create(topic, **ID)
    first = client.publish(topic, record(b"a", message_id="1"), record(b"a"), record(b"a"), record(b"a", message_id=""))
    assert [repeat for _, _, repeat in landed(first)] == [False] * 4
    assert landed(client.publish(topic, record(b"another payload", message_id="1"))) == [(0, 0, True)]
    header = pb.Header(key="message_id", value=b"1")
    assert landed(client.publish(topic, record(b"in a header", headers=[header]))) == [(0, 0, True)]
    producer = Producer({"bootstrap.servers": shared.bootstrap})
    producer.produce(topic, b"from Kafka", headers=[("message_id", b"1")])
    producer.produce(topic, b"from Kafka", headers=[("message_id", b"2")])
    assert producer.flush(WAIT_S) == 0
    assert landed(client.publish(topic, record(b"b", message_id="2")))[0][2]
    assert client.values(topic) == [b"a", b"a", b"a", b"a", b"from Kafka"]


# 10, where dedup is on


def test_scenario_10_a_producers_gap_and_older_epoch_are_errors_here_as_well(client: Stubs, topic: str) -> None:
    client.create(topic, **PAYLOAD)
    producer = client.stream.InitProducer(pb.InitProducerRequest()).producer_id

    def send(sequence: int, value: bytes, epoch: int = 0) -> pb.Position:
        data = build([(None, value)], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        request = pb.PublishRequest(topic=topic, batches=[pb.Batch(partition=0, data=bytes(data))])
        return client.stream.Publish(request).positions[0]

    assert send(0, b"a").offset == 0
    assert (send(0, b"a").offset, send(0, b"a").duplicate) == (0, True)
    with refused("OutOfOrderSequence"):
        send(5, b"x")
    assert send(0, b"b", epoch=1).offset == 1
    with refused("InvalidProducerEpoch"):
        send(1, b"x")
    assert not send(1, b"x", epoch=1).duplicate, "what was refused is not remembered"
    assert client.values(topic) == [b"a", b"b", b"x"]


# Transactions


def test_a_copy_in_an_aborted_transaction_never_swallows_its_retry(
    shared: LevadaBroker, client: Stubs, drivers: Callable[[str], Driver], topic: str
) -> None:
    client.create(topic, **PAYLOAD)
    producer = Producer({"bootstrap.servers": shared.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for value, end in ((b"a", producer.abort_transaction), (b"a", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.produce(topic, value)
        assert producer.flush(WAIT_S) == 0
        end(WAIT_S)
    assert landed(client.publish(topic, record(b"a")))[0][2], "remembered since it was committed"
    reader = Client(drivers("librdkafka"), shared.bootstrap)
    assert [seen.value for seen in reader.consume(topic, committed=True)] == [b"a"]


# Killed in the middle


def test_with_kill_9_in_the_middle_every_id_that_is_sent_until_answered_is_stored_once(tmp_path: Path) -> None:
    """Three publishers send the same ids, each again until it is answered, while the broker is killed and started again."""
    total, size, publishers, kills = 300, 5, 3, 3
    ids = [f"id-{number}" for number in range(total)]
    progress = [0] * publishers

    def publisher(number: int, broker: LevadaBroker) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        order = ids[number * total // publishers :] + ids[: number * total // publishers]
        for start in range(0, total, size):
            sent = order[start : start + size]
            made = [record(each.encode(), message_id=each) for each in sent]
            answer = wait_until(lambda made=made: attempt(broker, made), WAIT_S, "an answer")
            found.update({each: (place.partition, place.offset) for each, place in zip(sent, answer, strict=True)})
            progress[number] += len(sent)
        return found

    def attempt(broker: LevadaBroker, made: list[pb.Record]) -> list[pb.Position] | None:
        try:
            with connect(broker.grpc) as client:
                return client.publish("t", *made)
        except grpc.RpcError:
            return None

    with LevadaBroker(tmp_path / "broker") as broker:
        with connect(broker.grpc) as client:
            client.create("t", 3, **ID)
        with ThreadPoolExecutor(publishers) as pool:
            running = [pool.submit(publisher, number, broker) for number in range(publishers)]
            for turn in range(kills):
                goal = (turn + 1) * total // (kills + 2)
                wait_until(lambda goal=goal: max(progress) >= goal, WAIT_S, "some to be published")
                broker.kill()
                broker.start()
            answers = [each.result() for each in running]
        with connect(broker.grpc) as client:
            stored = {
                (partition, each.offset): each.value.decode()
                for partition in range(3)
                for each in client.read("t", partition, limit=10_000).records
            }
    assert sorted(stored.values()) == sorted(ids)
    for found in answers:
        assert {position: each for each, position in found.items()} == stored


# What it costs to those who do not use it


def test_a_broker_without_such_topics_never_loads_it(tmp_path: Path) -> None:
    with LevadaBroker(tmp_path / "broker") as broker, connect(broker.grpc) as client:
        client.create("plain")
        client.publish("plain", record(b"a"))
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("plain", b"b")
        assert producer.flush(WAIT_S) == 0
        assert "numba" not in loaded(broker)
        client.create("wants", **PAYLOAD)
        client.publish("wants", record(b"a"))
        assert "numba" in loaded(broker)


def loaded(broker: LevadaBroker) -> str:
    """The libraries that the broker's process has mapped."""
    maps = Path(f"/proc/{broker.pid}/maps")
    if not maps.exists():
        return subprocess.run(["lsof", "-p", str(broker.pid)], capture_output=True, text=True).stdout
    return maps.read_text()
