"""DeleteRecords, versions 0–2.

- Moves a partition's start offset; −1 stands for the visible end. Segments wholly below it go away.
- Not for a topic that is only compacted: its records are deleted by tombstones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.engine.port import At
from levada.errors import LevadaError, OffsetOutOfRange, PolicyViolation
from levada.fronts.kafka.answers import refused
from levada.fronts.kafka.call import Call


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    return {
        "topics": [
            {"name": topic.name, "partitions": [await _trim(topic.name, item, call) for item in topic.partitions]}
            for topic in request.topics
        ]
    }


async def _trim(topic: str, item: Any, call: Call) -> Mapping[str, Any]:
    at = At(topic, item.partition_index)
    try:
        partition = call.node.engine.partition(*at)
        if not partition.config.delete:
            raise PolicyViolation(f"{topic!r} is compacted only; records are deleted by tombstones")
        start, end = partition.start_offset, partition.end
        before = end if item.offset == -1 else item.offset
        if not 0 <= before <= end:
            raise OffsetOutOfRange(f"{at}: offset {before} is outside {start} to {end}", start=start, end=end)
        low = await call.node.engine.trim(at, before)
        return {"partition_index": at.partition, "low_watermark": low, "error_code": 0}
    except LevadaError as error:
        code = refused(call, str(at), error)["error_code"]
        return {"partition_index": at.partition, "low_watermark": -1, "error_code": code}
