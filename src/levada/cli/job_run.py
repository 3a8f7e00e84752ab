"""How a job is run from the command line: everything is looked at, then Spark is started, and stopped again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from levada.cli.pairs import pairs
from levada.cli.session import WrongUsage
from levada.cli.spark import bootstrap_of, interruption_told, need_broker, need_spark
from levada.cli.spark_session import spark_session
from levada.errors import InvalidRequest, LevadaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.cli.job_view import Hidden
    from levada.spark.jobs.frames import Connection
    from levada.wire.blocking import BlockingClient

R = TypeVar("R")
D = TypeVar("D")
#: What is said of a job that was interrupted: one that copies in batches, and one that does not.
GOES_ON: Final = "interrupted; what is written is whole batches: run it again with the same words, and it goes on"
NOTHING_DONE: Final = "interrupted; nothing was written"
NOT_WHOLE: Final = "interrupted; {where} is not a whole snapshot, if there is anything: remove it"


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
        from levada.spark.options.reading import WrongOption

        java()
        self.master, self.as_json, self.verbose = master, as_json, verbose
        address = bootstrap_of(bootstrap, server)
        need_broker(address)
        try:
            self.connection = Connection.of(address, pairs(options, "--option"))
        except WrongOption as error:
            raise WrongUsage(f"--option {error}") from None
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
        *,
        interrupted: str = GOES_ON,
    ) -> tuple[R, D]:
        """Look at everything; only then start Spark."""
        from levada.cli.job_view import view

        with self.connection.cluster.client() as client:
            ready = prepare(client)
            with interruption_told(interrupted), view(as_json=self.as_json) as shown:
                shown.starting(self.master)
                with spark_session(self.master, app, verbose=self.verbose, failure=JobFailed) as spark:
                    self.began = time.monotonic()
                    with shown.watching(spark):
                        return ready, work(spark, client, self.connection, ready, shown)


@contextmanager
def words() -> Iterator[None]:
    """What a job cannot do by its words alone is wrong usage, and is said before anything is looked at."""
    need_spark()
    try:
        yield
    except InvalidRequest as error:
        raise WrongUsage(str(error)) from None
