"""kill −9 at random moments under load, again and again, on the same data: what was promised is there.

Three idempotent and three transactional producers write all the while and go on by themselves after each restart; a reader
follows along. Every fourth round the broker is killed again while it recovers. In the end: nothing acknowledged is
missing, nothing is reordered or duplicated within an idempotent producer, no transaction is half visible, and what a
reader once saw at an offset is still there.

`LEVADA_CRASH_ROUNDS` sets how often it is killed: 30 by default, in CI as well (a good minute). Against Apache
Kafka, which takes seconds to start, 3 are enough to prove the test. `LEVADA_CRASH_SEED` repeats the moments of a run.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, not declared

from support.brokers import KIND, Broker, make_broker

ROUNDS = int(os.environ.get("LEVADA_CRASH_ROUNDS", "3" if KIND == "kafka" else "30"))
SEED = int(os.environ.get("LEVADA_CRASH_SEED", str(random.randrange(1 << 32))))
PLAIN, MOVED = "plain", "moved"
PLAIN_PARTITIONS, MOVED_PARTITIONS = 4, 3
PATIENCE_S = 60.0
#: In which partitions a transaction may be visible, by how it ended: in all or in none.
EVERY = list(range(MOVED_PARTITIONS))
ALLOWED: dict[str, list[list[int]]] = {"committed": [EVERY], "aborted": [[]], "unknown": [EVERY, []]}
CLIENT = {"broker.address.family": "v4", "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


class IdempotentWriter(threading.Thread):
    """Sends its numbers in order to a partition of its own and to one that all share; keeps what was acknowledged."""

    def __init__(self, bootstrap: str, index: int) -> None:
        super().__init__(daemon=True)
        config = {**CLIENT, "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        self.producer = Producer({**config, "message.timeout.ms": int(PATIENCE_S * 1000), "retry.backoff.ms": 20})
        self.index, self.sent = index, 0
        self.acked: list[tuple[int, int, int]] = []
        self.failed: list[KafkaError] = []
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            for partition in (self.index, PLAIN_PARTITIONS - 1):
                value = b"%d:%d" % (self.index, self.sent)
                self.producer.produce(PLAIN, value, partition=partition, on_delivery=self.delivered)
            self.sent += 1
            self.producer.poll(0)
            if self.sent % 50 == 0:
                time.sleep(0.005)
            while len(self.producer) > 2000 and not self.stopping:
                self.producer.poll(0.05)
        self.producer.flush(PATIENCE_S)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        offset = message.offset()
        assert offset is not None
        self.acked.append((message.partition() or 0, offset, int((message.value() or b"").split(b":")[1])))


class TransactionalWriter(threading.Thread):
    """Writes one record to each partition in a transaction, commits most and aborts some; keeps how each ended."""

    def __init__(self, bootstrap: str, index: int, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.index, self.rng = bootstrap, index, rng
        self.outcome: dict[int, str] = {}
        self.stopping = False
        self.problems: list[str] = []

    def run(self) -> None:
        producer = self.open()
        turn = 0
        while not self.stopping:
            self.outcome[turn] = "unknown"
            try:
                self.outcome[turn] = self.once(producer, turn)
            except KafkaException as error:
                producer = self.recover(producer, error)
            turn += 1

    def open(self) -> Producer:
        config = {**CLIENT, "bootstrap.servers": self.bootstrap, "transactional.id": f"mover-{self.index}"}
        producer = Producer({**config, "transaction.timeout.ms": 30_000, "linger.ms": 0, "retry.backoff.ms": 20})
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                producer.init_transactions(5)
                return producer
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def once(self, producer: Producer, turn: int) -> str:
        producer.begin_transaction()
        for partition in range(MOVED_PARTITIONS):
            producer.produce(MOVED, b"%d:%d" % (self.index, turn), partition=partition)
        if self.rng.random() < 0.2:
            self.insist(lambda: producer.abort_transaction(5))
            return "aborted"
        self.insist(lambda: producer.commit_transaction(5))
        return "committed"

    def insist(self, work: object) -> None:
        """Repeat while the error may pass: the broker is away for a moment in every round."""
        assert callable(work)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                work()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def recover(self, producer: Producer, error: KafkaException) -> Producer:
        kind: KafkaError = error.args[0]
        if kind.txn_requires_abort():
            try:
                self.insist(lambda: producer.abort_transaction(5))
                return producer
            except KafkaException as worse:
                kind = worse.args[0]
        self.problems.append(str(kind))
        return self.open()


class Follower(threading.Thread):
    """Reads both topics as they grow and keeps what it saw at each place; read_committed, so all of it is final."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        config = {**CLIENT, "bootstrap.servers": bootstrap, "group.id": "follower", "enable.auto.commit": False}
        self.consumer = Consumer({**config, "auto.offset.reset": "error", "fetch.wait.max.ms": 50})
        places = [TopicPartition(PLAIN, index, 0) for index in range(PLAIN_PARTITIONS)]
        places += [TopicPartition(MOVED, index, 0) for index in range(MOVED_PARTITIONS)]
        self.consumer.assign(places)
        self.seen: dict[tuple[str, int, int], bytes | None] = {}
        self.twice: list[tuple[str, int, int]] = []
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            for message in self.consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
                    if self.seen.setdefault(place, message.value()) != message.value():
                        self.twice.append(place)
        self.consumer.close()


@pytest.fixture
def crashing(tmp_path: Path) -> Broker:
    return make_broker(tmp_path / "broker", {"transaction.state.log.min.isr": "1"} if KIND == "kafka" else {})


@pytest.mark.timeout(60 + ROUNDS * 30)
def test_what_was_promised_survives_kill_9_at_random_moments(crashing: Broker) -> None:
    rng = random.Random(SEED)
    print(f"LEVADA_CRASH_SEED={SEED}")
    with crashing as broker:
        create_topics(broker.bootstrap)
        plain = [IdempotentWriter(broker.bootstrap, index) for index in range(PLAIN_PARTITIONS - 1)]
        moving = [TransactionalWriter(broker.bootstrap, index, random.Random(SEED + index)) for index in range(3)]
        follower = Follower(broker.bootstrap)
        for thread in (*plain, *moving, follower):
            thread.start()
        for turn in range(ROUNDS):
            # Short lives meet recovering clients, long ones full load: librdkafka takes a second to find its coordinator.
            time.sleep(rng.uniform(0.05, 0.8) if rng.random() < 0.4 else rng.uniform(1.3, 2.2))
            broker.kill()
            if turn % 4 == 3:
                broker.launch()
                time.sleep(rng.uniform(0.05, 0.6))
                broker.kill()
            broker.start()
        time.sleep(1)
        writers: list[IdempotentWriter | TransactionalWriter] = [*plain, *moving]
        for writer in writers:
            writer.stopping = True
        for writer in writers:
            writer.join(PATIENCE_S + 10)
            assert not writer.is_alive(), f"{writer} did not finish after the last restart"
        broker.kill()
        broker.start()
        check_plain(broker.bootstrap, plain)
        check_moved(broker.bootstrap, moving)
        follower.stopping = True
        follower.join(60)
        check_followed(broker.bootstrap, follower)
        print(f"{ROUNDS} rounds: {summary(plain, moving, follower)}")


def summary(plain: list[IdempotentWriter], moving: list[TransactionalWriter], follower: Follower) -> str:
    """How much the run had to show; pytest -s prints it."""
    endings = Counter(outcome for writer in moving for outcome in writer.outcome.values())
    acknowledged = sum(len(writer.acked) for writer in plain)
    return f"{acknowledged} records acknowledged, {len(follower.seen)} followed, transactions {dict(endings)}"


def create_topics(bootstrap: str) -> None:
    settings = {"segment.bytes": "1048576"}
    topics = [
        NewTopic(PLAIN, PLAIN_PARTITIONS, 1, config=settings),
        NewTopic(MOVED, MOVED_PARTITIONS, 1, config=settings),
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a future of an admin client that is gone fails
    for future in admin.create_topics(topics).values():
        future.result()


def read(bootstrap: str, topic: str, *, committed: bool) -> dict[int, list[tuple[int, bytes]]]:
    """Every record of a topic, as (offset, value) by partition, up to the end."""
    level = "read_committed" if committed else "read_uncommitted"
    config = {**CLIENT, "bootstrap.servers": bootstrap, "group.id": "check", "isolation.level": level}
    consumer = Consumer({**config, "enable.partition.eof": True, "enable.auto.commit": False})
    partitions = PLAIN_PARTITIONS if topic == PLAIN else MOVED_PARTITIONS
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    unfinished, deadline = set(range(partitions)), time.monotonic() + PATIENCE_S
    while unfinished:
        assert time.monotonic() < deadline, f"{topic} {unfinished} does not end"
        for message in consumer.consume(5000, timeout=0.5):
            error = message.error()
            if error is None:
                found[message.partition() or 0].append((message.offset() or 0, message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition() or 0)
    consumer.close()
    return found


def check_plain(bootstrap: str, writers: list[IdempotentWriter]) -> None:
    found = read(bootstrap, PLAIN, committed=False)
    for writer in writers:
        assert not writer.failed, f"producer {writer.index} was refused: {writer.failed[:3]}"
        for partition in (writer.index, PLAIN_PARTITIONS - 1):
            ours = [(offset, value) for offset, value in found[partition] if value.startswith(b"%d:" % writer.index)]
            turns = [int(value.split(b":")[1]) for _, value in ours]
            assert turns == list(range(writer.sent)), f"producer {writer.index} in {partition}: {first_odd(turns)}"
        places = {(partition, offset): value for partition in found for offset, value in found[partition]}
        missing = [ack for ack in writer.acked if places.get(ack[:2]) != b"%d:%d" % (writer.index, ack[2])]
        assert not missing, f"acknowledged by producer {writer.index} and not there: {missing[:5]}"
    assert all(len(writer.acked) > 100 for writer in writers), "something was written at all"


def first_odd(turns: list[int]) -> str:
    """Where a list stops counting up by one."""
    for place, (turn, after) in enumerate(pairwise(turns)):
        if after != turn + 1:
            return f"{after} follows {turn} at {place} of {len(turns)}"
    return f"{turns[:1]} to {turns[-1:]}, {len(turns)} in all"


def check_moved(bootstrap: str, writers: list[TransactionalWriter]) -> None:
    found = read(bootstrap, MOVED, committed=True)
    visible: dict[bytes, list[int]] = defaultdict(list)
    for partition, records in found.items():
        for _offset, value in records:
            visible[value].append(partition)
    endings = [outcome for writer in writers for outcome in writer.outcome.values()]
    assert "committed" in endings, [writer.problems for writer in writers]
    for writer in writers:
        for turn, outcome in writer.outcome.items():
            seen = sorted(visible[b"%d:%d" % (writer.index, turn)])
            allowed = ALLOWED[outcome]
            assert seen in allowed, f"transaction {writer.index}:{turn} was {outcome} and is visible in {seen}"


def check_followed(bootstrap: str, follower: Follower) -> None:
    assert not follower.twice, f"another value at the same offset: {follower.twice[:5]}"
    final = {
        (topic, partition, offset): value
        for topic in (PLAIN, MOVED)
        for partition, records in read(bootstrap, topic, committed=True).items()
        for offset, value in records
    }
    gone = {place: value for place, value in follower.seen.items() if final.get(place) != value}
    assert not gone, f"seen by a reader and not there any more: {list(gone.items())[:5]}"
    assert follower.seen
