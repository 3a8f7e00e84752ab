"""aiokafka: does everything but commit for a group it is no member of through its admin client (a consumer does that).

- Joins with range, roundrobin or sticky; it knows neither cooperative assignors nor static members over its old protocol.
- Changes configs with the older AlterConfigs, which replaces all of a topic's settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError, for_code
from loop import Failed, data, seen, serve

ASSIGNORS = {"range": RangePartitionAssignor}
END_S = 40.0


def name_of(error: Exception) -> str | None:
    message = getattr(error, "message", None)
    if not isinstance(error, KafkaError) or not message:
        return None
    return {"MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE"}.get(message, str(message))


def refuse(code: int, message: str | None) -> None:
    if code:
        raise Failed(str(for_code(code).message), message or "")


def record(message: Any) -> dict[str, Any]:
    return seen(message.partition, message.offset, message.timestamp, message.key, message.value, message.headers)


class Member:
    """A consumer of a group, polled on the driver's loop until told to stop."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.records: list[dict[str, Any]] = []
        self.task = asyncio.ensure_future(self.run())

    async def run(self) -> None:
        while True:
            for messages in (await self.consumer.getmany(timeout_ms=50)).values():
                self.records.extend(record(message) for message in messages)


class Calls:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.members: dict[str, Member] = {}
        self.producers: dict[str, AIOKafkaProducer] = {}

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(40)

    def with_admin(self, at: str, work: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=at)
            await admin.start()
            try:
                return await work(admin)
            finally:
                await admin.close()

        return self.wait(run())

    def with_consumer(self, at: str, work: Callable[[AIOKafkaConsumer], Awaitable[Any]], **config: Any) -> Any:
        async def run() -> Any:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=at, enable_auto_commit=False, fetch_max_wait_ms=50, retry_backoff_ms=20, **config
            )
            await consumer.start()
            try:
                return await work(consumer)
            finally:
                await consumer.stop()

        return self.wait(run())

    def produce(
        self, at: str, topic: str, records: list[Any], codec: str, idempotent: bool, batch: int
    ) -> list[list[int]]:
        async def run() -> list[list[int]]:
            config = {"acks": "all", "compression_type": None if codec == "none" else codec, "linger_ms": 5}
            if batch:
                config |= {"max_batch_size": batch * 64, "linger_ms": 0}
            producer = AIOKafkaProducer(
                bootstrap_servers=at, enable_idempotence=idempotent, retry_backoff_ms=20, **config
            )
            await producer.start()
            try:
                return await self.send_all(producer, topic, records)
            finally:
                await producer.stop()

        return self.wait(run())  # type: ignore[no-any-return]

    async def send_all(self, producer: AIOKafkaProducer, topic: str, records: list[Any]) -> list[list[int]]:
        futures = [
            await producer.send(
                topic,
                value=data(fields["value"]),
                key=data(fields["key"]),
                partition=fields["partition"],
                headers=[(name, data(value)) for name, value in fields["headers"]],
                timestamp_ms=fields["timestamp"],
            )
            for fields in records
        ]
        return [[place.partition, place.offset] for place in await asyncio.gather(*futures)]

    async def places(self, consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
        # The consumer only knows topics it reads; asking the cluster first makes it know this one.
        await consumer._client.add_topic(topic)
        await consumer._client.force_metadata_update()
        return [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic) or ())]

    def consume(self, at: str, topic: str, start: dict[str, int] | None, committed: bool) -> list[Any]:
        async def work(consumer: AIOKafkaConsumer) -> list[Any]:
            first = {TopicPartition(topic, int(index)): offset for index, offset in (start or {}).items()}
            first = first or dict.fromkeys(await self.places(consumer, topic), 0)
            consumer.assign(list(first))
            for place, offset in first.items():
                consumer.seek(place, offset)
            ends = await self.ends(consumer, list(first), committed)
            found, deadline = [], time.monotonic() + END_S
            while any([await consumer.position(place) < end for place, end in ends.items()]):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic} has not ended: {ends}")
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    found.extend(record(message) for message in messages)
            return found

        level = "read_committed" if committed else "read_uncommitted"
        reset = "none" if start else "earliest"
        return self.with_consumer(at, work, isolation_level=level, auto_offset_reset=reset)  # type: ignore[no-any-return]

    async def ends(
        self, consumer: AIOKafkaConsumer, places: list[TopicPartition], committed: bool
    ) -> dict[TopicPartition, int]:
        """Where this reader's view ends. With read_committed that is the stable offset, told by each fetch."""
        ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
        return ends

    def offsets_at(self, at: str, topic: str, timestamp: int) -> dict[str, int | None]:
        async def work(consumer: AIOKafkaConsumer) -> dict[str, int | None]:
            found = await consumer.offsets_for_times(dict.fromkeys(await self.places(consumer, topic), timestamp))
            return {str(place.partition): at_time.offset if at_time else None for place, at_time in found.items()}

        return self.with_consumer(at, work)  # type: ignore[no-any-return]

    def bounds(self, at: str, topic: str) -> dict[str, list[int]]:
        async def work(consumer: AIOKafkaConsumer) -> dict[str, list[int]]:
            places = await self.places(consumer, topic)
            low, high = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
            return {str(place.partition): [low[place], high[place]] for place in places}

        return self.with_consumer(at, work)  # type: ignore[no-any-return]

    def join(self, at: str, name: str, group: str, topic: str, session_ms: int, **options: Any) -> None:
        async def run() -> Member:
            config = {"bootstrap_servers": at, "group_id": group, "session_timeout_ms": session_ms}
            config |= {"heartbeat_interval_ms": session_ms // 6, "auto_offset_reset": "earliest"}
            config |= {"enable_auto_commit": options.get("commit", True), "auto_commit_interval_ms": 100}
            config |= {"metadata_max_age_ms": 500, "rebalance_timeout_ms": 5000, "fetch_max_wait_ms": 50}
            if options.get("assignor"):
                config["partition_assignment_strategy"] = [ASSIGNORS[options["assignor"]]]
            consumer = AIOKafkaConsumer(topic, **config)
            await consumer.start()
            return Member(consumer)

        self.members[name] = self.wait(run())

    def look(self, name: str) -> dict[str, Any]:
        member = self.members[name]
        return {
            "assigned": [place.partition for place in member.consumer.assignment()],
            "records": list(member.records),
        }

    def leave(self, name: str) -> None:
        member = self.members.pop(name)

        async def run() -> None:
            member.task.cancel()
            await asyncio.wait([member.task])
            # Stopped while it does not know its coordinator (the broker was restarted), aiokafka 0.14 tries its last commit
            # for ever without looking for one. A commit before makes it look.
            with contextlib.suppress(KafkaError):
                await member.consumer.commit()
            await member.consumer.stop()

        self.wait(run())

    def commit(self, at: str, group: str, topic: str, offsets: dict[str, int]) -> None:
        async def work(consumer: AIOKafkaConsumer) -> None:
            wanted = {TopicPartition(topic, int(index)): offset for index, offset in offsets.items()}
            consumer.assign(list(wanted))
            await consumer.commit(wanted)

        self.with_consumer(at, work, group_id=group)

    def committed(self, at: str, group: str, topic: str) -> dict[str, int | None]:
        places = self.with_consumer(at, lambda consumer: self.places(consumer, topic))
        found = self.with_admin(at, lambda admin: admin.list_consumer_group_offsets(group, partitions=places))
        return {str(place.partition): kept.offset if kept.offset >= 0 else None for place, kept in found.items()}

    def create(self, at: str, topic: str, partitions: int, config: dict[str, str]) -> None:
        answer = self.with_admin(
            at, lambda admin: admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])
        )
        for _name, code, message in answer.topic_errors:
            refuse(code, message)

    def expand(self, at: str, topic: str, partitions: int) -> None:
        self.with_admin(at, lambda admin: admin.create_partitions({topic: NewPartitions(partitions)}))

    def delete(self, at: str, topic: str) -> None:
        answer = self.with_admin(at, lambda admin: admin.delete_topics([topic]))
        for _name, code in answer.topic_error_codes:
            refuse(code, None)

    def topics(self, at: str) -> dict[str, int]:
        found = self.with_admin(at, lambda admin: admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in found}

    def configs(self, at: str, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        [answer] = self.with_admin(at, lambda admin: admin.describe_configs([resource]))
        [(code, message, _type, _name, entries)] = answer.resources
        refuse(code, message)
        return {entry[0]: entry[1] for entry in entries}

    def alter(self, at: str, topic: str, config: dict[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=config)
        [answer] = self.with_admin(at, lambda admin: admin.alter_configs([resource]))
        for code, message, *_ in answer.resources:
            refuse(code, message)

    def trim(self, at: str, topic: str, before: dict[str, int]) -> None:
        places = {TopicPartition(topic, int(index)): RecordsToDelete(offset) for index, offset in before.items()}
        self.with_admin(at, lambda admin: admin.delete_records(places))

    def open(self, at: str, name: str, id: str, timeout_ms: int) -> None:  # noqa: A002
        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=at, transactional_id=id, transaction_timeout_ms=timeout_ms, retry_backoff_ms=20
            )
            self.producers[name] = producer
            await producer.start()

        self.wait(run())

    def begin(self, name: str) -> None:
        self.wait(self.producers[name].begin_transaction())

    def send(self, name: str, topic: str, records: list[Any]) -> None:
        self.wait(self.send_all(self.producers[name], topic, records))

    def send_offsets(self, name: str, group: str, topic: str, offsets: dict[str, int]) -> None:
        wanted = {TopicPartition(topic, int(index)): offset for index, offset in offsets.items()}
        self.wait(self.producers[name].send_offsets_to_transaction(wanted, group))

    def commit_transaction(self, name: str) -> None:
        self.wait(self.producers[name].commit_transaction())

    def abort_transaction(self, name: str) -> None:
        self.wait(self.producers[name].abort_transaction())

    def close(self, name: str) -> None:
        self.wait(self.producers.pop(name).stop())


serve(Calls(), name_of)
