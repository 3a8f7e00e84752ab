"""`levada runner`: keep the pipelines of a directory running."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levada.cli import EXIT_INTERRUPTED
from levada.cli.runner_view import JsonLines, Lines, Live, View
from levada.cli.session import AsJson
from levada.cli.spark import (
    DEFAULT_HOME,
    DEFAULT_MASTER,
    Bootstrap,
    Home,
    Master,
    SparkServer,
    bootstrap_of,
    need_broker,
    need_spark,
)

if TYPE_CHECKING:
    from levada.spark.pipelines.places import Places

app = typer.Typer(add_completion=False)


@app.command()
def runner(
    pipelines: Annotated[
        Path | None, typer.Option("--pipelines", "-p", metavar="DIR", help="The directory of pipeline files.")
    ] = None,
    master: Master = DEFAULT_MASTER,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
    beside: Annotated[bool, typer.Option("--beside", hidden=True, help="End when stdin does.")] = False,
) -> None:
    """Keep every pipeline of a directory as wanted, in one Spark application.

    Files that come, change or go are taken up while it runs. A pipeline that fails is started again, after 1 s and up to 60 s,
    and the others go on. `levada pipeline list` shows how they are. Topics with `levada.archive` are archived, too; without a directory,
    nothing else is done.
    A cluster has one runner; Ctrl-C ends it, each pipeline after the batch it is in.

    Examples:

      levada runner --pipelines pipelines

      levada runner --pipelines /srv/pipelines --master spark://10.0.0.1:7077 --bootstrap 10.0.0.2:9092 --home /mnt/shared/pipelines
    """
    began = time.perf_counter()
    need_spark()
    from levada.spark.archive.pipelines import ArchivePipelines
    from levada.spark.java import java
    from levada.spark.options.cluster import Cluster
    from levada.spark.options.reading import Given
    from levada.spark.pipelines.places import Places
    from levada.spark.runner.assembly import client_of
    from levada.spark.runner.assembly import runner as assembled

    java()
    places = Places(bootstrap=bootstrap_of(bootstrap, server), home=home, master=master)
    need_broker(places.bootstrap)
    told = _told(end_with_stdin=beside)
    with client_of(places.bootstrap) as client, _view(as_json=as_json, live=not beside) as view:

        def ready() -> None:
            view.ready(_about(pipelines, places), round((time.perf_counter() - began) * 1000))

        archives = ArchivePipelines(Cluster.of(Given({"bootstrap": places.bootstrap}), client_id="levada-archive"))
        assembled(places, client, view, directory=pipelines, managed=[archives], ready=ready).run(told)


def _about(pipelines: Path | None, places: Places) -> dict[str, Any]:
    return {
        "pipelines": str(pipelines.absolute()) if pipelines is not None else None,
        "bootstrap": places.bootstrap,
        "master": places.master,
        "home": str(places.home.absolute()),
        "pid": os.getpid(),
    }


def _view(*, as_json: bool, live: bool) -> View:
    if as_json:
        return JsonLines()
    return Live() if live and sys.stdout.isatty() else Lines()


def _told(*, end_with_stdin: bool) -> threading.Event:
    """Set by Ctrl-C and SIGTERM; a second one ends the process on the spot, which loses nothing either."""
    told = threading.Event()

    def tell(*_: Any) -> None:
        if told.is_set():
            os._exit(EXIT_INTERRUPTED)
        told.set()

    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, tell)
    if end_with_stdin:

        def watch() -> None:
            while os.read(0, 1024):
                pass
            told.set()

        threading.Thread(target=watch, daemon=True, name="stdin").start()
    return told
