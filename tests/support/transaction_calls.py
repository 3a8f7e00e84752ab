"""The transaction calls one by one, in any version: what client libraries send, and what they would never send."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Self

from levada.records.build import build
from levada.wire.apis import ApiKey
from levada.wire.codec import Message, read_response, read_response_header, write_request, write_request_header
from support.wait import wait_until

#: NOT_LEADER, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS: ask again.
PASSING = (6, 14, 15, 16, 51)
TIMEOUT_S = 60.0

Producer = tuple[int, int]


class Wire:
    """One connection. Every call gives the code of what it asked about, retried while a real Kafka is still busy."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.correlation = 0
        self.topic_ids: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.socket.close()

    def ask(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Message:
        self.correlation += 1
        frame = write_request_header(api_key, version, self.correlation, "wire")
        frame += write_request(api_key, version, fields)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        correlation, start = read_response_header(api_key, version, answer)
        assert correlation == self.correlation
        return read_response(api_key, version, answer[start:])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data

    def create(self, topic: str, partitions: int = 1) -> None:
        row = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
        answer = self.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [row], "timeout_ms": 10_000})
        assert answer.topics[0].error_code == 0, answer

        def is_there() -> bool:
            found = self.ask(ApiKey.METADATA, 12, {"topics": [{"name": topic}]}).topics[0]
            self.topic_ids[topic] = found.topic_id
            leaders = [partition.leader_id for partition in found.partitions]
            return found.error_code == 0 and len(leaders) == partitions and min(leaders) >= 0

        wait_until(is_there, TIMEOUT_S, "the topic")
        for key_type, key in ((1, topic), (0, topic)):  # a real Kafka makes its internal topics now
            wait_until(lambda key_type=key_type, key=key: self.coordinator(key_type, key), TIMEOUT_S, "coordinators")

    def coordinator(self, key_type: int, key: str) -> bool:
        found = self.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": key_type, "coordinator_keys": [key]})
        return bool(found.coordinators[0].error_code == 0)

    def init(
        self,
        transactional_id: str | None,
        *,
        producer: Producer = (-1, -1),
        timeout_ms: int = 60_000,
        version: int = 5,
    ) -> tuple[int, Producer]:
        """(code, producer)."""
        fields = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": timeout_ms,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
        }

        def once() -> Any:
            answer = self.ask(ApiKey.INIT_PRODUCER_ID, version, fields)
            if answer.error_code in PASSING:
                return None
            return answer.error_code, (answer.producer_id, answer.producer_epoch)

        found: tuple[int, Producer] = wait_until(once, TIMEOUT_S, "an answer to InitProducerId")
        return found

    def begin(self, transactional_id: str) -> Producer:
        code, producer = self.init(transactional_id)
        assert code == 0
        return producer

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        topic: str,
        partitions: Sequence[int] = (0,),
        *,
        version: int = 3,
    ) -> dict[int, int]:
        fields = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
        }

        def once() -> Any:
            answer = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, fields)
            rows = answer.results_by_topic_v3_and_below[0].results_by_partition
            codes = {row.partition_index: row.partition_error_code for row in rows}
            return None if set(codes.values()) & set(PASSING) else codes

        found: dict[int, int] = wait_until(once, TIMEOUT_S, "an answer to AddPartitionsToTxn")
        return found

    def batched(
        self,
        transactional_id: str,
        producer: Producer,
        topic: str,
        partitions: Sequence[int] = (0,),
        *,
        verify_only: bool,
        version: int = 5,
    ) -> dict[int, int]:
        """AddPartitionsToTxn 4+, the form brokers use."""
        one = {
            "transactional_id": transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "verify_only": verify_only,
            "topics": [{"name": topic, "partitions": list(partitions)}],
        }
        answer = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": [one]})
        assert answer.error_code == 0
        rows = answer.results_by_transaction[0].topic_results[0].results_by_partition
        return {row.partition_index: row.partition_error_code for row in rows}

    def add_offsets(self, transactional_id: str, producer: Producer, group: str, *, version: int = 3) -> int:
        fields = {
            "transactional_id": transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "group_id": group,
        }
        return self._code(ApiKey.ADD_OFFSETS_TO_TXN, version, fields)

    def end(self, transactional_id: str, producer: Producer, *, commit: bool, version: int = 5) -> tuple[int, Producer]:
        fields = {
            "transactional_id": transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "committed": commit,
        }

        def once() -> Any:
            answer = self.ask(ApiKey.END_TXN, version, fields)
            if answer.error_code in PASSING:
                return None
            return answer.error_code, (answer.producer_id, answer.producer_epoch)

        found: tuple[int, Producer] = wait_until(once, TIMEOUT_S, "an answer to EndTxn")
        return found

    def _code(self, api_key: int, version: int, fields: Mapping[str, Any]) -> int:
        def once() -> Any:
            code = self.ask(api_key, version, fields).error_code
            return None if code in PASSING else (code,)

        return int(wait_until(once, TIMEOUT_S, "an answer")[0])

    def commit_offset(
        self,
        transactional_id: str,
        producer: Producer,
        group: str,
        topic: str,
        offset: int = 5,
        *,
        partition: int = 0,
        version: int = 5,
        metadata: str = "",
        generation: int = -1,
        member: str = "",
    ) -> int:
        row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
        fields = {
            "transactional_id": transactional_id,
            "group_id": group,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "generation_id": generation,
            "member_id": member,
            "topics": [{"name": topic, "partitions": [row]}],
        }

        def once() -> Any:
            code = self.ask(ApiKey.TXN_OFFSET_COMMIT, version, fields).topics[0].partitions[0].error_code
            return None if code in PASSING else (code,)

        return int(wait_until(once, TIMEOUT_S, "an answer to TxnOffsetCommit")[0])

    def offset(self, group: str, topic: str, *, stable: bool = False) -> tuple[int, int]:
        """(code, committed offset)."""
        fields = {
            "groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}],
            "require_stable": stable,
        }
        row = self.ask(ApiKey.OFFSET_FETCH, 8, fields).groups[0].topics[0].partitions[0]
        return row.error_code, row.committed_offset

    def produce(
        self,
        transactional_id: str | None,
        producer: Producer,
        topic: str,
        value: bytes,
        *,
        partition: int = 0,
        sequence: int = 0,
        version: int = 12,
    ) -> int:
        batch = build(
            [(None, value)],
            timestamp_ms=1,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        data = {"index": partition, "records": bytes(batch)}
        fields = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "partition_data": [data]}],
        }

        def once() -> Any:
            code = self.ask(ApiKey.PRODUCE, version, fields).responses[0].partition_responses[0].error_code
            return None if code in PASSING else (code,)

        return int(wait_until(once, TIMEOUT_S, "an answer to Produce")[0])

    def write_marker(
        self, producer: Producer, topic: str, partition: int = 0, *, commit: bool = False, coordinator_epoch: int = 0
    ) -> int:
        marker = {
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "transaction_result": commit,
            "coordinator_epoch": coordinator_epoch,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
        }
        answer = self.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]}).markers[0]
        assert answer.producer_id == producer[0]
        return int(answer.topics[0].partitions[0].error_code)

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """(last stable offset, end)."""
        found = []
        for isolation in (1, 0):
            row = {"partition_index": partition, "timestamp": -1}
            fields = {
                "replica_id": -1,
                "isolation_level": isolation,
                "topics": [{"name": topic, "partitions": [row]}],
            }
            found.append(self.ask(ApiKey.LIST_OFFSETS, 7, fields).topics[0].partitions[0].offset)
        return found[0], found[1]

    def describe(self, transactional_id: str) -> Message:
        answer = self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]})
        return answer.transaction_states[0]  # type: ignore[no-any-return]

    def list(self, *, version: int = 2, **filters: Any) -> Message:
        return self.ask(ApiKey.LIST_TRANSACTIONS, version, filters)

    def producers(self, topic: str, partition: int = 0) -> Message:
        fields = {"topics": [{"name": topic, "partition_indexes": [partition]}]}
        return self.ask(ApiKey.DESCRIBE_PRODUCERS, 0, fields).topics[0].partitions[0]  # type: ignore[no-any-return]
