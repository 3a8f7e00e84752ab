"""A Spark session for one command: what Java says, what it fails with, what it waits for."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from levada.errors import LevadaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S: Final = 1.0


class SparkFailed(LevadaError):
    """Spark failed."""


@contextmanager
def spark_session(
    master: str, app: str, *, verbose: bool, failure: type[LevadaError] = SparkFailed
) -> Iterator[SparkSession]:
    """A session for one command.

    Java's words go to a file, as they would be written across ours; with --verbose they are shown. What Spark fails with is raised as
    a `failure`, in a sentence that names the file, which is then kept. A cluster that gives nothing to run on is told of on stderr.
    """
    from levada.spark.scratch import scratch
    from levada.spark.session import session as start

    log = None if verbose else scratch() / "spark.log"
    try:
        spark = start(master, app, log=log, **({"spark.log.level": "WARN"} if verbose else {}))
        try:
            with _waiting_told(spark, master):
                yield spark
        finally:
            spark.stop()
    except LevadaError:
        raise
    except Exception as error:
        if verbose:
            import traceback

            traceback.print_exc()
        kept = _kept(log)
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            if kept:
                print(f"levada: {kept}", file=sys.stderr)
            raise
        from levada.spark.pipelines.failures import cause

        raise failure("\n".join(filter(None, (cause(error), kept)))) from error


def _kept(log: Path | None) -> str:
    """Have a log outlive this process, if anything stands in it; and say so."""
    if log is None or not log.exists() or not log.stat().st_size:
        return ""
    kept = Path(tempfile.gettempdir(), f"levada-{os.getpid()}-spark.log")
    try:
        shutil.move(log, kept)
    except OSError:  # what Spark failed with is worth more
        return ""
    return f"What Spark said is in {kept}; --verbose shows it."


@contextmanager
def _waiting_told(spark: SparkSession, master: str) -> Iterator[None]:
    """While this lasts, a line on stderr whenever the cluster has no executor for us."""
    from levada.spark.executors import Executors

    ended, executors = threading.Event(), Executors(spark, master)
    tell = once_each(lambda text: print(f"levada: waiting: {text}", file=sys.stderr, flush=True))

    def look() -> None:
        while not ended.wait(_LOOK_S):
            tell(executors.waiting())

    thread = threading.Thread(target=look, daemon=True, name="levada-executors")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def once_each(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Tells what is another than the last time, and not empty."""
    last = ""

    def told(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            if text:
                tell(text)

    return told
