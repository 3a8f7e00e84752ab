"""A topic without repeats: a copy in a new topic that has the first record of each identity, over the whole history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from levada.errors import InvalidRequest
from levada.spark.jobs.extent import History, Offsets, Ranges, between, size
from levada.spark.jobs.first import Identity, identity
from levada.spark.jobs.frames import PLACE, Connection, history, what_is_left, write
from levada.spark.jobs.ledger import Step, noted
from levada.spark.jobs.remains import Remains, refuse_lost
from levada.spark.jobs.running import Place, Teller, batch_rows, job_name
from levada.spark.jobs.topics import HELD, Topic, find, has_records, make, need, other_than, release
from levada.spark.losses import Lost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from levada.wire.blocking import BlockingClient


@dataclass(frozen=True, kw_only=True)
class Dedup:
    """What is wanted. Without `by`, what the topic's own dedup goes by, and the message's id where it has none.

    InvalidRequest where it contradicts itself.
    """

    topic: str
    into: str
    by: str | None = None
    batch_rows: int | None = None
    #: Go on behind what was deleted before it was copied.
    skip_lost: bool = False

    def __post_init__(self) -> None:
        other_than(self.topic, self.into, "--into")
        if self.by is not None:
            identity(self.by)


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
    skip_lost: bool = False


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
    #: What this run has passed over, since it was deleted before it was copied.
    lost: Sequence[Lost] = ()

    @property
    def repeats(self) -> int:
        return self.read - self.written


def prepare(client: BlockingClient, wanted: Dedup) -> Ready:
    """Look at everything, and make the target where it is missing. Nothing has been made where this raises."""
    source = need(client, wanted.topic)
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
    job = job_name("dedup", source, target, by=said) if target else None
    has_begun = job is not None and noted(client, job, source.name) is not None
    if target is not None and has_records(client, target) and not has_begun:
        raise InvalidRequest(f"--into {target.name}: it has records that this job has not written")
    if not wanted.skip_lost:
        refuse_lost(client, found, source, job, found.starts, found.ends)
    rows_max = batch_rows(client, source, wanted.batch_rows)
    made = target is None
    if target is None:
        target = make(client, wanted.into, source, source.partitions, HELD)
    return Ready(source, target, by, said, made, found.starts, found.ends, rows_max, wanted.skip_lost)


def dedup(
    spark: SparkSession, client: BlockingClient, connection: Connection, ready: Ready, teller: Teller
) -> Deduplicated:
    """Do it, or go on with it."""
    job = job_name("dedup", ready.source, ready.target, by=ready.said)
    place = Place(client, connection, job, ready.source)
    remains = Remains(lambda: History(client, ready.source.name, ready.source.partitions), teller, skip=ready.skip_lost)
    work = _Work(spark, client, connection, ready, job, remains)
    teller.doing(f"{ready.source.name} → {ready.target.name}", size(between(ready.starts, ready.ends)))
    done = place.copying(remains.plan, work.write, ready.rows_max, teller).run(ready.starts, ready.ends)
    release(client, ready.target, ready.source)
    return Deduplicated(
        ready.target.name, ready.made, ready.by.what, work.read, work.told, done.rows, done.batches, job, remains.lost
    )


class _Work:
    """The writing of batches. Which records are repeats is found out once for each pass."""

    def __init__(
        self,
        spark: SparkSession,
        client: BlockingClient,
        connection: Connection,
        ready: Ready,
        job: str,
        remains: Remains,
    ) -> None:
        self._spark, self._client, self._connection = spark, client, connection
        self._ready, self._job, self._remains = ready, job, remains
        self._pass: tuple[Offsets, Offsets] | None = None
        self._repeats: DataFrame | None = None
        self.read = self.told = 0

    def write(self, step: Step) -> int:
        return self._remains.written(step, lambda ranges: self._tried(step, ranges))

    def _tried(self, step: Step, ranges: Sequence[Ranges]) -> int:
        """What is a repeat of something that is lost is one no longer: it is the first that is left."""
        if ranges != [between(step.starts, step.ends)]:
            self._forget()
        try:
            return self._write(step, ranges) if ranges else 0
        except Exception:
            self._forget()
            raise

    def _write(self, step: Step, ranges: Sequence[Ranges]) -> int:
        from levada.spark.jobs.first import told, without

        repeats = self._repeats_of(step)
        records = what_is_left(self._spark, self._connection, self._ready.source.name, ranges)
        read, has_identity = told(records, self._ready.by)
        kept = (
            without(records, here(repeats, step)).repartition("partition").sortWithinPartitions("partition", "offset")
        )
        rows = write(
            kept.drop("offset"),
            self._connection,
            self._ready.target.name,
            sink=self._job,
            batch=step.number,
            epoch=step.epoch,
        )
        self.read += read
        self.told += has_identity
        return rows

    def _repeats_of(self, step: Step) -> DataFrame:
        """All repeats of the pass that this batch is of, against everything before it."""
        from levada.spark.jobs.first import needed, repeats

        done = {p: held[-2] for p, held in step.passes.items()}
        ends = {p: held[-1] for p, held in step.passes.items()}
        if self._pass != (done, ends) or self._repeats is None:
            self._forget()
            columns = needed(self._ready.by, PLACE)
            left = self._held(self._ready.source).left(step.begins, ends)
            records = what_is_left(self._spark, self._connection, self._ready.source.name, left.ranges, columns)
            # What the source has lost, the target has, as far as it was copied.
            copied = self._copied(columns) if left.lost else None
            self._repeats = repeats(records, self._ready.by, done, copied).persist()
            self._pass = (done, ends)
        return self._repeats

    def _copied(self, columns: Sequence[str]) -> DataFrame:
        """All that is in the target, which has the first of each identity. The batch that is being written is not in it."""
        held = self._held(self._ready.target)
        ranges = between(held.starts, held.ends)
        return history(self._spark, self._connection, self._ready.target.name, ranges, columns, whole=False)

    def _held(self, topic: Topic) -> History:
        return History(self._client, topic.name, topic.partitions)

    def _forget(self) -> None:
        if self._repeats is not None:
            self._repeats.unpersist()
        self._repeats = None


def here(places: DataFrame, step: Step) -> DataFrame:
    """Those within the batch."""
    from pyspark.sql import functions as f

    from levada.spark.jobs.order import by_partition

    offset = f.col("offset")
    return places.where((offset >= by_partition(step.starts, 0)) & (offset < by_partition(step.ends, 0)))
