"""Scenarios 17 and 18: what is more than the broker can take, for now or for ever, is said so; nothing acknowledged is lost."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from confluent_kafka import KafkaError, Producer

import support
from levada.records.build import build
from levada.v1 import stream_pb2 as pb
from support.brokers import levada_only
from support.levada import LevadaBroker
from support.rpc import Stubs, connect, record, refusal_of, refused
from support.wait import wait_until

pytestmark = levada_only

WAIT_S = 60.0
RECORDS_MAX = 10_000
MiB = 1024 * 1024
BYTES_MAX = 64 * MiB
SENT = 400
STUCK_DISK = Path(support.__file__).with_name("stuck_disk.py")


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """While this file exists, the disk of the topic `slow` gets nothing done."""
    return tmp_path / "stuck"


@pytest.fixture
def broker(tmp_path: Path, stuck: Path) -> Iterator[LevadaBroker]:
    prefix = [sys.executable, "-P", str(STUCK_DISK), str(stuck), "slow"]
    with LevadaBroker(tmp_path / "broker", {"levada.enqueue.timeout.ms": "500"}, prefix=prefix) as broker:
        yield broker


@pytest.fixture
def client(broker: LevadaBroker) -> Iterator[Stubs]:
    with connect(broker.grpc) as client:
        yield client


def numbered(number: int, count: int = 100) -> list[pb.Record]:
    return [record(b"%d-%d" % (number, place), partition=0) for place in range(count)]


def test_scenario_17_a_disk_that_cannot_follow(broker: LevadaBroker, stuck: Path) -> None:
    with connect(broker.grpc) as client:
        client.create("slow", 2)
        stuck.touch()
        calls = {
            number: client.stream.Publish.future(pb.PublishRequest(topic="slow", records=numbered(number)))
            for number in range(250)
        }
        refusals = {}

        def turned_away() -> bool:
            for number, call in calls.items():
                if call.done() and number not in refusals:
                    refusals[number] = refusal_of(call)
            return len(refusals) >= 150

        # 100 × 100 records are all that may wait; those are not answered before they are durable.
        wait_until(turned_away, WAIT_S, lambda: f"150 answers; came {len(refusals)}")
        assert Counter((each.code, each.reason) for each in refusals.values()) == {
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "Overloaded"): 150
        }
        hint = next(iter(refusals.values()))
        assert "no room within 500 ms" in hint.message
        assert hint.retry_ms == float(hint.metadata["retry_after_ms"]) > 0
        # Another partition, and another topic, are not held up by it.
        client.create("quick", 1)
        client.publish("quick", record())

        stuck.unlink()
        acknowledged = [number for number in calls if number not in refusals]
        for number in acknowledged:
            assert len(calls[number].result(WAIT_S).positions) == 100
        again = client.publish("slow", *numbered(1000, 1))
        assert again[0].offset == RECORDS_MAX
    broker.kill()
    broker.start()
    with connect(broker.grpc) as client:
        stored = Counter(client.values("slow"))
        expected = [each.value for number in acknowledged for each in numbered(number)]
        assert stored == Counter([*expected, b"1000-0"])


def test_scenario_17_memory_stays_bounded(broker: LevadaBroker, client: Stubs, stuck: Path) -> None:
    """Much is sent while the disk stands still: some of it waits, the rest is turned away."""
    process = psutil.Process(broker.pid)
    client.create("slow", 1)
    batch = bytes(build([(None, b"x" * 900_000)]))
    request = pb.PublishRequest(topic="slow", batches=[pb.Batch(data=batch)])
    client.stream.Publish(request)
    before = process.memory_info().rss
    stuck.touch()
    calls = [client.stream.Publish.future(request) for _ in range(SENT)]
    most = 0

    def all_the_others_were_turned_away() -> bool:
        nonlocal most
        most = max(most, process.memory_info().rss)
        return sum(call.done() for call in calls) >= SENT - BYTES_MAX // len(batch)

    wait_until(all_the_others_were_turned_away, WAIT_S, "answers for those that find no room")
    stuck.unlink()
    answers = Counter(refusal_of(call).reason if call.exception(WAIT_S) is not None else "stored" for call in calls)
    assert answers == {"stored": BYTES_MAX // len(batch), "Overloaded": SENT - BYTES_MAX // len(batch)}
    assert client.stored("slow") == {0: answers["stored"] + 1}
    assert most - before < 400 * MiB, f"{(most - before) // MiB} MiB"


def test_scenario_17_many_streams_of_large_requests_do_not_fill_the_memory(
    broker: LevadaBroker, client: Stubs, stuck: Path
) -> None:
    """24 of 16 MiB, none of which gets done: the broker takes in as many as it has room for, and of the others one part each."""
    process = psutil.Process(broker.pid)
    streams, value = 24, bytes(16 * MiB)
    client.create("slow", streams, max_message_bytes=str(32 * MiB))
    whole = pb.PublishRequest(topic="slow", records=[record(value)]).SerializeToString()
    sizes = [len(whole), *[0] * (len(whole) // MiB)]
    parts = [
        pb.PublishRequest(part=pb.Part(size=size, data=whole[place * MiB : (place + 1) * MiB]))
        for place, size in enumerate(sizes)
    ]
    client.publish("slow", record(b"first"))
    before = most = process.memory_info().rss

    def grown() -> int:
        nonlocal most
        most = max(most, process.memory_info().rss)
        return most - before

    stuck.touch()
    calls = [client.stream.PublishStream(iter(parts)) for _ in range(streams)]
    wait_until(lambda: grown() > 128 * MiB, WAIT_S, "as much as there is room for")
    until = time.monotonic() + 2
    while time.monotonic() < until:
        grown()
        time.sleep(0.03)
    stuck.unlink()
    for call in calls:
        [answer] = call
        assert not answer.HasField("error")
        grown()
    assert sum(client.stored("slow").values()) == streams + 1
    assert grown() < 600 * MiB, f"{grown() // MiB} MiB"


def test_scenario_18_a_record_larger_than_the_limit(client: Stubs) -> None:
    client.create("t", 2, max_message_bytes="10000")
    too_large = record(b"x" * 10_000)
    with refused("RecordTooLarge", r"record 0 has 10\d\d\d bytes .* max.message.bytes is 10000") as refusal:
        client.publish("t", too_large)
    assert refusal.code == grpc.StatusCode.INVALID_ARGUMENT, "to try again would not help"
    assert refusal.retry_ms is None
    with refused("RecordTooLarge", r"record 2 has 10\d\d\d bytes") as refusal:
        client.publish("t", record(), record(), too_large, record())
    assert refusal.metadata["index"] == "2"
    small, large = bytes(build([(None, b"x")])), bytes(build([(None, b"x" * 10_000)]))
    with refused("RecordTooLarge", r"10\d\d\d bytes, the topic's max.message.bytes is 10000"):
        client.publish("t", batches=[pb.Batch(partition=0, data=small), pb.Batch(partition=1, data=large)])
    assert client.stored("t") == {0: 0, 1: 0}
    client.publish("t", *[record(b"x" * 9000)] * 10)  # together larger than one batch may be


def test_scenario_18_over_the_kafka_wire(broker: LevadaBroker, client: Stubs) -> None:
    client.create("t", 1, max_message_bytes="10000")
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 200, "message.max.bytes": 10_000_000})
    for size in (10, 10, 20_000):
        producer.produce("t", b"x" * size, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_S)
    assert {error.code() for error in errors if error is not None} == {KafkaError.MSG_SIZE_TOO_LARGE}
    assert client.stored("t")[0] == sum(error is None for error in errors)
