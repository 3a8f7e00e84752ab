"""A topic with another number of partitions, more or fewer: a copy in a new topic, verified, with the groups' places in it.

Kafka's protocol cannot rename a topic or take partitions from it, and adding some leaves every record where it is. So the records are
copied: routed anew, in one order for all partitions (`order.py`), batch by batch (`copying.py`). What comes while it runs is taken in
further passes. The source is only read: who produces and consumes moves over when the copy is whole, and not before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from levada.errors import InvalidRequest, LevadaError
from levada.spark.jobs import groups
from levada.spark.jobs.copying import Copied, Cut, Pass
from levada.spark.jobs.extent import History, Offsets, between, size
from levada.spark.jobs.frames import PLACE, Connection, history, write
from levada.spark.jobs.ledger import Step
from levada.spark.jobs.running import Place, Teller, batch_rows, job_name
from levada.spark.jobs.topics import HELD, Topic, find, has_records, make, need, other_than, release
from levada.spark.jobs.translation import Translated, advanced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from levada.spark.jobs.checksum import Fingerprint
    from levada.wire.blocking import BlockingClient

#: While the source grows faster than this many passes can follow, somebody has to stop producing first.
PASSES_MAX: Final = 5


class NotTheSame(LevadaError):
    """The copy is not what the source is; nobody was moved to it."""


@dataclass(frozen=True, kw_only=True)
class Repartition:
    """What is wanted."""

    topic: str
    partitions: int
    into: str | None = None
    batch_rows: int | None = None

    @property
    def target(self) -> str:
        return self.into or f"{self.topic}.v{self.partitions}"


class Ready(NamedTuple):
    """A repartition that can begin: everything was looked at."""

    source: Topic
    target: Topic
    made: bool
    starts: Offsets
    ends: Offsets
    rows_max: int


class Repartitioned(NamedTuple):
    """What was done. `coming`: records that came to the source since."""

    target: str
    made: bool
    records: int
    batches: int
    #: Of all that was copied, also earlier; None where it was verified before and nothing has come since.
    fingerprint: Fingerprint | None
    groups: Sequence[Translated]
    #: Group → partition → offset: what was committed now.
    moved: Mapping[str, Offsets]
    #: Groups that have members, and could not be moved.
    left: Sequence[str]
    coming: int
    job: str


def prepare(client: BlockingClient, wanted: Repartition) -> Ready:
    """Look at everything, and make the target where it is missing. Nothing has been made where this raises."""
    source = need(client, wanted.topic)
    other_than(source, wanted.target, "--into")
    found = History(client, source.name, source.partitions)
    target = find(client, wanted.target)
    if target is not None and target.partitions != wanted.partitions:
        raise InvalidRequest(
            f"{target.name} is there, with {target.partitions} partitions, not {wanted.partitions}: name another with --into"
        )
    if target is not None and has_records(client, target) and not _begun(client, source, target):
        raise InvalidRequest(
            f"{target.name} is there, and has records that this job has not written: name another with --into"
        )
    rows_max = batch_rows(client, source, wanted.batch_rows)
    made = target is None
    if target is None:
        target = make(client, wanted.target, source, wanted.partitions, HELD)
    return Ready(source, target, made, found.starts, found.ends, rows_max)


def _name(source: Topic, target: Topic) -> str:
    return job_name("repartition", source, target)


def _begun(client: BlockingClient, source: Topic, target: Topic) -> bool:
    group = f"__levada.job.{_name(source, target)}"
    return any(at.topic == source.name for at in client.offset_fetch(group))


def repartition(
    spark: SparkSession, client: BlockingClient, connection: Connection, ready: Ready, teller: Teller
) -> Repartitioned:
    """Copy what is not copied, verify, and translate the groups' places. NotTheSame."""
    return _Repartitioning(spark, client, connection, ready, teller).run()


class _Repartitioning:
    def __init__(
        self, spark: SparkSession, client: BlockingClient, connection: Connection, ready: Ready, teller: Teller
    ) -> None:
        self._spark, self._client, self._connection = spark, client, connection
        self._source, self._target, self._ready, self._teller = ready.source, ready.target, ready, teller
        self._job = _name(ready.source, ready.target)
        self._place = Place(client, connection, self._job, ready.source)

    def run(self) -> Repartitioned:
        rows, batches, done = self._copied()
        fingerprint = None
        if not done.step.verified:
            fingerprint = self._verified(done.step)
            release(self._client, self._target, self._source)
            self._place.ledger.note(done.step._replace(verified=True))
        places, moves = self._translated(done.step)
        left = groups.move(self._client, self._target.name, moves)
        now = History(self._client, self._source.name, self._source.partitions).ends
        coming = size(between(done.step.ends, now))
        return Repartitioned(
            self._target.name,
            self._ready.made,
            rows,
            batches,
            fingerprint,
            places,
            {group: offsets for group, offsets in moves.items() if group not in left},
            left,
            coming,
            self._job,
        )

    def _copied(self) -> tuple[int, int, Copied]:
        """Pass after pass, until one finds nothing new."""
        ends, rows, batches = self._ready.ends, 0, 0
        for _ in range(PASSES_MAX):
            self._teller.doing(f"{self._source.name} → {self._target.name}", size(between(self._ready.starts, ends)))
            copying = self._place.copying(self._plan, self._write, self._ready.rows_max, self._teller)
            done = copying.run(self._ready.starts, ends)
            rows, batches = rows + done.rows, batches + done.batches
            ends = History(self._client, self._source.name, self._source.partitions).ends
            if not between(done.step.ends, ends):
                break
        return rows, batches, done

    def _plan(self, what: Pass, rows_max: int) -> Iterator[Cut]:
        from levada.spark.jobs.order import cuts

        return cuts(self._read(between(what.starts, what.ends), PLACE), what, rows_max)

    def _write(self, step: Step) -> int:
        records = self._read(between(step.starts, step.ends))
        routed = repartitioned(records, self._target, step.since_ms)
        return write(routed, self._connection, self._target.name, sink=self._job, batch=step.number, epoch=step.epoch)

    def _read(self, ranges: Mapping[int, tuple[int, int]], columns: Sequence[str] | None = None) -> DataFrame:
        wanted: dict[str, Any] = {} if columns is None else {"columns": columns}
        return history(self._spark, self._connection, self._source.name, ranges, **wanted)

    def _begins(self, step: Step) -> Offsets:
        return {p: held[0] for p, held in step.passes.items()}

    def _verified(self, step: Step) -> Fingerprint:
        from levada.spark.jobs.verification import same

        self._teller.doing(f"comparing {self._source.name} with {self._target.name}")
        held = History(self._client, self._source.name, self._source.partitions)
        begins = self._begins(step)
        if lost := [p for p, begin in begins.items() if held.starts[p] > begin]:
            at = lost[0]
            raise NotTheSame(
                f"{self._source.name} has lost offsets {begins[at]} to {held.starts[at] - 1} of partition {at} to its retention while "
                f"it was copied, so the copy cannot be compared; raise retention.ms, delete {self._target.name}, and run again"
            )
        copy = History(self._client, self._target.name, self._target.partitions)
        theirs = history(self._spark, self._connection, self._target.name, between(copy.starts, copy.ends))
        ours = self._read(between(begins, step.ends))
        compacts = "compact" in self._source.setting("cleanup.policy")
        found, difference = same(ours, theirs, step.passes, compacts=compacts)
        if difference:
            raise NotTheSame(
                f"{self._target.name} is not what {self._source.name} is: {difference}. Nothing was switched; has somebody else "
                f"written to {self._target.name}? Delete it and run again"
            )
        return found

    def _translated(self, step: Step) -> tuple[list[Translated], dict[str, dict[int, int]]]:
        from levada.spark.jobs.order import in_order
        from levada.spark.jobs.routing import place
        from levada.spark.jobs.translation import translated

        committed = groups.committed(self._client, self._source.name, self._source.partitions)
        if not committed:
            return [], {}
        self._teller.doing("translating the places of " + ", ".join(committed))
        source = self._read(between(self._begins(step), step.ends), ("key", *PLACE))
        target, copy = self._target, History(self._client, self._target.name, self._target.partitions)
        placed = in_order(source, step.passes).withColumn(
            "target", place(target.router, target.partitions, target.keyless)
        )
        there = history(
            self._spark, self._connection, target.name, between(copy.starts, copy.ends), ("partition", "offset")
        )
        places = translated(placed, there, committed, copy.starts)
        standing = groups.committed(self._client, target.name, target.partitions)
        return places, advanced(places, standing)


def repartitioned(records: DataFrame, target: Topic, since_ms: Offsets) -> DataFrame:
    """The records of one batch as they are written: at their new partition, in order, each partition by one task."""
    from levada.spark.jobs.order import ORDER, in_order
    from levada.spark.jobs.routing import place

    placed = in_order(records, since_ms=since_ms).withColumn(
        "target", place(target.router, target.partitions, target.keyless)
    )
    sorted_there = placed.repartition("target").sortWithinPartitions("target", *ORDER[1:])
    return sorted_there.select("key", "value", "headers", "timestamp", sorted_there["target"].alias("partition"))
