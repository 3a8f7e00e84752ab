"""AddPartitionsToTxn, versions 0–5.

- Up to version 3 a client adds partitions to its transaction; all of them, or none when one is unknown or the broker's own
  bookkeeping: that one is told so, the others OPERATION_NOT_ATTEMPTED.
- From version 4 on several transactions may be named, and `verify_only` asks whether partitions were added: what brokers of
  a cluster ask one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from levada.broker.topics import BOOKKEEPING_TOPICS
from levada.engine.port import At
from levada.errors import LevadaError, TransactionAbortable, UnknownTopic
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import KAFKA_CODE, NONE
from levada.fronts.kafka.transaction_error import transaction_code
from levada.wire.message import Message

_FENCED_FROM: Final = 2
#: From this version on the caller speaks TV2 (KIP-890).
_TV2_FROM: Final = 4
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_OPERATION_NOT_ATTEMPTED: Final = 55

#: The code of each partition of the request.
Codes = Callable[[At], int]


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    if call.version < _TV2_FROM:
        topics = request.v3_and_below_topics
        codes = await _add(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            _ats(topics),
            call,
        )
        return {"results_by_topic_v3_and_below": _rows(topics, codes)}
    return {
        "error_code": NONE,
        "results_by_transaction": [
            {"transactional_id": one.transactional_id, "topic_results": _rows(one.topics, await _one(one, call))}
            for one in request.transactions
        ],
    }


async def _one(transaction: Message, call: Call) -> Codes:
    act = _verify if transaction.verify_only else _add
    owner = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    return await act(*owner, _ats(transaction.topics), call)


async def _add(transactional_id: str, producer_id: int, epoch: int, ats: set[At], call: Call) -> Codes:
    if refused := _refused(ats, call):
        return lambda at: refused.get(at, _OPERATION_NOT_ATTEMPTED)
    try:
        await call.node.engine.transactions.add_partitions(
            transactional_id, producer_id, epoch, ats, tv2=call.version >= _TV2_FROM
        )
    except LevadaError as error:
        code = transaction_code(call, error, fenced_from=_FENCED_FROM)
        return lambda _at: code
    return lambda _at: NONE


async def _verify(transactional_id: str, producer_id: int, epoch: int, ats: set[At], call: Call) -> Codes:
    if refused := _refused(ats, call):
        return lambda at: refused.get(at, _OPERATION_NOT_ATTEMPTED)
    try:
        missing = call.node.engine.transactions.missing(transactional_id, producer_id, epoch, ats)
    except LevadaError as error:
        code = transaction_code(call, error, fenced_from=_FENCED_FROM)
        return lambda _at: code
    return lambda at: KAFKA_CODE[TransactionAbortable] if at in missing else NONE


def _ats(topics: Sequence[Message]) -> set[At]:
    return {At(topic.name, index) for topic in topics for index in topic.partitions}


def _refused(ats: set[At], call: Call) -> dict[At, int]:
    """The partitions that nobody can write to, with their codes."""
    view = call.node.engine.view
    refused = {}
    for at in ats:
        info = view.get(at.topic)
        if at.topic in BOOKKEEPING_TOPICS:
            refused[at] = _TOPIC_AUTHORIZATION_FAILED
        elif info is None or not 0 <= at.partition < info.partitions:
            refused[at] = KAFKA_CODE[UnknownTopic]
    if refused:
        notice.refused(call, "AddPartitionsToTxn", f"no such partition: {', '.join(map(str, sorted(refused)))}")
    return refused


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
