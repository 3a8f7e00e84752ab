"""DescribeTransactions, version 0: the state of transactional ids, and the partitions of what is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.engine.embedded.transaction_state import Transaction
from levada.errors import InvalidRequest, LevadaError
from levada.fronts.kafka.answers import refused
from levada.fronts.kafka.call import Call
from levada.wire.message import Message


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    return {"transaction_states": [_describe(transactional_id, call) for transactional_id in request.transactional_ids]}


def _describe(transactional_id: str, call: Call) -> Mapping[str, Any]:
    try:
        if not transactional_id:
            raise InvalidRequest("the transactional id is empty")
        txn = call.node.engine.transactions.get(transactional_id)
    except LevadaError as error:
        code = refused(call, transactional_id, error)["error_code"]
        return {"error_code": code, "transactional_id": transactional_id, "topics": []}
    return {
        "error_code": 0,
        "transactional_id": transactional_id,
        "transaction_state": txn.state.title,
        "transaction_timeout_ms": txn.timeout_ms,
        "transaction_start_time_ms": txn.start_ms,
        "producer_id": txn.producer_id,
        "producer_epoch": txn.epoch,
        "topics": _topics(txn),
    }


def _topics(txn: Transaction) -> list[Mapping[str, Any]]:
    by_topic: dict[str, list[int]] = {}
    for at in sorted(txn.partitions):
        by_topic.setdefault(at.topic, []).append(at.partition)
    return [{"topic": topic, "partitions": partitions} for topic, partitions in by_topic.items()]
