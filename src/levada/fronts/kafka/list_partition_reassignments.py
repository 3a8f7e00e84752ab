"""ListPartitionReassignments, version 0. One node has nowhere to move a partition to: none is under way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.fronts.kafka.answers import OK
from levada.fronts.kafka.call import Call


async def handle(_request: Any, _call: Call) -> Mapping[str, Any]:
    return {**OK, "topics": []}
