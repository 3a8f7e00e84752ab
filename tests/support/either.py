"""Both of our Kafka clients under one roof: a test awaits its calls, whichever it was given."""

from __future__ import annotations

import inspect
from typing import Any

from levada.wire.blocking import BlockingClient
from levada.wire.client import Client

CLIENTS = {"async": Client, "blocking": BlockingClient}


class Either:
    """A client of either kind, whose calls are awaited."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if not callable(found):
            return found

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            outcome = found(*args, **kwargs)
            return await outcome if inspect.isawaitable(outcome) else outcome

        return awaited

    def producer(self, transactional_id: str) -> Either:
        return Either(self.client.transactional_producer(transactional_id))


def make_client(kind: str, bootstrap: str, **settings: Any) -> Either:
    return Either(CLIENTS[kind](bootstrap, **settings))
