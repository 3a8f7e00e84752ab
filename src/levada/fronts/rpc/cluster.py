"""ClusterService: Join, Leave, Heartbeat, GetNodes, GetLeader, GetPlacement, GetStats."""

from __future__ import annotations

from levada.broker.native import Native
from levada.broker.nodes import Node
from levada.fronts.rpc.call import Call
from levada.v1 import cluster_pb2 as pb


async def join(native: Native, request: pb.JoinRequest, call: Call) -> pb.JoinResponse:
    nodes = await native.cluster.join(request.id, request.address, kafka=request.kafka, timeout_ms=request.timeout_ms)
    return pb.JoinResponse(nodes=[node_message(native, node) for node in nodes])


async def leave(native: Native, request: pb.LeaveRequest, call: Call) -> pb.LeaveResponse:
    await native.cluster.leave(request.id)
    return pb.LeaveResponse()


async def heartbeat(native: Native, request: pb.HeartbeatRequest, call: Call) -> pb.HeartbeatResponse:
    return pb.HeartbeatResponse(leader=native.cluster.heartbeat(request.id).id)


async def get_nodes(native: Native, request: pb.GetNodesRequest, call: Call) -> pb.GetNodesResponse:
    nodes = [node_message(native, node) for node in native.cluster.nodes()]
    return pb.GetNodesResponse(nodes=nodes, cluster_id=native.cluster.id)


async def get_leader(native: Native, request: pb.GetLeaderRequest, call: Call) -> pb.GetLeaderResponse:
    return pb.GetLeaderResponse(leader=node_message(native, native.cluster.leader()))


async def get_placement(native: Native, request: pb.GetPlacementRequest, call: Call) -> pb.GetPlacementResponse:
    placed = await native.cluster.placement(request.topic or None)
    return pb.GetPlacementResponse(
        partitions=[
            pb.PartitionPlacement(
                topic=each.at.topic,
                partition=each.at.partition,
                leader=each.leader,
                replicas=each.replicas,
                last_offset=each.last_offset,
            )
            for each in placed
        ]
    )


async def get_stats(native: Native, request: pb.GetStatsRequest, call: Call) -> pb.GetStatsResponse:
    return pb.GetStatsResponse(**(await native.stats())._asdict())


def node_message(native: Native, node: Node) -> pb.Node:
    return pb.Node(
        id=node.id,
        address=node.address,
        kafka=node.kafka,
        leader=node.id == native.cluster.leader().id,
        self=node.own,
        joined_ms=node.joined_ms,
        last_heartbeat_ms=node.last_heartbeat_ms,
    )
