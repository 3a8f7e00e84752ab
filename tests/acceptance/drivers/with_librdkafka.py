"""librdkafka through confluent-kafka: does everything.

- Offsets by time, bounds, groups (range, cooperative-sticky, static members), admin and transactions are all there.
- OffsetForLeaderEpoch, KIP-848 and share groups are left to other tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from loop import data, seen, serve

CLIENT = {"broker.address.family": "v4", "log_level": "3", "reconnect.backoff.ms": "20", "retry.backoff.ms": "20"}
END_S = 40.0
LOADING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
Answer = TypeVar("Answer")
KAFKA_NAMES = {
    "UNKNOWN_TOPIC_OR_PART": "UNKNOWN_TOPIC_OR_PARTITION",
    "MSG_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "_AUTO_OFFSET_RESET": "OFFSET_OUT_OF_RANGE",
}


def name_of(error: Exception) -> str | None:
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else None
    if not isinstance(inner, KafkaError):
        return None
    return KAFKA_NAMES.get(inner.name(), inner.name())


def record(message: Message) -> dict[str, Any]:
    kind, timestamp = message.timestamp()
    stamp = -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp
    return seen(message.partition(), message.offset(), stamp, message.key(), message.value(), message.headers())


def patiently(work: Callable[[], Answer]) -> Answer:
    """Ask again while the group's coordinator is loading, which the admin client leaves to its user."""
    deadline = time.monotonic() + END_S
    while True:
        try:
            return work()
        except KafkaException as error:
            if name_of(error) not in LOADING or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Member(threading.Thread):
    """A consumer of a group, polled until told to stop. Commits what it got as it goes, unless asked not to."""

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        super().__init__(daemon=True)
        self.consumer = Consumer(config)
        self.records: list[dict[str, Any]] = []
        self.assigned: list[int] = []
        self.stopping = False
        self.consumer.subscribe([topic])
        self.start()

    def run(self) -> None:
        while not self.stopping:
            for message in self.consumer.consume(500, timeout=0.05):
                if message.error() is None:
                    self.records.append(record(message))
            self.assigned = [place.partition for place in self.consumer.assignment()]
        self.consumer.close()


class Calls:
    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.producers: dict[str, Producer] = {}
        self.admins: dict[str, AdminClient] = {}

    def admin(self, at: str) -> AdminClient:
        """Kept, because a future of an admin client that is gone fails."""
        if at not in self.admins:
            self.admins = {at: AdminClient({**CLIENT, "bootstrap.servers": at})}
        return self.admins[at]

    def produce(
        self,
        at: str,
        topic: str,
        records: list[Any],
        codec: str,
        idempotent: bool,
        batch: int,
        patience_ms: int = 30_000,
    ) -> list[list[int]]:
        config = {**CLIENT, "bootstrap.servers": at, "acks": "all", "compression.type": codec, "linger.ms": 5}
        config |= {"enable.idempotence": idempotent, "message.timeout.ms": patience_ms}
        if batch:
            config |= {"batch.num.messages": batch, "linger.ms": 0}
        return self.send_all(Producer(config), topic, records)

    def send_all(self, producer: Producer, topic: str, records: list[Any]) -> list[list[int]]:
        places: list[list[int] | KafkaError] = [[-1, -1]] * len(records)

        def placed(index: int, error: KafkaError | None, message: Message) -> None:
            places[index] = error if error is not None else [message.partition(), message.offset()]

        for index, fields in enumerate(records):
            options: dict[str, Any] = {}
            if fields["partition"] is not None:
                options["partition"] = fields["partition"]
            if fields["timestamp"] is not None:
                options["timestamp"] = fields["timestamp"]
            headers = [(name, data(value)) for name, value in fields["headers"]]
            report = lambda error, message, index=index: placed(index, error, message)  # noqa: E731
            producer.produce(
                topic, data(fields["value"]), data(fields["key"]), headers=headers, on_delivery=report, **options
            )
            producer.poll(0)
        producer.flush(30)
        for place in places:
            if isinstance(place, KafkaError):
                raise KafkaException(place)
        return places  # type: ignore[return-value]  # no error is left

    def partitions(self, at: str, topic: str) -> list[int]:
        return sorted(self.admin(at).list_topics(topic, timeout=60).topics[topic].partitions)

    def consume(self, at: str, topic: str, start: dict[str, int] | None, committed: bool) -> list[Any]:
        first = dict.fromkeys(self.partitions(at, topic), 0) if start is None else start
        config = {**CLIENT, "bootstrap.servers": at, "group.id": "unused", "enable.auto.commit": False}
        config |= {"enable.partition.eof": True, "auto.offset.reset": "error" if start else "earliest"}
        config |= {"isolation.level": "read_committed" if committed else "read_uncommitted", "fetch.wait.max.ms": 50}
        consumer = Consumer(config)
        consumer.assign([TopicPartition(topic, int(index), offset) for index, offset in first.items()])
        found, open_partitions, deadline = [], {int(index) for index in first}, time.monotonic() + END_S
        while open_partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"partitions {open_partitions} have not ended")
            for message in consumer.consume(500, timeout=0.1):
                error = message.error()
                if error is None:
                    found.append(record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
        consumer.close()
        return found

    def offsets_at(self, at: str, topic: str, timestamp: int) -> dict[str, int | None]:
        consumer = Consumer({**CLIENT, "bootstrap.servers": at, "group.id": "unused"})
        asked = [TopicPartition(topic, index, timestamp) for index in self.partitions(at, topic)]
        answer = consumer.offsets_for_times(asked, timeout=60)
        consumer.close()
        return {str(found.partition): found.offset if found.offset >= 0 else None for found in answer}

    def bounds(self, at: str, topic: str) -> dict[str, list[int]]:
        consumer = Consumer({**CLIENT, "bootstrap.servers": at, "group.id": "unused"})
        found = {
            str(index): list(consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=60))
            for index in self.partitions(at, topic)
        }
        consumer.close()
        return found

    def join(self, at: str, name: str, group: str, topic: str, session_ms: int, **options: Any) -> None:
        config = {**CLIENT, "bootstrap.servers": at, "group.id": group, "session.timeout.ms": session_ms}
        config |= {"heartbeat.interval.ms": session_ms // 6, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
        config |= {"enable.auto.commit": options.get("commit", True), "auto.commit.interval.ms": 100}
        config |= {"topic.metadata.refresh.interval.ms": 500, "metadata.max.age.ms": 1000}
        if options.get("assignor"):
            config["partition.assignment.strategy"] = options["assignor"]
        if options.get("instance"):
            config["group.instance.id"] = options["instance"]
        self.members[name] = Member(config, topic)

    def look(self, name: str) -> dict[str, Any]:
        member = self.members[name]
        return {"assigned": list(member.assigned), "records": list(member.records)}

    def leave(self, name: str) -> None:
        member = self.members.pop(name)
        member.stopping = True
        member.join(60)

    def commit(self, at: str, group: str, topic: str, offsets: dict[str, int]) -> None:
        patiently(lambda: self.commit_once(at, group, topic, offsets))

    def commit_once(self, at: str, group: str, topic: str, offsets: dict[str, int]) -> None:
        places = [TopicPartition(topic, int(index), offset) for index, offset in offsets.items()]
        futures = self.admin(at).alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        for future in futures.values():
            for place in future.result().topic_partitions:
                if place.error is not None:
                    raise KafkaException(place.error)

    def committed(self, at: str, group: str, topic: str) -> dict[str, int | None]:
        return patiently(lambda: self.committed_once(at, group, topic))

    def committed_once(self, at: str, group: str, topic: str) -> dict[str, int | None]:
        asked = [TopicPartition(topic, index) for index in self.partitions(at, topic)]
        futures = self.admin(at).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)])
        answer = [place for future in futures.values() for place in future.result().topic_partitions]
        return {str(place.partition): place.offset if place.offset >= 0 else None for place in answer}

    def create(self, at: str, topic: str, partitions: int, config: dict[str, str]) -> None:
        [future] = self.admin(at).create_topics([NewTopic(topic, partitions, 1, config=config)]).values()
        future.result()

    def expand(self, at: str, topic: str, partitions: int) -> None:
        [future] = self.admin(at).create_partitions([NewPartitions(topic, partitions)]).values()
        future.result()

    def delete(self, at: str, topic: str) -> None:
        [future] = self.admin(at).delete_topics([topic]).values()
        future.result()

    def topics(self, at: str) -> dict[str, int]:
        found = self.admin(at).list_topics(timeout=60).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def configs(self, at: str, topic: str) -> dict[str, str]:
        [future] = self.admin(at).describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in future.result().items()}

    def alter(self, at: str, topic: str, config: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        [future] = self.admin(at).incremental_alter_configs([resource]).values()
        future.result()

    def trim(self, at: str, topic: str, before: dict[str, int]) -> None:
        places = [TopicPartition(topic, int(index), offset) for index, offset in before.items()]
        for future in self.admin(at).delete_records(places).values():
            future.result()

    def ends(self, at: str, topic: str, committed: bool) -> dict[str, int]:
        asked = {TopicPartition(topic, index): OffsetSpec.latest() for index in self.partitions(at, topic)}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self.admin(at).list_offsets(asked, isolation_level=level)
        return {str(place.partition): future.result().offset for place, future in futures.items()}

    def open(self, at: str, name: str, id: str, timeout_ms: int) -> None:  # noqa: A002
        config = {**CLIENT, "bootstrap.servers": at, "transactional.id": id, "transaction.timeout.ms": timeout_ms}
        self.producers[name] = Producer({**config, "linger.ms": 0})
        self.producers[name].init_transactions(20)

    def begin(self, name: str) -> None:
        self.producers[name].begin_transaction()

    def send(self, name: str, topic: str, records: list[Any]) -> None:
        self.send_all(self.producers[name], topic, records)

    def send_offsets(self, name: str, group: str, topic: str, offsets: dict[str, int]) -> None:
        places = [TopicPartition(topic, int(index), offset) for index, offset in offsets.items()]
        consumer = Consumer({**CLIENT, "bootstrap.servers": "127.0.0.1:1", "group.id": group})
        self.producers[name].send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 20)
        consumer.close()

    def commit_transaction(self, name: str) -> None:
        self.producers[name].commit_transaction(20)

    def abort_transaction(self, name: str) -> None:
        self.producers[name].abort_transaction(20)

    def close(self, name: str) -> None:
        del self.producers[name]


serve(Calls(), name_of)
