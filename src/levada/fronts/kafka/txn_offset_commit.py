"""TxnOffsetCommit, versions 0–5: offsets that are committed if the transaction is.

- Each partition has its own answer; what is unknown or too long is refused by name, the others join the transaction.
- From version 3 on the group's member and generation are checked (KIP-447). From version 5 on (KIP-890) the offsets join the
  transaction here; before, AddOffsetsToTxn must have come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from levada.engine.port import At, Committed
from levada.errors import InvalidGroupId, LevadaError, OffsetMetadataTooLarge, UnknownPartition, UnknownTopic
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import NONE, code_of
from levada.fronts.kafka.transaction_error import transaction_code
from levada.wire.message import Message

_ABORTABLE_FROM: Final = 4
_IMPLICIT_FROM: Final = 5
#: No version of this call knows PRODUCER_FENCED.
_NEVER: Final = 1 << 15


class _Entry(NamedTuple):
    """One partition of the request, and why it is refused, where it is."""

    at: At
    committed: Committed
    error: LevadaError | None = None


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    topics = [(topic.name, list(_entries(topic, call))) for topic in request.topics]
    offsets = {one.at: one.committed for _, entries in topics for one in entries if one.error is None}
    code = await _commit(request, offsets, call) if offsets else NONE
    return {
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": one.at.partition,
                        "error_code": code if one.error is None else code_of(one.error),
                    }
                    for one in entries
                ],
            }
            for name, entries in topics
        ]
    }


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


def _entries(topic: Message, call: Call) -> Iterator[_Entry]:
    info = call.node.engine.view.get(topic.name)
    metadata_max = call.node.config.number("offset.metadata.max.bytes")
    for partition in topic.partitions:
        at = At(topic.name, partition.partition_index)
        metadata = partition.committed_metadata or ""
        committed = Committed(partition.committed_offset, partition.committed_leader_epoch, metadata)
        error: LevadaError | None = None
        if info is None:
            error = UnknownTopic(f"there is no topic {topic.name!r}")
        elif not 0 <= at.partition < info.partitions:
            error = UnknownPartition(
                f"topic {topic.name!r} has partitions 0 to {info.partitions - 1}, not {at.partition}"
            )
        elif len(metadata) > metadata_max:
            text = f"metadata of {len(metadata)} characters: offset.metadata.max.bytes is {metadata_max}"
            error = OffsetMetadataTooLarge(text)
        yield _Entry(at, committed, error)
