"""RegisterGroup, ListGroups, DescribeGroup, DeleteGroup."""

from __future__ import annotations

from typing import Final

from levada.broker.native import Native
from levada.broker.streams import DescribedMember, Kind
from levada.fronts.rpc.call import Call
from levada.fronts.rpc.offsets import group_offset
from levada.v1 import stream_pb2 as pb

_KIND: Final = {
    Kind.DYNAMIC: pb.DYNAMIC,
    Kind.FIXED: pb.FIXED,
    Kind.CLASSIC: pb.CLASSIC,
    Kind.OFFSETS: pb.OFFSETS,
}


async def register_group(native: Native, request: pb.RegisterGroupRequest, call: Call) -> pb.RegisterGroupResponse:
    registered = native.groups.register(request.topic, request.group, request.consumers, native.now_ms())
    if registered.receipt > 0:
        await native.groups.durable(registered.receipt)
    return pb.RegisterGroupResponse(generation=registered.generation, same=registered.same)


async def list_groups(native: Native, request: pb.ListGroupsRequest, call: Call) -> pb.ListGroupsResponse:
    return pb.ListGroupsResponse(
        groups=[
            pb.GroupSummary(group=one.group_id, kind=_KIND[one.kind], members=one.members, state=one.state.value)
            for one in native.directory.list()
        ]
    )


async def describe_group(native: Native, request: pb.DescribeGroupRequest, call: Call) -> pb.DescribeGroupResponse:
    group = native.directory.describe(request.group)
    places = await native.positions.committed(request.group)
    return pb.DescribeGroupResponse(
        group=group.group_id,
        kind=_KIND[group.kind],
        state=group.state.value,
        generation=group.generation,
        members=[_member(one) for one in group.members],
        offsets=[group_offset(place) for place in places],
    )


async def delete_group(native: Native, request: pb.DeleteGroupRequest, call: Call) -> pb.DeleteGroupResponse:
    await native.directory.delete(request.group)
    return pb.DeleteGroupResponse()


def _member(member: DescribedMember) -> pb.GroupMember:
    return pb.GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.host,
        partitions=[pb.TopicPartition(topic=at.topic, partition=at.partition) for at in member.partitions],
        consumer=member.consumer,
    )
