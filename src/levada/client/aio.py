"""The client for code that awaits.

async with levada.aio.connect("localhost:9094") as client:
    async with client.producer() as producer:
        position = await (await producer.publish("orders", b"..."))
"""

from __future__ import annotations

from levada.client.client import AsyncClient as Client
from levada.client.client import Connecting
from levada.client.consumer import AsyncConsumer as Consumer
from levada.client.manager import AsyncManager as Manager
from levada.client.producer import AsyncProducer as Producer

__all__ = ["Client", "Consumer", "Manager", "Producer", "connect"]


def connect(address: str = "localhost:9094", *, timeout_ms: int = 30_000, client_id: str = "") -> Connecting:
    """Connect to a broker: `async with connect(…) as client`, or `client = await connect(…)` and `await client.close()`.

    Unreachable, at once, where nothing answers. `timeout_ms` is for single calls; `client_id` is how the broker's log and
    groups call this client.
    """
    return Connecting(address, timeout_ms, client_id)
