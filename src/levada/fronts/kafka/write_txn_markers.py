"""WriteTxnMarkers, versions 1–2: end a producer's transaction in single partitions.

What brokers of a cluster tell one another. Here it is for administrators (`kafka-transactions.sh abort`), who end what
hangs in a partition without asking the coordinator, which goes on as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from levada.broker.topics import BOOKKEEPING_TOPICS
from levada.engine.names import CONSUMER_OFFSETS
from levada.engine.port import At
from levada.errors import Fenced, LevadaError
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import NONE, code_of
from levada.wire.message import Message

_TOPIC_AUTHORIZATION_FAILED: Final = 29
_TRANSACTION_COORDINATOR_FENCED: Final = 52


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    return {"markers": [await _answer(marker, call) for marker in request.markers]}


async def _answer(marker: Message, call: Call) -> Mapping[str, Any]:
    return {
        "producer_id": marker.producer_id,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": await _write(marker, At(topic.name, index), call)}
                    for index in topic.partition_indexes
                ],
            }
            for topic in marker.topics
        ],
    }


async def _write(marker: Message, at: At, call: Call) -> int:
    if at.topic in BOOKKEEPING_TOPICS and at.topic != CONSUMER_OFFSETS:
        notice.refused(call, f"WriteTxnMarkers of {at}", "no transaction writes to the broker's own bookkeeping")
        return _TOPIC_AUTHORIZATION_FAILED
    try:
        await call.node.engine.transactions.force_marker(
            at,
            marker.producer_id,
            marker.producer_epoch,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
        )
    except LevadaError as error:
        notice.refused(call, f"WriteTxnMarkers of {at}", error)
        return _TRANSACTION_COORDINATOR_FENCED if isinstance(error, Fenced) else code_of(error)
    return NONE
