"""The calls of levada.v1, by service and name, and how a handler is made a gRPC method.

A handler of one request takes (native, request, call) and returns the answer; one of a stream takes (native, call) and reads and
writes by itself. Which is which, and the messages' types, are the protos' to say. To gRPC also those of one request are streams,
so that not all of them are read at once: on the wire there is no difference. Publish reads its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from google.protobuf.message_factory import GetMessageClass

from levada.broker.native import Native
from levada.fronts.rpc import cluster, groups, offsets, producer, publish, read, subscribe, topics
from levada.fronts.rpc.call import Call, Calls
from levada.v1 import cluster_pb2, stream_pb2

Handler = Callable[..., Awaitable[Any]]

STREAM_CALLS: Final[Mapping[str, Handler]] = {
    "Publish": publish.publish,
    "PublishStream": publish.publish_stream,
    "Spread": producer.spread,
    "InitProducer": producer.init_producer,
    "Subscribe": subscribe.subscribe,
    "Read": read.read,
    "GetOffset": offsets.get_offset,
    "Commit": offsets.commit,
    "Seek": offsets.seek,
    "CreateTopic": topics.create_topic,
    "DeleteTopic": topics.delete_topic,
    "ListTopics": topics.list_topics,
    "DescribeTopic": topics.describe_topic,
    "ExpandTopic": topics.expand_topic,
    "AlterTopic": topics.alter_topic,
    "RegisterGroup": groups.register_group,
    "ListGroups": groups.list_groups,
    "DescribeGroup": groups.describe_group,
    "DeleteGroup": groups.delete_group,
}

CLUSTER_CALLS: Final[Mapping[str, Handler]] = {
    "Join": cluster.join,
    "Leave": cluster.leave,
    "Heartbeat": cluster.heartbeat,
    "GetNodes": cluster.get_nodes,
    "GetLeader": cluster.get_leader,
    "GetPlacement": cluster.get_placement,
    "GetStats": cluster.get_stats,
}

#: Service descriptor → handlers by name of the call.
SERVICES: Final = (
    (stream_pb2.DESCRIPTOR.services_by_name["StreamService"], STREAM_CALLS),
    (cluster_pb2.DESCRIPTOR.services_by_name["ClusterService"], CLUSTER_CALLS),
)


def service_names() -> list[str]:
    return [service.full_name for service, _ in SERVICES]


def generic_handlers(native: Native, calls: Calls) -> list[grpc.GenericRpcHandler]:
    """What a grpc.aio server serves."""
    return [
        grpc.method_handlers_generic_handler(
            service.full_name,
            {name: _method(service.methods_by_name[name], handler, native, calls) for name, handler in served.items()},
        )
        for service, served in SERVICES
    ]


def _method(method: Any, handler: Handler, native: Native, calls: Calls) -> grpc.RpcMethodHandler[Any, Any]:
    """Requests are given as bytes: what is no message is refused like everything else."""
    reads_itself = method.client_streaming or handler is publish.publish
    parse: Callable[[Any], Any] = GetMessageClass(method.input_type).FromString
    serialize: Any = GetMessageClass(method.output_type).SerializeToString

    async def serve(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        call = Call(calls, method.name, context, parse)
        try:
            calls.begin(call)
            if reads_itself:
                return await handler(native, call)
            return await handler(native, await call.read_one(), call)
        except BaseException as error:
            await call.refuse(error)
        finally:
            calls.end(call)

    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(serve, response_serializer=serialize)
    return grpc.stream_unary_rpc_method_handler(serve, response_serializer=serialize)
