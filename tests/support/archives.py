"""Topics that are archived, filled fast, and looked at; and a Spark that is none, for what needs no JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from levada.records.build import build
from levada.spark.archive.compaction import Sizes
from levada.spark.archive.discovery import archives
from levada.spark.archive.planning import Limits
from levada.spark.archive.running import Archiving, Care
from levada.spark.archive.status import stands
from levada.spark.archive.wanted import Archive
from levada.spark.options.cluster import Cluster
from levada.spark.options.reading import Given
from levada.wire.answers import EARLIEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Long ago: whatever was written then is too old at once, and retention takes it as soon as it may.
OLD_MS = 1_600_000_000_000
#: A broker that looks for what is too old all the time.
IMPATIENT = {
    "levada.durability": "os",
    "log.retention.check.interval.ms": "100",
    "file.delete.delay.ms": "0",
    "segment.bytes": str(1 << 20),
    "retention.ms": "100",
}
#: Archives whatever there is.
EAGER = Care(limits=Limits(rows_min=1, delay_s_max=0, task_rows=100_000), sizes=Sizes(files_min=2), look_every_s=0.05)
_BATCH = 5_000


def cluster_of(bootstrap: str) -> Cluster:
    return Cluster.of(Given({"bootstrap": bootstrap}))


def make_archived(cluster: Cluster, lake: Path, partitions: int, **settings: str) -> Archive:
    """A topic that is archived under this directory. Settings with `_` for `.`."""
    topic = f"t-{uuid4().hex[:8]}"
    configs = {"levada.archive": str(lake / topic), **{name.replace("_", "."): text for name, text in settings.items()}}
    with closing(cluster.client()) as client:
        client.create_topic(topic, partitions, configs=configs)
        [found] = archives(client, [topic])
    return found


def fill(cluster: Cluster, topic: str, first: int, count: int, partitions: int) -> None:
    """The numbers from `first` on, one after another round the partitions, all of them old."""
    with closing(cluster.client()) as client:
        for begin in range(first, first + count, _BATCH * partitions):
            end = min(begin + _BATCH * partitions, first + count)
            for partition in range(partitions):
                numbers = range(begin + (partition - begin) % partitions, end, partitions)
                if numbers:
                    records = [(None, b"%d" % number) for number in numbers]
                    client.produce((topic, partition), build(records, timestamp_ms=OLD_MS + begin))


def starts(cluster: Cluster, topic: str) -> list[int]:
    """Where the logs of the partitions begin."""
    with closing(cluster.client()) as client:
        ats = [(topic, one.partition) for one in client.topics([topic])[topic].partitions]
        found = client.list_offsets(dict.fromkeys(ats, EARLIEST))
    return [one.offset for one in found.values()]


def lag(cluster: Cluster, archive: Archive) -> int:
    with closing(cluster.client()) as client:
        return sum(one.lag for one in stands(client, [archive]))


def archive_all(spark: Any, cluster: Cluster, archive: Archive) -> Archiving:
    """Archive what there is now."""
    archiving = Archiving(spark, cluster, archive, EAGER)
    archiving.run_once()
    return archiving


def figures(frame: DataFrame) -> tuple[int, int, int]:
    """How many numbers, their sum, and that of their squares."""
    from pyspark.sql import functions as F

    number = F.col("value").cast("string").cast("long")
    return tuple(frame.agg(F.count("*"), F.sum(number), F.sum(number * number)).collect()[0])  # type: ignore[return-value]


def expected(count: int) -> tuple[int, int, int]:
    """The figures of the numbers below this one."""
    return count, sum(range(count)), sum(number * number for number in range(count))


class NoSpark:
    """Runs what a session's context is given here and now."""

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        return self

    def parallelize(self, jobs: Iterable[Any], slices: int) -> _Jobs:
        return _Jobs(list(jobs))


class _Jobs:
    def __init__(self, jobs: list[Any]) -> None:
        self._jobs = jobs

    def map(self, work: Callable[[Any], Any]) -> _Jobs:
        return _Jobs([work(job) for job in self._jobs])

    def collect(self) -> list[Any]:
        return self._jobs
