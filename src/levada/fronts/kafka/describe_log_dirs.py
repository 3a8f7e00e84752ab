"""DescribeLogDirs, versions 1–5. One directory, its partitions' sizes, and the room on its disk.

Sizes are read from the directory, so that a look from a dashboard does not open ten thousand logs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from levada.fronts.kafka.call import Call


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    data = call.node.config.data.absolute()
    sizes = await asyncio.to_thread(_sizes, data / "topics", list(_wanted(request, call)))
    usage = shutil.disk_usage(data)
    result = {
        "error_code": 0,
        "log_dir": str(data),
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "partition_size": size, "offset_lag": 0, "is_future_key": False}
                    for index, size in partitions.items()
                ],
            }
            for topic, partitions in sizes.items()
        ],
        "total_bytes": usage.total,
        "usable_bytes": usage.free,
    }
    return {"error_code": 0, "results": [result]}


def _wanted(request: Any, call: Call) -> Iterable[tuple[str, Iterable[int]]]:
    view = call.node.engine.view
    if request.topics is None:
        return [(info.name, range(info.partitions)) for info in view.all()]
    known = ((view.get(item.topic), item) for item in request.topics)
    return [
        (info.name, [index for index in item.partitions if 0 <= index < info.partitions])
        for info, item in known
        if info is not None
    ]


def _sizes(topics: Path, wanted: Iterable[tuple[str, Iterable[int]]]) -> dict[str, dict[int, int]]:
    return {name: {index: _size(topics / f"{name}-{index}") for index in indexes} for name, indexes in wanted}


def _size(directory: Path) -> int:
    """Bytes of log in a partition; 0 for one that was never written."""
    total = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(".log"):
                    try:
                        total += entry.stat().st_size
                    except FileNotFoundError:  # retention took it while we looked
                        continue
    except FileNotFoundError:
        return 0
    return total
