"""AddPartitionsToTxn, versions 0–5.

- Up to version 3 a client adds partitions to its transaction; all of them, or none when one is unknown: that one is told
  so, the others OPERATION_NOT_ATTEMPTED.
- From version 4 on several transactions may be named, and `verify_only` asks whether partitions were added: what brokers of
  a cluster ask one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from levada.engine.port import At
from levada.errors import InvalidTransactionState, LevadaError, TransactionAbortable, UnknownTopic
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import KAFKA_CODE, NONE
from levada.fronts.kafka.transaction_error import transaction_code
from levada.wire.message import Message

FENCED_FROM: Final = 2
_OPERATION_NOT_ATTEMPTED: Final = 55
#: From this version on a partition that was not added is TRANSACTION_ABORTABLE.
_ABORTABLE_FROM: Final = 5


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    if call.version < 4:
        code_of = await _add(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            request.v3_and_below_topics,
            call,
        )
        return {"results_by_topic_v3_and_below": _rows(request.v3_and_below_topics, code_of)}
    return {
        "error_code": NONE,
        "results_by_transaction": [
            {"transactional_id": one.transactional_id, "topic_results": _rows(one.topics, await _one(one, call))}
            for one in request.transactions
        ],
    }


#: The code of each partition of the request.
Codes = Callable[[At], int]


async def _one(transaction: Message, call: Call) -> Codes:
    owner = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return _verify(*owner, transaction.topics, call)
    return await _add(*owner, transaction.topics, call)


async def _add(transactional_id: str, producer_id: int, epoch: int, topics: Sequence[Message], call: Call) -> Codes:
    ats = _ats(topics)
    view = call.node.engine.view
    unknown = {at for at in ats if (info := view.get(at.topic)) is None or not 0 <= at.partition < info.partitions}
    if unknown:
        return lambda at: KAFKA_CODE[UnknownTopic] if at in unknown else _OPERATION_NOT_ATTEMPTED
    try:
        await call.node.engine.transactions.add_partitions(transactional_id, producer_id, epoch, ats)
    except LevadaError as error:
        return _all(transaction_code(call, error, fenced_from=FENCED_FROM))
    return _all(NONE)


def _verify(transactional_id: str, producer_id: int, epoch: int, topics: Sequence[Message], call: Call) -> Codes:
    try:
        missing = call.node.engine.transactions.missing(transactional_id, producer_id, epoch, _ats(topics))
    except LevadaError as error:
        return _all(transaction_code(call, error, fenced_from=FENCED_FROM))
    refusal = TransactionAbortable if call.version >= _ABORTABLE_FROM else InvalidTransactionState
    return lambda at: KAFKA_CODE[refusal] if at in missing else NONE


def _ats(topics: Sequence[Message]) -> set[At]:
    return {At(topic.name, index) for topic in topics for index in topic.partitions}


def _all(code: int) -> Codes:
    return lambda _at: code


def _rows(topics: Sequence[Message], code_of: Codes) -> list[Mapping[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code_of(At(topic.name, index))}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]
