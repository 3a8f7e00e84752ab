"""TxnOffsetCommit, versions 0–5: offsets that are committed if the transaction is.

- Each partition has its own answer; what is unknown or too long is refused by name, the others join the transaction.
- Asked in Kafka's order: the partition, the group's id, the transaction, the member, the length of the metadata.
- From version 3 on the group's member and generation are checked (KIP-447). From version 5 on (KIP-890) the offsets join the
  transaction here; before, AddOffsetsToTxn must have come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from levada.engine.port import At, Committed
from levada.errors import InvalidGroupId, LevadaError, UnknownTopic
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import NONE, code_of
from levada.fronts.kafka.offset_entries import Entry, entries, short_enough, storable
from levada.fronts.kafka.transaction_error import transaction_code
from levada.wire.message import Message

_ABORTABLE_FROM: Final = 4
_IMPLICIT_FROM: Final = 5
#: No version of this call knows PRODUCER_FENCED.
_NEVER: Final = 1 << 15


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    found = [entry for topic in request.topics for entry in _entries(topic, call)]
    code = NONE
    if storable(found):
        found = short_enough(found, call)
        # Also where all of it is too long: who commits is asked first.
        code = await _commit(request, storable(found), call)
    codes = iter([_code(entry, code) for entry in found])
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": next(codes)}
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _entries(topic: Message, call: Call) -> list[Entry]:
    info = call.node.engine.view.get(topic.name)
    return list(entries(topic.partitions, info, UnknownTopic(f"there is no topic {topic.name!r}")))


def _code(entry: Entry, code: int) -> int:
    """A partition that is there fares as all do; then its own metadata counts."""
    if entry.error is None or (entry.at is not None and code != NONE):
        return code
    return code_of(entry.error)


async def _commit(request: Message, offsets: Mapping[At, Committed], call: Call) -> int:
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty")
        await call.node.engine.transactions.commit_offsets(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
            offsets,
            implicit=call.version >= _IMPLICIT_FROM,
            abortable=call.version >= _ABORTABLE_FROM,
            check=partial(_check_group, request, call),
        )
    except LevadaError as error:
        return transaction_code(call, error, fenced_from=_NEVER)
    return NONE


def _check_group(request: Message, call: Call) -> None:
    call.node.groups.check_commit(
        request.group_id, request.member_id, request.generation_id, request.group_instance_id, transactional=True
    )
