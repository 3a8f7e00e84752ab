"""What is on disk after the worst: kill −9, a torn tail, a flipped byte, a full disk. And a hundred thousand records."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from support.brokers import Broker, levada_only
from support.driver import Client, Driver, Refused, Sent
from support.levada import LevadaBroker
from support.wait import wait_until

SETTLE_S = 60.0
COUNT = 40


@pytest.fixture
def client(own_broker: Broker, drivers: Callable[[str], Driver]) -> Client:
    return Client(drivers("librdkafka"), own_broker.bootstrap)


def fill(client: Client, topic: str, partition: int, count: int = COUNT) -> None:
    """One batch a record, so that a place in the file belongs to one record."""
    records = [Sent(b"record %d " % turn + b"x" * 200, None, partition) for turn in range(count)]
    client.produce(topic, records, idempotent=True, batch=1)


def numbers(client: Client, topic: str, partition: int) -> list[int]:
    seen = client.consume(topic, {partition: 0})
    return [int((record.value or b"").split()[1]) for record in seen]


def segment(broker: Broker, topic: str, partition: int) -> Path:
    return max(broker.partition_dir(topic, partition).glob("*.log"))


def test_what_was_acknowledged_is_there_after_kill_9(own_broker: Broker, client: Client, topic: str) -> None:
    """34."""
    client.create(topic, 2)
    fill(client, topic, 0)
    fill(client, topic, 1)
    own_broker.kill()
    own_broker.start()
    assert numbers(client, topic, 0) == numbers(client, topic, 1) == list(range(COUNT))


@pytest.mark.parametrize("lost_bytes", [1, 100, 330])
def test_a_torn_tail_is_cut_to_the_last_whole_batch_and_writing_goes_on(
    lost_bytes: int, own_broker: Broker, client: Client, topic: str
) -> None:
    """34: the last batch, of about 280 bytes, is cut inside or together with part of the one before."""
    client.create(topic)
    fill(client, topic, 0)
    own_broker.kill()
    path = segment(own_broker, topic, 0)
    os.truncate(path, path.stat().st_size - lost_bytes)
    own_broker.start()
    whole = COUNT - (1 if lost_bytes < 280 else 2)
    assert numbers(client, topic, 0) == list(range(whole))
    [(_, offset)] = client.produce(topic, [Sent(b"record 99 ", None, 0)])
    assert offset == whole
    assert numbers(client, topic, 0) == [*range(whole), 99]


@levada_only
@pytest.mark.parametrize("clean", [False, True], ids=["after kill -9", "after a clean stop"])
def test_a_flipped_byte_is_reported_and_only_its_partition_suffers(
    clean: bool, own_broker: LevadaBroker, client: Client, topic: str
) -> None:
    """34: served up to the damage, writes refused, the other partition untouched."""
    client.create(topic, 2)
    fill(client, topic, 0)
    fill(client, topic, 1)
    (own_broker.stop if clean else own_broker.kill)()
    path = segment(own_broker, topic, 0)
    content = bytearray(path.read_bytes())
    place = content.index(b"record 25 ")
    content[place] ^= 0x40
    path.write_bytes(content)
    own_broker.start()

    with pytest.raises((Refused, TimeoutError)):
        numbers(client, topic, 0)
    with pytest.raises(Refused) as refused:
        client.call(
            "produce", topic=topic, records=[plain(0)], codec="none", idempotent=False, batch=0, patience_ms=3000
        )
    assert refused.value.code in ("KAFKA_STORAGE_ERROR", "_MSG_TIMED_OUT"), refused.value
    assert numbers(client, topic, 1) == list(range(COUNT))
    client.produce(topic, [Sent(b"record 40 ", None, 1)])
    log = own_broker.log()
    assert path.name in log and "position" in log, log[-3000:]
    assert readable_prefix(own_broker.bootstrap, topic) == list(range(25))


def plain(partition: int) -> dict[str, object]:
    return {"value": "v", "key": None, "partition": partition, "headers": [], "timestamp": None}


def readable_prefix(bootstrap: str, topic: str) -> list[int]:
    """What a reader of partition 0 gets before it meets an error or nothing more comes."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "prefix", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    quiet = 0
    while quiet < 15:
        messages = [message for message in consumer.consume(100, timeout=0.1) if message.error() is None]
        found += [int((message.value() or b"").split()[1]) for message in messages]
        quiet = 0 if messages else quiet + 1
    consumer.close()
    return found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[LevadaBroker, Path]]:
    """A broker whose data directory is a file system of 24 MiB in a mount namespace of its own, and how to reach into it."""
    home = tmp_path / "small"
    (home / "data").mkdir(parents=True)
    inside = f'mount -t tmpfs -o size=24m levada "{home}/data" && exec "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh"]
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail("root, and yet no mount namespace for the disk-full test")
        pytest.skip("the kernel gives this user no mount namespace to fill a disk in")
    broker = LevadaBroker(home, prefix=prefix)
    with broker:
        yield broker, Path(f"/proc/{broker.pid}/root{home}/data")


@levada_only
def test_a_full_disk_refuses_writes_serves_reads_and_recovers_when_there_is_room(
    small_disk: tuple[LevadaBroker, Path], drivers: Callable[[str], Driver], topic: str
) -> None:
    """35."""
    broker, data = small_disk
    client = Client(drivers("librdkafka"), broker.bootstrap)
    client.create(topic)
    client.produce(topic, [Sent(b"record 0 ", None, 0)])
    ballast = data / "ballast"
    with ballast.open("wb") as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"0" * 65536)
            file.flush()
    big = {**plain(0), "value": "record 1 " + "x" * 200_000}
    with pytest.raises(Refused) as refused:
        client.call(
            "produce", topic=topic, records=[big] * 3, codec="none", idempotent=False, batch=1, patience_ms=2500
        )
    assert refused.value.code in ("KAFKA_STORAGE_ERROR", "_MSG_TIMED_OUT"), refused.value
    assert numbers(client, topic, 0) == [0], "reads go on"
    assert "StorageFull" in broker.log() or "No space left" in broker.log() or "room" in broker.log()
    ballast.unlink()
    client.produce(topic, [Sent(b"record 2 ", None, 0)])
    found = numbers(client, topic, 0)
    assert found[0] == 0 and found[-1] == 2 and set(found) <= {0, 1, 2}


def test_a_hundred_thousand_records_reach_three_consumers_once_and_in_order(
    broker: Broker, admin: Client, topic: str
) -> None:
    """36: 12 partitions, zero missing, duplicate or reordered within a partition."""
    partitions, count = 12, 100_000
    admin.create(topic, partitions)
    consumers = [Reader(broker.bootstrap, topic) for _ in range(3)]
    wait_until(lambda: [len(reader.assigned) for reader in consumers] == [4, 4, 4], SETTLE_S, "four partitions each")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    for turn in range(count):
        while len(producer) > 50_000:
            producer.poll(0.05)
        producer.produce(topic, b"%d" % turn, partition=turn % partitions, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0 and not failures
    wait_until(
        lambda: sum(reader.count for reader in consumers) >= count, 60, lambda: f"{[r.count for r in consumers]}"
    )
    for reader in consumers:
        reader.stop()
    found: dict[int, list[int]] = {}
    for reader in consumers:
        assert not found.keys() & reader.values.keys(), "each partition has one reader"
        found |= reader.values
    assert found == {index: list(range(index, count, partitions)) for index in range(partitions)}


class Reader(threading.Thread):
    """A group member that keeps what it reads, by partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        config = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**config, "fetch.wait.max.ms": 50})
        self.consumer.subscribe([topic])
        self.values: dict[int, list[int]] = defaultdict(list)
        self.assigned: list[TopicPartition] = []
        self.count = 0
        self.stopping = False
        self.start()

    def run(self) -> None:
        while not self.stopping:
            for message in self.consumer.consume(5000, timeout=0.1):
                if message.error() is None:
                    self.values[message.partition() or 0].append(int(message.value() or b""))
                    self.count += 1
            self.assigned = self.consumer.assignment()
        self.consumer.close()

    def stop(self) -> None:
        self.stopping = True
        self.join(60)
