"""DescribeProducers, version 0: who writes to a partition, and since where a transaction is open in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.errors import LevadaError
from levada.fronts.kafka.answers import OK, refused
from levada.fronts.kafka.call import Call
from levada.log.producers import Producer
from levada.wire.message import Message


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_partition(topic.name, index, call) for index in topic.partition_indexes],
            }
            for topic in request.topics
        ]
    }


def _partition(topic: str, index: int, call: Call) -> Mapping[str, Any]:
    try:
        producers = call.node.engine.partition(topic, index).log.producers
    except LevadaError as error:
        return {"partition_index": index, **refused(call, f"{topic}-{index}", error), "active_producers": []}
    return {"partition_index": index, **OK, "active_producers": [_producer(one) for one in producers]}


def _producer(producer: Producer) -> Mapping[str, Any]:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_write_ms,
        "coordinator_epoch": producer.coordinator_epoch,
        "current_txn_start_offset": -1 if producer.open_from is None else producer.open_from,
    }
