"""OffsetFetch, versions 1–10.

- A partition nobody committed for, of whatever group, has offset −1 and no error. Null topics ask for all that are there.
- With require_stable (version 7 on) a partition whose offset an open transaction may change is answered with
  UNSTABLE_OFFSET_COMMIT, which clients retry.
- From version 8 on many groups are asked for at once; from version 10 on topics go by id (UNKNOWN_TOPIC_ID).
- Member id and epoch (version 9 on) matter to the newer group protocol only. Throttling is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple
from uuid import UUID

from levada.engine.port import At, Committed
from levada.errors import UnknownTopicId, UnstableOffset
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import KAFKA_CODE, NONE
from levada.wire.codec import Message

_NONE_COMMITTED: Final = Committed(offset=-1)
_NO_ID: Final = UUID(int=0)


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    if call.version < 8:
        return {"topics": list(_topics(request.group_id, request.topics, request.require_stable, call))}
    return {
        "groups": [
            {
                "group_id": group.group_id,
                "topics": list(_topics(group.group_id, group.topics, request.require_stable, call)),
            }
            for group in request.groups
        ]
    }


class _Topic(NamedTuple):
    """A topic that is asked for. Its name is None where the id is not known."""

    name: str | None
    id: UUID
    partitions: Collection[int]


def _topics(
    group_id: str, topics: Collection[Message] | None, require_stable: bool, call: Call
) -> Iterator[Mapping[str, Any]]:
    store = call.node.engine.offset_store
    committed = store.fetch(group_id)
    unstable = store.pending(group_id) if require_stable else set()
    for topic in _all(committed.keys() | unstable, call) if topics is None else _named(topics, call):
        yield {
            **({"topic_id": topic.id} if call.version >= 10 else {"name": topic.name}),
            "partitions": [_partition(topic.name, index, committed, unstable) for index in topic.partitions],
        }


def _named(topics: Collection[Message], call: Call) -> Iterator[_Topic]:
    for topic in topics:
        if call.version < 10:
            yield _Topic(topic.name, _NO_ID, topic.partition_indexes)
        else:
            info = call.node.engine.view.by_id(topic.topic_id)
            yield _Topic(None if info is None else info.name, topic.topic_id, topic.partition_indexes)


def _all(ats: Collection[At], call: Call) -> Iterator[_Topic]:
    for name, of_topic in groupby(sorted(ats), key=lambda at: at.topic):
        info = call.node.engine.view.get(name)
        if info is not None or call.version < 10:
            yield _Topic(name, _NO_ID if info is None else info.id, [at.partition for at in of_topic])


def _partition(
    topic: str | None, index: int, committed: Mapping[At, Committed], unstable: Collection[At]
) -> Mapping[str, Any]:
    found, code = _NONE_COMMITTED, NONE
    if topic is None:
        code = KAFKA_CODE[UnknownTopicId]
    elif At(topic, index) in unstable:
        code = KAFKA_CODE[UnstableOffset]
    else:
        found = committed.get(At(topic, index), _NONE_COMMITTED)
    return {
        "partition_index": index,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": code,
    }
