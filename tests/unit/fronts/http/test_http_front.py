"""The HTTP port on its own: a listening socket until somebody comes, then pages."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from levada.config import BrokerConfig
from levada.engine.embedded.engine import EmbeddedEngine
from levada.errors import CannotListen
from levada.fronts.http import HttpFront, Sources
from support.engines import running


def make_config(port: int = 0) -> BrokerConfig:
    return BrokerConfig(data=Path("unused"), http_port=port)


@asynccontextmanager
async def front_on(engine: EmbeddedEngine, **sources: object) -> AsyncIterator[str]:
    """A started front; gives its base address."""
    front = HttpFront(make_config(), Sources(engine=engine, node_name="n1", **sources))  # type: ignore[arg-type]
    await front.start()
    try:
        yield "http://{}:{}".format(*front.address)
    finally:
        await front.stop(5.0)


async def test_pages_are_served_from_the_first_connection_on(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine, front_on(engine) as base, httpx.AsyncClient(base_url=base) as http:
        for path in ("/", "/metrics", "/healthz", "/readyz"):
            assert (await http.get(path)).status_code == 200, path
        assert (await http.get("/nowhere")).status_code == 404
        assert (await http.post("/metrics")).status_code == 405
        home = (await http.get("/")).text
        assert all(f'href="{path}"' in home for path in ("/metrics", "/healthz", "/readyz"))


async def test_connections_that_come_while_it_loads_are_all_answered(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine, front_on(engine) as base:

        async def ask() -> int:
            async with httpx.AsyncClient(base_url=base) as http:
                return (await http.get("/healthz")).status_code

        assert await asyncio.gather(*(ask() for _ in range(20))) == [200] * 20


async def test_a_front_that_nobody_asked_stops_at_once_and_frees_its_port(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        front = HttpFront(make_config(), Sources(engine=engine, node_name="n1"))
        await front.start()
        host, port = front.address
        await front.stop(5.0)
        await front.stop(5.0)
        with pytest.raises(OSError):
            socket.create_connection((host, port), timeout=5)


async def test_it_stops_while_it_loads(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        front = HttpFront(make_config(), Sources(engine=engine, node_name="n1"))
        await front.start()
        with socket.create_connection(front.address):
            await asyncio.sleep(0.01)
            await front.stop(5.0)


async def test_a_connection_that_is_kept_open_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        front = HttpFront(make_config(), Sources(engine=engine, node_name="n1"))
        await front.start()
        async with httpx.AsyncClient(base_url="http://{}:{}".format(*front.address)) as http:
            assert (await http.get("/healthz")).status_code == 200
            async with asyncio.timeout(60):
                await front.stop(120.0)


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            front = HttpFront(make_config(port), Sources(engine=engine, node_name="n1"))
            with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{port} for HTTP: something listens"):
                await front.start()
            await front.stop(1.0)


def test_nothing_is_loaded_before_it_is_needed() -> None:
    check = (
        "import sys, levada.fronts.http;"
        "sys.exit(any(name in sys.modules for name in ('uvicorn', 'starlette', 'prometheus_client')))"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
