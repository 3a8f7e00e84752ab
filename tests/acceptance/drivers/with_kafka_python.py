"""kafka-python: does everything, in pure Python.

- Reads `read_committed`, joins with range, cooperative-sticky or as a static member, administers, runs transactions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError, for_code
from kafka.structs import OffsetAndMetadata
from loop import Failed, data, seen, serve

CLIENT: dict[str, Any] = {"reconnect_backoff_ms": 20, "retry_backoff_ms": 20}
ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
END_S = 40.0


def name_of(error: Exception) -> str | None:
    message = getattr(error, "message", None)
    if not isinstance(error, KafkaError) or not message:
        return None
    return {"MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE"}.get(message, str(message))


def refuse(errors: Any) -> None:
    """Raise for the first error class that is not NoError."""
    for error in errors:
        if isinstance(error, type) and error.errno:
            raise Failed(error.message, error.__name__)


def record(message: Any) -> dict[str, Any]:
    return seen(message.partition, message.offset, message.timestamp, message.key, message.value, list(message.headers))


class Member(threading.Thread):
    """A consumer of a group, polled until told to stop."""

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        super().__init__(daemon=True)
        self.consumer = KafkaConsumer(**config)
        self.consumer.subscribe([topic])
        self.records: list[dict[str, Any]] = []
        self.assigned: list[int] = []
        self.stopping = False
        self.start()

    def run(self) -> None:
        while not self.stopping:
            for messages in self.poll().values():
                self.records.extend(record(message) for message in messages)
            self.assigned = [place.partition for place in self.consumer.assignment()]
        self.consumer.close()

    def poll(self) -> dict[TopicPartition, list[Any]]:
        try:
            # A poll that ends while SyncGroup is under way forgets that it joined, and never sends a heartbeat.
            return self.consumer.poll(timeout_ms=500)  # type: ignore[no-any-return]
        except KafkaError:  # no broker to be found just now
            time.sleep(0.05)
            return {}


class Calls:
    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.producers: dict[str, KafkaProducer] = {}

    def with_admin(self, at: str, work: Callable[[KafkaAdminClient], Any]) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=at, **CLIENT)
        try:
            return work(admin)
        finally:
            admin.close()

    def with_consumer(self, at: str, work: Callable[[KafkaConsumer], Any], **config: Any) -> Any:
        consumer = KafkaConsumer(
            bootstrap_servers=at, enable_auto_commit=False, fetch_max_wait_ms=50, **CLIENT, **config
        )
        try:
            return work(consumer)
        finally:
            consumer.close()

    def produce(
        self, at: str, topic: str, records: list[Any], codec: str, idempotent: bool, batch: int
    ) -> list[list[int]]:
        config = {"acks": "all", "compression_type": None if codec == "none" else codec, "linger_ms": 5, **CLIENT}
        if batch:
            config |= {"batch_size": batch * 64, "linger_ms": 0}
        producer = KafkaProducer(bootstrap_servers=at, enable_idempotence=idempotent, **config)
        try:
            return self.send_all(producer, topic, records)
        finally:
            producer.close()

    def send_all(self, producer: KafkaProducer, topic: str, records: list[Any]) -> list[list[int]]:
        futures = [
            producer.send(
                topic,
                value=data(fields["value"]),
                key=data(fields["key"]),
                partition=fields["partition"],
                headers=[(name, data(value)) for name, value in fields["headers"]],
                timestamp_ms=fields["timestamp"],
            )
            for fields in records
        ]
        producer.flush(30)
        return [[future.get(30).partition, future.get(30).offset] for future in futures]

    def places(self, consumer: KafkaConsumer, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic))]

    def consume(self, at: str, topic: str, start: dict[str, int] | None, committed: bool) -> list[Any]:
        level = "read_committed" if committed else "read_uncommitted"
        reset = "none" if start else "earliest"

        def work(consumer: KafkaConsumer) -> list[Any]:
            first = {TopicPartition(topic, int(index)): offset for index, offset in (start or {}).items()}
            first = first or dict.fromkeys(self.places(consumer, topic), 0)
            consumer.assign(list(first))
            for place, offset in first.items():
                consumer.seek(place, offset)
            ends = consumer.end_offsets(list(first))
            found, deadline = [], time.monotonic() + END_S
            while any(consumer.position(place) < end for place, end in ends.items()):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic} has not ended: {ends}")
                for messages in consumer.poll(timeout_ms=100).values():
                    found.extend(record(message) for message in messages)
            return found

        return self.with_consumer(at, work, isolation_level=level, auto_offset_reset=reset)  # type: ignore[no-any-return]

    def offsets_at(self, at: str, topic: str, timestamp: int) -> dict[str, int | None]:
        def work(consumer: KafkaConsumer) -> dict[str, int | None]:
            found = consumer.offsets_for_times(dict.fromkeys(self.places(consumer, topic), timestamp))
            return {str(place.partition): at_time.offset if at_time else None for place, at_time in found.items()}

        return self.with_consumer(at, work)  # type: ignore[no-any-return]

    def bounds(self, at: str, topic: str) -> dict[str, list[int]]:
        def work(consumer: KafkaConsumer) -> dict[str, list[int]]:
            places = self.places(consumer, topic)
            low, high = consumer.beginning_offsets(places), consumer.end_offsets(places)
            return {str(place.partition): [low[place], high[place]] for place in places}

        return self.with_consumer(at, work)  # type: ignore[no-any-return]

    def join(self, at: str, name: str, group: str, topic: str, session_ms: int, **options: Any) -> None:
        config = {**CLIENT, "bootstrap_servers": at, "group_id": group, "session_timeout_ms": session_ms}
        config |= {"heartbeat_interval_ms": session_ms // 6, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
        config |= {"enable_auto_commit": options.get("commit", True), "auto_commit_interval_ms": 100}
        config |= {"metadata_max_age_ms": 500, "max_poll_interval_ms": 10_000, "request_timeout_ms": 11_000}
        if options.get("assignor"):
            config["partition_assignment_strategy"] = [ASSIGNORS[options["assignor"]]]
        if options.get("instance"):
            config["group_instance_id"] = options["instance"]
        self.members[name] = Member(config, topic)

    def look(self, name: str) -> dict[str, Any]:
        member = self.members[name]
        return {"assigned": list(member.assigned), "records": list(member.records)}

    def leave(self, name: str) -> None:
        member = self.members.pop(name)
        member.stopping = True
        member.join(60)

    def commit(self, at: str, group: str, topic: str, offsets: dict[str, int]) -> None:
        wanted = {
            TopicPartition(topic, int(index)): OffsetAndMetadata(offset, "", -1) for index, offset in offsets.items()
        }
        refuse(self.with_admin(at, lambda admin: admin.alter_group_offsets(group, wanted)).values())

    def committed(self, at: str, group: str, topic: str) -> dict[str, int | None]:
        places = self.with_consumer(at, lambda consumer: self.places(consumer, topic))
        found = self.with_admin(at, lambda admin: admin.list_group_offsets({group: places}))[group]
        return {str(place.partition): kept.offset if kept.offset >= 0 else None for place, kept in found.items()}

    def create(self, at: str, topic: str, partitions: int, config: dict[str, str]) -> None:
        spec = {topic: {"num_partitions": partitions, "replication_factor": 1, "configs": config}}
        self.with_admin(at, lambda admin: admin.create_topics(spec))

    def expand(self, at: str, topic: str, partitions: int) -> None:
        self.with_admin(at, lambda admin: admin.create_partitions({topic: partitions}))

    def delete(self, at: str, topic: str) -> None:
        self.with_admin(at, lambda admin: admin.delete_topics([topic]))

    def topics(self, at: str) -> dict[str, int]:
        found = self.with_admin(at, lambda admin: admin.describe_topics())
        return {topic["name"]: len(topic["partitions"]) for topic in found}

    def configs(self, at: str, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self.with_admin(at, lambda admin: admin.describe_configs([resource], config_filter="all"))
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def alter(self, at: str, topic: str, config: dict[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=config)
        answer = self.with_admin(at, lambda admin: admin.alter_configs([resource]))["topic"][topic]
        if answer != "OK":  # `[Error 40] InvalidConfigurationError: …`, as text
            raise Failed(for_code(int(answer.partition("]")[0].removeprefix("[Error "))).message, answer)

    def trim(self, at: str, topic: str, before: dict[str, int]) -> None:
        places = {TopicPartition(topic, int(index)): offset for index, offset in before.items()}
        self.with_admin(at, lambda admin: admin.delete_records(places))

    def open(self, at: str, name: str, id: str, timeout_ms: int) -> None:  # noqa: A002
        producer = KafkaProducer(
            bootstrap_servers=at, transactional_id=id, transaction_timeout_ms=timeout_ms, linger_ms=0, **CLIENT
        )
        self.producers[name] = producer
        producer.init_transactions()

    def begin(self, name: str) -> None:
        self.producers[name].begin_transaction()

    def send(self, name: str, topic: str, records: list[Any]) -> None:
        self.send_all(self.producers[name], topic, records)

    def send_offsets(self, name: str, group: str, topic: str, offsets: dict[str, int]) -> None:
        wanted = {
            TopicPartition(topic, int(index)): OffsetAndMetadata(offset, "", -1) for index, offset in offsets.items()
        }
        self.producers[name].send_offsets_to_transaction(wanted, group)

    def commit_transaction(self, name: str) -> None:
        self.producers[name].commit_transaction()

    def abort_transaction(self, name: str) -> None:
        self.producers[name].abort_transaction()

    def close(self, name: str) -> None:
        self.producers.pop(name).close(0)


serve(Calls(), name_of)
