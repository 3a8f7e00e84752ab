"""ListConfigResources, versions 0–1. Version 0 asks for client metrics only, and there are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.fronts.kafka.call import Call
from levada.fronts.kafka.describe_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC

UNSUPPORTED_VERSION = 35
KNOWN = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    wanted = {CLIENT_METRICS} if call.version == 0 else set(request.resource_types) or KNOWN
    if not wanted <= KNOWN:
        return {"error_code": UNSUPPORTED_VERSION, "config_resources": []}
    found: list[tuple[str, int]] = []
    if TOPIC in wanted:
        found += [(info.name, TOPIC) for info in call.node.engine.view.all()]
    found += [(str(call.node.node_id), kind) for kind in (BROKER, BROKER_LOGGER) if kind in wanted]
    return {
        "error_code": 0,
        "config_resources": [{"resource_name": name, "resource_type": kind} for name, kind in found],
    }
