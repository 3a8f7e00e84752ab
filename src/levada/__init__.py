"""Levada: streams, queues and tables over one log.

    import levada

    with levada.connect("localhost:9094") as client:
        with client.producer(value=levada.JSON) as producer:
            producer.publish("orders", {"id": 7}, key=b"user-1").result()
        with client.consumer("orders", group="billing", value=levada.JSON) as consumer:
            for record in consumer:
                print(record.value)

`levada.aio` is the same for code that awaits. What can go wrong is in `levada.errors`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levada.client import aio as aio
    from levada.client.client import AsyncClient as AsyncClient
    from levada.client.delivery import Deliveries as Deliveries
    from levada.client.delivery import Delivery as Delivery
    from levada.client.faces import Client as Client
    from levada.client.faces import Consumer as Consumer
    from levada.client.faces import Producer as Producer
    from levada.client.faces import connect as connect
    from levada.client.records import At as At
    from levada.client.records import Position as Position
    from levada.client.records import Record as Record
    from levada.client.serializers import BYTES as BYTES
    from levada.client.serializers import JSON as JSON
    from levada.client.serializers import STR as STR
    from levada.client.serializers import Serializer as Serializer

__version__ = "0.1.0"

#: Loaded when first asked for: the broker and the command line need neither the client nor gRPC to start.
_FROM = {
    "AsyncClient": "levada.client.client",
    "Deliveries": "levada.client.delivery",
    "Delivery": "levada.client.delivery",
    "Client": "levada.client.faces",
    "Consumer": "levada.client.faces",
    "Producer": "levada.client.faces",
    "connect": "levada.client.faces",
    "At": "levada.client.records",
    "Position": "levada.client.records",
    "Record": "levada.client.records",
    "BYTES": "levada.client.serializers",
    "JSON": "levada.client.serializers",
    "STR": "levada.client.serializers",
    "Serializer": "levada.client.serializers",
}

__all__ = ["__version__", "aio", *_FROM]


def __getattr__(name: str) -> Any:
    if name in ("aio", "errors"):
        found = importlib.import_module("levada.client.aio" if name == "aio" else "levada.errors")
    elif name in _FROM:
        found = getattr(importlib.import_module(_FROM[name]), name)
    else:
        raise AttributeError(f"module 'levada' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
