"""A runner put together, as `levada runner` has it."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from levada.spark.pipelines.places import Places
from levada.spark.runner.board import now_ms
from levada.spark.runner.keeper import Keeper, shared_by_many
from levada.spark.runner.news import Teller
from levada.spark.runner.records import RunnerSeen
from levada.spark.runner.runner import Runner
from levada.spark.runner.shelf import Directory, Lookout, Managed, Versioned
from levada.spark.session import session
from levada.wire.blocking import BlockingClient

#: How long the runner's own calls to the broker may take: pipelines do not wait for them.
_TIMEOUT_MS = 5_000
_FILES_EVERY_S = 0.5
_MANAGED_EVERY_S = 5.0


def runner(
    places: Places,
    client: BlockingClient,
    teller: Teller,
    *,
    directory: Path | None,
    managed: Iterable[Callable[[], Iterable[Versioned]]] = (),
    ready: Callable[[], None] = lambda: None,
) -> Runner:
    """One that keeps the pipelines of a directory, and what parts of Levada want kept. InvalidConfig."""
    lookouts = [Lookout(Managed(poll), _MANAGED_EVERY_S) for poll in managed]
    if directory is not None:
        lookouts.insert(0, Lookout(Directory(directory), _FILES_EVERY_S))
    now = now_ms()
    me = RunnerSeen(
        id=uuid.uuid4().hex[:12],
        host=socket.gethostname(),
        pid=os.getpid(),
        since_ms=now,
        seen_ms=now,
        pipelines=str(directory.absolute()) if directory is not None else "",
        master=places.master,
        home=str(places.home.absolute()),
    )

    def keeper() -> Keeper:
        log = places.home / "spark.log"
        opened = Keeper(session(places.master, "levada runner", log=log, **shared_by_many()), places)
        ready()
        return opened

    return Runner(client, me, lookouts, keeper, teller)


def client_of(bootstrap: str) -> BlockingClient:
    """For a runner's own calls. The caller closes it."""
    return BlockingClient(bootstrap, client_id="levada-runner", timeout_ms=_TIMEOUT_MS, connect_timeout_ms=_TIMEOUT_MS)
