"""A topic without repeats: a copy in a new topic that has the first record of each identity, over the whole history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from levada.errors import InvalidRequest
from levada.spark.jobs.copying import evenly
from levada.spark.jobs.extent import History, Offsets, between, size
from levada.spark.jobs.frames import PLACE, Connection, history, write
from levada.spark.jobs.ledger import Step
from levada.spark.jobs.running import Place, Teller, batch_rows, job_name
from levada.spark.jobs.topics import HELD, Topic, find, has_records, make, need, other_than, release

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from levada.spark.jobs.first import Identity
    from levada.wire.blocking import BlockingClient


@dataclass(frozen=True, kw_only=True)
class Dedup:
    """What is wanted. Without `by`, what the topic's own dedup goes by, and the message's id where it has none."""

    topic: str
    into: str
    by: str | None = None
    batch_rows: int | None = None


class Ready(NamedTuple):
    """A dedup that can begin: everything was looked at."""

    source: Topic
    target: Topic
    by: Identity
    said: str
    made: bool
    starts: Offsets
    ends: Offsets
    rows_max: int


class Deduplicated(NamedTuple):
    """What was done: of `read` records, `written` are in the target. `told` have something to be told by, the others are all kept."""

    target: str
    made: bool
    by: str
    read: int
    told: int
    written: int
    batches: int
    job: str

    @property
    def repeats(self) -> int:
        return self.read - self.written


def prepare(client: BlockingClient, wanted: Dedup) -> Ready:
    """Look at everything, and make the target where it is missing. Nothing has been made where this raises."""
    from levada.spark.jobs.first import identity

    source = need(client, wanted.topic)
    other_than(source, wanted.into, "--into")
    topics_own = source.setting("levada.dedup")
    said = wanted.by or (topics_own if topics_own != "off" else "id")
    by = identity(said)
    found = History(client, source.name, source.partitions)
    target = find(client, wanted.into)
    if target is not None and target.partitions != source.partitions:
        raise InvalidRequest(
            f"--into {target.name}: it has {target.partitions} partitions and {source.name} {source.partitions}; records keep their "
            "partition: it needs as many"
        )
    if target is not None and has_records(client, target) and not _begun(client, source, target, said):
        raise InvalidRequest(f"--into {target.name}: it has records that this job has not written")
    rows_max = batch_rows(client, source, wanted.batch_rows)
    made = target is None
    if target is None:
        target = make(client, wanted.into, source, source.partitions, HELD)
    return Ready(source, target, by, said, made, found.starts, found.ends, rows_max)


def _begun(client: BlockingClient, source: Topic, target: Topic, said: str) -> bool:
    group = f"__levada.job.{job_name('dedup', source, target, by=said)}"
    return any(at.topic == source.name for at in client.offset_fetch(group))


def dedup(
    spark: SparkSession, client: BlockingClient, connection: Connection, ready: Ready, teller: Teller
) -> Deduplicated:
    """Do it, or go on with it."""
    job = job_name("dedup", ready.source, ready.target, by=ready.said)
    place = Place(client, connection, job, ready.source)
    work = _Work(spark, connection, ready, job)
    teller.doing(f"{ready.source.name} → {ready.target.name}", size(between(ready.starts, ready.ends)))
    done = place.copying(evenly, work.write, ready.rows_max, teller).run(ready.starts, ready.ends)
    release(client, ready.target, ready.source)
    return Deduplicated(
        ready.target.name, ready.made, ready.by.what, work.read, work.told, done.rows, done.batches, job
    )


class _Work:
    """The writing of batches. Which records are repeats is found out once for each pass."""

    def __init__(self, spark: SparkSession, connection: Connection, ready: Ready, job: str) -> None:
        self._spark, self._connection, self._ready, self._job = spark, connection, ready, job
        self._pass: tuple[Offsets, Offsets] | None = None
        self._repeats: DataFrame | None = None
        self.read = self.told = 0

    def write(self, step: Step) -> int:
        from levada.spark.jobs.first import told, without

        repeats = self._repeats_of(step)
        source, ranges = self._ready.source.name, between(step.starts, step.ends)
        records = history(self._spark, self._connection, source, ranges)
        read, has_identity = told(records, self._ready.by)
        self.read += read
        self.told += has_identity
        kept = (
            without(records, here(repeats, step)).repartition("partition").sortWithinPartitions("partition", "offset")
        )
        return write(
            kept.drop("offset"),
            self._connection,
            self._ready.target.name,
            sink=self._job,
            batch=step.number,
            epoch=step.epoch,
        )

    def _repeats_of(self, step: Step) -> DataFrame:
        """All repeats of the pass that this batch is of, against everything before it."""
        from levada.spark.jobs.first import needed, repeats

        done = {p: held[-2] for p, held in step.passes.items()}
        ends = {p: held[-1] for p, held in step.passes.items()}
        if self._pass != (done, ends) or self._repeats is None:
            if self._repeats is not None:
                self._repeats.unpersist()
            begins = {p: held[0] for p, held in step.passes.items()}
            columns = needed(self._ready.by, PLACE)
            records = history(self._spark, self._connection, self._ready.source.name, between(begins, ends), columns)
            self._repeats = repeats(records, self._ready.by, done).persist()
            self._pass = (done, ends)
        return self._repeats


def here(places: DataFrame, step: Step) -> DataFrame:
    """Those within the batch."""
    from pyspark.sql import functions as f

    from levada.spark.jobs.order import by_partition

    offset = f.col("offset")
    return places.where((offset >= by_partition(step.starts, 0)) & (offset < by_partition(step.ends, 0)))
