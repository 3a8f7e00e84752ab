"""Single Kafka requests by hand, for what no client library lets one send: repeated sequences, old epochs, late commits.

Messages are kio's and batches are aiokafka's, so nothing of ours has a part in what goes over the wire.
"""

from __future__ import annotations

import importlib
import io
import socket
from collections.abc import Sequence
from datetime import timedelta
from types import ModuleType
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.schema.response_header.v0.header import ResponseHeader as PlainHeader
from kio.serial import entity_reader, entity_writer

from support.proxy import read_frame
from support.wait import wait_until

TIMEOUT_S = 60.0


class Raw:
    """One connection. `ask` sends a kio request and gives kio's response."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.correlation = 0

    def ask(self, request: Any) -> Any:
        self.correlation += 1
        header_class = request.__header_schema__
        fields = {"request_api_key": request.__api_key__, "request_api_version": request.__version__}
        header = header_class(**fields, correlation_id=self.correlation, client_id="raw")
        body = io.BytesIO()
        entity_writer(header_class)(body, header)
        entity_writer(type(request))(body, request)
        frame = body.getvalue()
        self.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        return self.answer(response_class(request))

    def answer(self, response: type[Any]) -> Any:
        frame = read_frame(self.socket)
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        header_class = response.__header_schema__ or PlainHeader
        header, size = entity_reader(header_class)(frame, 4)
        assert header.correlation_id == self.correlation
        entity, _ = entity_reader(response)(frame, 4 + size)
        return entity

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def schema(api: str, version: int, kind: str = "request") -> ModuleType:
    """kio's module of one message: `schema("produce", 9).ProduceRequest`."""
    return importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")


def response_class(request: Any) -> type[Any]:
    module = importlib.import_module(type(request).__module__.replace(".request", ".response"))
    found: type[Any] = getattr(module, type(request).__name__.replace("Request", "Response"))
    return found


def batch(
    values: Sequence[bytes],
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    codec: int = 0,
) -> bytes:
    """A record batch v2 of these values, made by aiokafka."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for offset, value in enumerate(values):
        builder.append(offset, None, None, value, [])
    return bytes(builder.build())


def produce(raw: Raw, topic: str, partition: int, records: bytes, *, transactional_id: str | None = None) -> Any:
    """Produce v9 with acks=all; gives the partition's part of the answer."""
    module = schema("produce", 9)
    data = module.PartitionProduceData(index=partition, records=records)
    request = module.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout=timedelta(seconds=10),
        topic_data=(module.TopicProduceData(name=topic, partition_data=(data,)),),
    )
    return raw.ask(request).responses[0].partition_responses[0]


def init_producer(raw: Raw, transactional_id: str | None = None, timeout_ms: int = 30_000) -> tuple[int, int]:
    """InitProducerId v4 → (producer id, epoch)."""
    module = schema("init_producer_id", 4)
    request = module.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout=timedelta(milliseconds=timeout_ms),
        producer_id=-1,
        producer_epoch=-1,
    )
    answer = wait_until(lambda: ask_patiently(raw, request), 20, "the coordinator has loaded")
    assert answer.error_code == 0, answer
    return answer.producer_id, answer.producer_epoch


def ask_patiently(raw: Raw, request: Any) -> Any:
    """None for COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and CONCURRENT_TRANSACTIONS: ask again."""
    answer = raw.ask(request)
    return None if answer.error_code in (14, 15, 51) else answer


def add_partition(raw: Raw, transactional_id: str, producer_id: int, epoch: int, topic: str, partition: int) -> int:
    """AddPartitionsToTxn v3 of one partition → its error code."""
    module = schema("add_partitions_to_txn", 3)
    request = module.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=(module.AddPartitionsToTxnTopic(name=topic, partitions=(partition,)),),
    )
    answer = raw.ask(request)
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def add_offsets(raw: Raw, transactional_id: str, producer_id: int, epoch: int, group: str) -> int:
    """AddOffsetsToTxn v3 → its error code."""
    module = schema("add_offsets_to_txn", 3)
    request = module.AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group
    )
    return int(raw.ask(request).error_code)


def txn_offset_commit(raw: Raw, transactional_id: str, producer_id: int, epoch: int, group: str, topic: str) -> int:
    """TxnOffsetCommit v3 of one offset → its error code."""
    module = schema("txn_offset_commit", 3)
    offset = module.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata=None
    )
    request = module.TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=(module.TxnOffsetCommitRequestTopic(name=topic, partitions=(offset,)),),
    )
    return int(raw.ask(request).topics[0].partitions[0].error_code)


def end_transaction(raw: Raw, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> int:
    """EndTxn v3 → its error code."""
    module = schema("end_txn", 3)
    request = module.EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
    )
    return int(raw.ask(request).error_code)
