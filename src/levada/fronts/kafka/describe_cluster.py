"""DescribeCluster, versions 0–2. One node, which is broker and controller; there is no separate controller endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from levada.fronts.kafka.call import Call
from levada.fronts.kafka.metadata import CLUSTER_OPERATIONS
from levada.wire.metadata import NO_OPERATIONS

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_MISMATCHED_ENDPOINT_TYPE: Final = 114
_UNSUPPORTED_ENDPOINT_TYPE: Final = 115


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    if request.endpoint_type == _CONTROLLERS:
        return _refusal(_MISMATCHED_ENDPOINT_TYPE, "this is a broker's endpoint, the request wants a controller's")
    if request.endpoint_type != _BROKERS:
        return _refusal(_UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type} is not known")
    node = call.node
    return {
        "cluster_id": node.engine.cluster_id,
        "controller_id": node.node_id,
        "brokers": [{"broker_id": node.node_id, "host": node.host, "port": node.port, "rack": None}],
        "cluster_authorized_operations": (
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    }


def _refusal(code: int, message: str) -> Mapping[str, Any]:
    return {"error_code": code, "error_message": message, "cluster_id": "", "brokers": []}
