"""Metadata, versions 0–13.

- This node leads every partition and is the controller. The address is the one the client reached us at, or is told to.
- No list of topics asks for all of them (version 0: an empty list does), an empty list for none.
- A topic that does not exist is made where both request and `auto.create.topics.enable` allow it, and is there in the
  same answer. Without that: UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID for an id.
- The answer with all topics is kept until a topic changes: UIs and clients with patterns ask for it all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from levada.broker.topics import check_creatable
from levada.engine.names import check_name
from levada.engine.port import TopicInfo, TopicSpec
from levada.errors import InvalidRequest, LevadaError, TopicExists, UnknownTopic, UnknownTopicId
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import code_of
from levada.wire.apis import ApiKey
from levada.wire.endpoints import Endpoint
from levada.wire.metadata import NO_OPERATIONS, PartitionMetadata, TopicMetadata, write_response
from levada.wire.schema import ZERO_UUID

#: Bit sets of what anyone may do, where nobody is asked who they are: Kafka's AclOperation codes.
CLUSTER_OPERATIONS: Final = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
TOPIC_OPERATIONS: Final = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11

#: From this version on a topic may be asked for by its id alone.
_BY_ID_FROM: Final = 12


async def handle(request: Any, call: Call) -> bytes:
    if request.topics is None or (call.version == 0 and not request.topics):
        return _all(request, call)
    topics = [await _topic(item, request, call) for item in _once(request.topics)]
    return _written(topics, request, call)


def _once(items: Any) -> Iterable[Any]:
    return {(item.name, item.topic_id): item for item in items}.values()


def _all(request: Any, call: Call) -> bytes:
    node = call.node
    asked = (request.include_topic_authorized_operations, request.include_cluster_authorized_operations)
    kind = (ApiKey.METADATA, call.version, node.host, asked)
    body = node.kept.get(kind, node.engine.view.version)
    if body is None:
        topics = [_described(info, request, call) for info in node.engine.view.all()]
        body = _written(topics, request, call)
        node.kept.put(kind, node.engine.view.version, body)
    return body


async def _topic(item: Any, request: Any, call: Call) -> TopicMetadata:
    try:
        if item.name is None or item.topic_id != ZERO_UUID:
            info: TopicInfo | None = _by_id(item, call)
        else:
            info = call.node.engine.view.get(item.name)
        if info is None:
            info = await _missing(item.name, call, create=request.allow_auto_topic_creation)
        return _described(info, request, call)
    except LevadaError as error:
        if not isinstance(error, UnknownTopic | UnknownTopicId):
            notice.refused(call, "Metadata", error)
        return TopicMetadata(item.name, (), item.topic_id, error_code=code_of(error))


def _by_id(item: Any, call: Call) -> TopicInfo:
    if call.version < _BY_ID_FROM:
        raise InvalidRequest(f"version {call.version} asks for topics by name; by id from {_BY_ID_FROM} on")
    info = call.node.engine.view.by_id(item.topic_id)
    if info is None:
        raise UnknownTopicId(f"there is no topic with id {item.topic_id}")
    return info


async def _missing(name: str, call: Call, *, create: bool) -> TopicInfo:
    engine, settings = call.node.engine, call.node.settings
    check_name(name)
    if not create or not settings.flag("auto.create.topics.enable"):
        raise UnknownTopic(f"there is no topic {name!r}")
    check_creatable(name, exists=lambda other: engine.view.get(other) is not None)
    try:
        return await engine.create(TopicSpec(name=name, partitions=settings.number("num.partitions")))
    except TopicExists:
        # Someone else asked for it at the same time.
        info = engine.view.get(name)
        if info is None:
            raise UnknownTopic(f"there is no topic {name!r}") from None
        return info


def _described(info: TopicInfo, request: Any, call: Call) -> TopicMetadata:
    node_id, epoch = call.node.node_id, call.node.engine.broker_epoch
    alone = (node_id,)
    return TopicMetadata(
        info.name,
        [PartitionMetadata(index, node_id, epoch, alone, alone) for index in range(info.partitions)],
        info.id,
        info.internal,
        authorized_operations=TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_OPERATIONS,
    )


def _written(topics: Sequence[TopicMetadata], request: Any, call: Call) -> bytes:
    node = call.node
    return write_response(
        call.version,
        [Endpoint(node.node_id, node.host, node.port)],
        topics,
        cluster_id=node.engine.cluster_id,
        controller_id=node.node_id,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    )
