"""Spark on topics: source, sink, pipelines and jobs. Brokers are met over `levada.wire` only.

    from levada.spark import lake, pipeline, topic

    @pipeline(source=topic("orders", format="json", schema="id STRING, amount DOUBLE"), sink=[topic("large"), lake("large")])
    def large(orders):
        return orders.where("amount > 1000")

Public names are loaded when they are first asked for: `format("levada")` needs none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levada.spark.pipelines.declaration import Pipeline as Pipeline
    from levada.spark.pipelines.declaration import pipeline as pipeline
    from levada.spark.pipelines.frames import deduplicated as deduplicated
    from levada.spark.pipelines.lakes import lake as lake
    from levada.spark.pipelines.loading import declared as declared
    from levada.spark.pipelines.places import Places as Places
    from levada.spark.pipelines.running import Running as Running
    from levada.spark.pipelines.topics import topic as topic

_FROM = {
    "Pipeline": ("levada.spark.pipelines.declaration", "Pipeline"),
    "pipeline": ("levada.spark.pipelines.declaration", "pipeline"),
    "deduplicated": ("levada.spark.pipelines.frames", "deduplicated"),
    "lake": ("levada.spark.pipelines.lakes", "lake"),
    "declared": ("levada.spark.pipelines.loading", "declared"),
    "Places": ("levada.spark.pipelines.places", "Places"),
    "Running": ("levada.spark.pipelines.running", "Running"),
    "topic": ("levada.spark.pipelines.topics", "topic"),
}

__all__ = [*_FROM]


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module 'levada.spark' has no attribute {name!r}")
    module, attribute = _FROM[name]
    found = globals()[name] = getattr(importlib.import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
