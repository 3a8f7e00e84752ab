"""How a job is run from the command line: everything is looked at, then Spark is started, and stopped again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from levada.cli.pairs import pairs
from levada.cli.session import WrongUsage
from levada.cli.spark import bootstrap_of, need_broker, need_spark
from levada.errors import InvalidRequest, LevadaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.cli.job_view import Hidden
    from levada.spark.jobs.extent import Where
    from levada.spark.jobs.frames import Connection
    from levada.wire.blocking import BlockingClient

R = TypeVar("R")
D = TypeVar("D")


class JobFailed(LevadaError):
    """The job failed. What it has written is whole batches; run again, it goes on."""


class Place:
    """Where a job runs."""

    def __init__(
        self,
        master: str,
        bootstrap: str | None,
        server: str | None,
        options: list[str] | None,
        *,
        as_json: bool,
        verbose: bool,
    ) -> None:
        need_spark()
        from levada.spark.java import java
        from levada.spark.jobs.frames import Connection

        java()
        self.master, self.as_json, self.verbose = master, as_json, verbose
        address = bootstrap_of(bootstrap, server)
        need_broker(address)
        self.connection = Connection.of(address, pairs(options, "--option"))
        self.began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since Spark was up."""
        return time.monotonic() - self.began

    def run(
        self,
        app: str,
        prepare: Callable[[BlockingClient], R],
        work: Callable[[SparkSession, BlockingClient, Connection, R, Hidden], D],
    ) -> tuple[R, D]:
        """Look at everything; only then start Spark."""
        from levada.cli.job_view import view

        with self.connection.cluster.client() as client:
            ready = prepare(client)
            from levada.spark.session import session

            with view(as_json=self.as_json) as shown, _explained(self.verbose):
                shown.starting(self.master)
                spark = session(self.master, app, log=None, **({"spark.log.level": "WARN"} if self.verbose else {}))
                self.began = time.monotonic()
                try:
                    with shown.watching(spark):
                        return ready, work(spark, client, self.connection, ready, shown)
                finally:
                    spark.stop()


@contextlib.contextmanager
def _explained(verbose: bool) -> Iterator[None]:
    """What Spark failed with, in a sentence."""
    try:
        yield
    except LevadaError:
        raise
    except Exception as error:
        if verbose:
            import traceback

            traceback.print_exc()
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        from levada.spark.pipelines.failures import cause

        raise JobFailed(cause(error)) from error


def place_said(text: str, option: str) -> Where:
    from levada.spark.jobs.extent import where

    try:
        return where(text, option)
    except InvalidRequest as error:
        raise WrongUsage(str(error)) from None
