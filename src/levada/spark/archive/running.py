"""The archiving of one topic as something that runs: in a thread of its own, until it is stopped or fails."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from levada.errors import ClientError
from levada.spark.archive.archiver import Archiver
from levada.spark.archive.compaction import RETENTION_HOURS, Compacted, Sizes, compact
from levada.spark.archive.planning import Limits
from levada.spark.archive.table import ArchiveTable
from levada.spark.archive.wanted import Archive
from levada.spark.losses import DELETED, Lost
from levada.spark.options.cluster import Cluster
from levada.spark.pipelines.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger("levada.archive")

#: How long `stop` waits for the commit it is in.
STOP_TIMEOUT_S: Final = 60.0


class Care(NamedTuple):
    """How an archive is kept."""

    limits: Limits = Limits()
    sizes: Sizes = Sizes()
    #: How often small files are looked for.
    compact_every_s: float = 3600.0
    #: How long files stay that a later version of the table no longer names.
    vacuum_hours: int = RETENTION_HOURS
    #: How often the log is looked at for something new.
    look_every_s: float = 1.0


class Archiving:
    """Keeps one topic archived. Its progress may be asked for from any thread."""

    def __init__(self, spark: SparkSession, cluster: Cluster, wanted: Archive, care: Care | None = None) -> None:
        from pyspark import InheritableThread

        self.archive = wanted
        self._failure: Exception | None = None
        self._spark = spark
        self._care = care or Care()
        self._client = cluster.client()
        self._archiver = Archiver(spark, cluster, self._client, wanted, self._care.limits)
        self._stopping = threading.Event()
        # It takes over what Spark knows of this thread: the pool that its jobs are scheduled in.
        self._thread = InheritableThread(target=self._guarded, name=f"levada-archive-{wanted.topic}", daemon=True)
        self._tidied_at = time.monotonic()

    def start(self) -> Archiving:
        self._thread.start()
        return self

    @property
    def active(self) -> bool:
        return bool(self._thread.is_alive())

    @property
    def failure(self) -> Exception | None:
        """Why it ended by itself; None while it runs, and after an end in order."""
        return self._failure

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End it after the commit it is in."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def progress(self) -> Progress:
        done = self._archiver.progress
        lost = [Lost(one.topic, one.partition, one.start, one.end, DELETED) for one in done.lost]
        return Progress(
            batch=done.commits - 1,
            rows=done.last_rows,
            rows_s=done.rows_s,
            batch_ms=round(done.last_s * 1000),
            rows_total=done.rows,
            lag=done.lag,
            lost=tuple(map(str, lost)),
        )

    def run_once(self) -> None:
        """Archive all there is now, here, and end. Whatever is wrong is raised."""
        with closing(self._client):
            ends = self._archiver.ends()
            while not self._stopping.is_set() and self._archiver.step(ends):
                pass

    def _guarded(self) -> None:
        try:
            with closing(self._client):
                self._keep()
        except Exception as error:
            if not self._stopping.is_set():
                self._failure = error

    def _keep(self) -> None:
        """A broker that is away comes back; anything else is for whoever looks after this."""
        while not self._stopping.is_set():
            try:
                if not self._archiver.step():
                    self._tidy()
                    self._stopping.wait(self._care.look_every_s)
            except ClientError as error:
                _log.warning("the broker is away", topic=self.archive.topic, reason=str(error))
                self._stopping.wait(self._care.look_every_s)

    def _tidy(self) -> None:
        """Put small files together, and remove what nobody can need, now and then."""
        table = self._archiver.table
        if table is None or time.monotonic() - self._tidied_at < self._care.compact_every_s:
            return
        self._tidied_at = time.monotonic()
        tidy(self._spark, table, self.archive, self._care)


def tidy(spark: SparkSession, table: ArchiveTable, archive: Archive, care: Care) -> tuple[Compacted, int]:
    """Compaction, and vacuum: what was put together, and how many files were removed."""
    done = compact(spark, table, archive.typed, care.sizes)
    removed = table.vacuum(care.vacuum_hours)
    if done.files_before or removed:
        _log.info("small files put together", topic=archive.topic, **done._asdict(), removed=len(removed))
    return done, len(removed)
