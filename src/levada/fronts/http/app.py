"""The pages: /metrics, /healthz, /readyz, and / with links to them."""

from __future__ import annotations

import asyncio
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from levada.fronts.http.collector import BrokerCollector, System
from levada.fronts.http.exposition import exposition
from levada.fronts.http.health import Check, checks, free_bytes
from levada.fronts.http.loop_delay import LoopDelay
from levada.fronts.http.sources import Sources

_NOT_CACHED: Final = {"cache-control": "no-store"}
_HOME: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Levada</title>
<h1>Levada</h1>
<ul>
<li><a href="/metrics">/metrics</a>: for Prometheus
<li><a href="/healthz">/healthz</a>: is there anything to look after?
<li><a href="/readyz">/readyz</a>: does it serve now?
</ul>
</html>
"""


class Pages:
    """What is answered, from what the broker counts."""

    def __init__(self, sources: Sources, delay: LoopDelay) -> None:
        self._sources = sources
        self._delay = delay
        self._collector = BrokerCollector(sources, delay.histogram)

    async def home(self, request: Request) -> Response:
        return HTMLResponse(_HOME)

    async def metrics(self, request: Request) -> Response:
        self._delay.watch()
        system = await asyncio.to_thread(System.ask, self._sources)
        pieces = exposition(self._collector.families(system))
        return StreamingResponse(pieces, media_type=CONTENT_TYPE_PLAIN_0_0_4, headers=_NOT_CACHED)

    async def healthz(self, request: Request) -> Response:
        return _answer([check for check in await self._checks() if check.unwell])

    async def readyz(self, request: Request) -> Response:
        return _answer([check for check in await self._checks() if check.unready])

    async def _checks(self) -> list[Check]:
        return checks(self._sources, await asyncio.to_thread(free_bytes, self._sources))


def _answer(counted: list[Check]) -> Response:
    """200 where all is well, else 503; either way what was looked at, and why not."""
    wrong = any(check.why for check in counted)
    body = {
        "status": "failed" if wrong else "ok",
        "checks": {check.name: {"ok": not check.why, "why": check.why} for check in counted},
    }
    return JSONResponse(body, status_code=503 if wrong else 200, headers=_NOT_CACHED)


def make_app(sources: Sources, delay: LoopDelay) -> Starlette:
    pages = Pages(sources, delay)
    return Starlette(
        routes=[
            Route("/", pages.home),
            Route("/metrics", pages.metrics),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
        ]
    )
