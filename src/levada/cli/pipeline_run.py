"""`levada pipeline run`: one pipeline in the foreground, with its figures on the terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from levada.cli.output import print_json
from levada.cli.pipeline_view import Lines, Live, View
from levada.cli.session import AsJson, WrongUsage
from levada.cli.spark import (
    DEFAULT_HOME,
    DEFAULT_MASTER,
    Bootstrap,
    Home,
    Master,
    SparkServer,
    Verbose,
    bootstrap_of,
    interruptible,
    interruption_told,
    need_broker,
    need_spark,
)
from levada.errors import nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.spark.executors import Executors
    from levada.spark.pipelines.declaration import Pipeline
    from levada.spark.pipelines.places import Places
    from levada.spark.pipelines.starting import Patient

_LOOK_S: Final = 0.25


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The Python file that declares it.")],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which of the file's pipelines.", show_default="the only one")
    ] = None,
    master: Master = DEFAULT_MASTER,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    home: Home = DEFAULT_HOME,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, and end.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline in the foreground.

    It goes on where it was when it last ran with this home. Ctrl-C ends it after the micro-batch it is in; a second one at once,
    which loses nothing either.

    Examples:

      levada pipeline run examples/orders.py

      levada pipeline run pipelines.py revenue --once --json

      levada pipeline run pipelines.py revenue --master spark://10.0.0.1:7077 --bootstrap 10.0.0.2:9092 --home /mnt/shared/pipelines
    """
    need_spark()
    from levada.spark.java import java
    from levada.spark.pipelines import preflight
    from levada.spark.pipelines.errors import NeedsSession
    from levada.spark.pipelines.loading import declared
    from levada.spark.pipelines.places import Places

    with ExitStack() as stack:
        stack.enter_context(_told(verbose=verbose))
        spark: SparkSession | None = None
        try:
            found = declared(file)
        except NeedsSession:
            spark = _spark(stack, master, home, verbose=verbose)
            found = declared(file)
        pipeline = _chosen(found, name, file)
        java()
        places = Places(bootstrap=bootstrap_of(bootstrap, server), home=home, master=master)
        need_broker(places.bootstrap)
        preflight.check(pipeline, places)
        view = stack.enter_context(_view(pipeline, as_json=as_json))
        view.starting(master)
        with interruption_told(f"{pipeline.name} was interrupted before it began"):
            spark = spark or _spark(stack, master, home, verbose=verbose)
        _run(spark, pipeline, places, view, once=once)


def _spark(stack: ExitStack, master: str, home: Path, *, verbose: bool) -> SparkSession:
    """A session that ends with the stack. Java's words go to a file: they would be written across the figures."""
    from levada.spark.session import session

    log = None if verbose else home / "spark.log"
    spark = session(master, "levada pipeline", log=log, **({"spark.log.level": "WARN"} if verbose else {}))
    stack.callback(spark.stop)
    return spark


def _run(spark: SparkSession, pipeline: Pipeline, places: Places, view: View, *, once: bool) -> None:
    from levada.spark.executors import Executors
    from levada.spark.pipelines.running import Running
    from levada.spark.pipelines.starting import Patient

    with interruptible() as interrupted:
        patient = Patient(lambda: Running.start(spark, pipeline, places, once=once))
        _watch(patient, Executors(spark, places.master), view, interrupted)


def _chosen(pipelines: list[Pipeline], name: str | None, file: Path) -> Pipeline:
    names = [one.name for one in pipelines]
    if name is None:
        if len(pipelines) > 1:
            raise WrongUsage(f"{file} declares {', '.join(names)}: say which")
        return pipelines[0]
    for one in pipelines:
        if one.name == name:
            return one
    raise WrongUsage(f"{file} declares no pipeline {name!r}; {', '.join(names)} it does{nearest(name, names)}")


def _view(pipeline: Pipeline, *, as_json: bool) -> View:
    if as_json:
        return Lines(pipeline, lambda what: print_json(what))
    if sys.stderr.isatty():
        return Live(pipeline)
    return Lines(pipeline, None)


def _watch(patient: Patient, executors: Executors, view: View, interrupted: threading.Event) -> None:
    """Show how it does until it ends, or is told to. What it failed with is raised."""
    waiting = ""
    while not (interrupted.is_set() or patient.ended()):
        view.show(patient.running.progress())
        waiting = executors.waiting()
        view.waiting(waiting)
        interrupted.wait(_LOOK_S)
    running = patient.running
    if running.active and waiting:
        running.stop(timeout_s=0)  # there is nothing to wait for: nobody works on its batch
    elif running.active:
        view.stopping()
        interrupted.clear()
        ending = threading.Thread(target=running.stop, daemon=True)
        ending.start()
        while ending.is_alive() and not interrupted.is_set():
            ending.join(_LOOK_S)
        if ending.is_alive():
            running.stop(timeout_s=0)
    view.show(running.progress())
    if failure := running.failure:
        raise failure
    view.ended()


@contextlib.contextmanager
def _told(*, verbose: bool) -> Iterator[None]:
    """With --verbose, the whole trace before the sentence."""
    try:
        yield
    except Exception:
        if verbose:
            import traceback

            traceback.print_exc()
        raise
