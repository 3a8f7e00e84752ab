"""A broker on the test's own event loop. For one in its own process, to be killed, see `support.levada`.

async with running(tmp_path) as server:
    ...server.addresses["kafka"]
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from levada.config import BROKER_SETTINGS, BrokerConfig
from levada.server import Server

#: Tests do not wait for the disk unless they say so.
QUICK: Mapping[str, str] = {"levada.durability": "os"}


def make_config(data: Path, settings: Mapping[str, str] | None = None, *, host: str = "127.0.0.1") -> BrokerConfig:
    """Settings of the broker and defaults of topics, together, on a free port."""
    merged = {**QUICK, **(settings or {})}
    return BrokerConfig(
        data=data,
        host=host,
        kafka_port=0,
        grpc_port=0,
        http_port=0,
        settings={name: value for name, value in merged.items() if name in BROKER_SETTINGS},
        topic={name: value for name, value in merged.items() if name not in BROKER_SETTINGS},
    )


@asynccontextmanager
async def running(
    data: Path, settings: Mapping[str, str] | None = None, *, host: str = "127.0.0.1", grace_s: float = 1.0
) -> AsyncIterator[Server]:
    """A broker on this event loop."""
    server = Server(make_config(data, settings, host=host))
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace_s)
