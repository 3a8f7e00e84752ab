"""CreateTopic, DeleteTopic, ListTopics, DescribeTopic, ExpandTopic, AlterTopic."""

from __future__ import annotations

from typing import Final

from levada.broker.native import Native
from levada.broker.topics import Creation
from levada.engine.port import TopicInfo
from levada.errors import InvalidRequest
from levada.fronts.rpc.call import Call
from levada.v1 import stream_pb2 as pb

_OUTCOME: Final = {
    Creation.NEW: pb.CreateTopicResponse.CREATED,
    Creation.SAME: pb.CreateTopicResponse.SAME,
    Creation.EXPAND: pb.CreateTopicResponse.EXPANDED,
}


async def create_topic(native: Native, request: pb.CreateTopicRequest, call: Call) -> pb.CreateTopicResponse:
    info, outcome = await native.topics.create(
        request.name, request.partitions or None, dict(request.settings), request.replication_factor or 1
    )
    return pb.CreateTopicResponse(topic=topic_message(native, info), outcome=_OUTCOME[outcome])


async def delete_topic(native: Native, request: pb.DeleteTopicRequest, call: Call) -> pb.DeleteTopicResponse:
    await native.topics.delete(request.name)
    return pb.DeleteTopicResponse()


async def list_topics(native: Native, request: pb.ListTopicsRequest, call: Call) -> pb.ListTopicsResponse:
    found = native.topics.all(internal=request.internal)
    return pb.ListTopicsResponse(topics=[topic_message(native, info) for info in found])


async def describe_topic(native: Native, request: pb.DescribeTopicRequest, call: Call) -> pb.DescribeTopicResponse:
    found = await native.topics.describe(request.name)
    placement = native.cluster.placement_of(found.info)
    return pb.DescribeTopicResponse(
        topic=topic_message(native, found.info),
        partitions=[
            pb.Partition(index=index, start=bounds.start, end=bounds.end, leader=replicas[0], replicas=replicas)
            for index, (bounds, replicas) in enumerate(zip(found.bounds, placement, strict=True))
        ],
        settings=[
            pb.Setting(name=each.name, value=each.value, set=each.is_set, doc=each.doc) for each in found.settings
        ],
    )


async def expand_topic(native: Native, request: pb.ExpandTopicRequest, call: Call) -> pb.ExpandTopicResponse:
    info = await native.topics.expand(request.name, request.partitions)
    return pb.ExpandTopicResponse(topic=topic_message(native, info))


async def alter_topic(native: Native, request: pb.AlterTopicRequest, call: Call) -> pb.AlterTopicResponse:
    both = sorted(set(request.set) & set(request.unset))
    if both:
        raise InvalidRequest(f"settings to be set and unset at once: {', '.join(both)}")
    info = await native.topics.alter(request.name, {**dict.fromkeys(request.unset), **request.set})
    return pb.AlterTopicResponse(topic=topic_message(native, info))


def topic_message(native: Native, info: TopicInfo) -> pb.Topic:
    config = native.topics.config_of(info.name)
    return pb.Topic(
        name=info.name,
        id=info.id.bytes,
        partitions=info.partitions,
        settings=info.settings,
        internal=info.internal,
        router=config.router,
        keyless=config.keyless,
        dedup=config.dedup,
        max_message_bytes=config.max_message_bytes,
    )
