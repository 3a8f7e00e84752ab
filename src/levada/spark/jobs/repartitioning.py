"""A run of the job that repartitions: the copying, the comparing and the placing of groups.

The source is read while it loses records to retention and compaction: what begins later than it did is read from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from levada.errors import LevadaError
from levada.spark.jobs import groups
from levada.spark.jobs.copying import Copied, Cut, Pass
from levada.spark.jobs.extent import History, Offsets, between, size, steadily
from levada.spark.jobs.frames import PLACE, RECORD, Connection, history, write
from levada.spark.jobs.ledger import Step
from levada.spark.jobs.repartition import Ready, Repartitioned, name_of
from levada.spark.jobs.running import Place, Teller
from levada.spark.jobs.topics import Topic, release
from levada.spark.jobs.translation import Translated, advanced, is_behind, mark, translated, undone
from levada.wire.answers import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from levada.spark.jobs.checksum import Fingerprint
    from levada.wire.blocking import BlockingClient

#: While the source grows faster than this many passes can follow, somebody has to stop producing first.
PASSES_MAX: Final = 5


class NotTheSame(LevadaError):
    """The copy is not what the source is; nobody was moved to it."""


class Repartitioning:
    """One run."""

    def __init__(
        self, spark: SparkSession, client: BlockingClient, connection: Connection, ready: Ready, teller: Teller
    ) -> None:
        self._spark, self._client, self._connection = spark, client, connection
        self._source, self._target, self._ready, self._teller = ready.source, ready.target, ready, teller
        self._job = name_of(ready.source, ready.target)
        self._place = Place(client, connection, self._job, ready.source)

    def run(self) -> Repartitioned:
        rows, batches, done = self._copied()
        step, fingerprint = done.step, None
        if not step.is_verified:
            fingerprint = self._verified(step)
        places, moves, marks = steadily(self._held, lambda held: self._translated(step, held))
        left = groups.move(self._client, self._target.name, moves, marks)
        coming = size(between(step.ends, self._held().ends))
        finished = self._ready.finish and not coming and not left
        if finished:
            release(self._client, self._target, self._source)
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
            finished,
        )

    def _copied(self) -> tuple[int, int, Copied]:
        """Pass after pass, until one finds nothing new."""
        ends, rows, batches = self._ready.ends, 0, 0
        for _ in range(PASSES_MAX):
            self._teller.doing(f"{self._source.name} → {self._target.name}", size(between(self._ready.starts, ends)))
            copying = self._place.copying(self._plan, self._write, self._ready.rows_max, self._teller, all_passes=True)
            done = copying.run(self._ready.starts, ends)
            rows, batches = rows + done.rows, batches + done.batches
            ends = self._held().ends
            if not between(done.step.ends, ends):
                break
        return rows, batches, done

    def _plan(self, what: Pass, rows_max: int) -> Iterator[Cut]:
        from levada.spark.jobs.order import cuts

        def planned(held: History) -> list[Cut]:
            return list(cuts(self._read(_left(what.starts, what.ends, held), PLACE), what, rows_max))

        return iter(steadily(self._held, planned))

    def _write(self, step: Step) -> int:
        def written(held: History) -> int:
            routed = repartitioned(self._read(_left(step.starts, step.ends, held)), self._target, step.since_ms)
            return write(
                routed, self._connection, self._target.name, sink=self._job, batch=step.number, epoch=step.epoch
            )

        return steadily(self._held, written)

    def _read(
        self, ranges: Mapping[int, tuple[int, int]], columns: Sequence[str] = RECORD, *, whole: bool = True
    ) -> DataFrame:
        return history(self._spark, self._connection, self._source.name, ranges, columns, whole=whole)

    def _held(self) -> History:
        """What the source has now."""
        return History(self._client, self._source.name, self._source.partitions)

    def _verified(self, step: Step) -> Fingerprint:
        """Compare what was not compared before, and note it down. NotTheSame."""
        self._teller.doing(f"comparing {self._source.name} with {self._target.name}")
        copy = History(self._client, self._target.name, self._target.partitions)
        since = {**copy.starts, **self._place.ledger.compared(self._target.name)}
        theirs = history(self._spark, self._connection, self._target.name, between(since, copy.ends))
        found, difference = self._compared(step, theirs)
        if difference:
            raise NotTheSame(
                f"{self._target.name} is not what {self._source.name} is: {difference}. Nothing was switched; has somebody else "
                f"written to {self._target.name}? Delete it and run again"
            )
        compared = {TopicPartition(self._target.name, p): end for p, end in copy.ends.items()}
        self._place.ledger.note(step._replace(verified=step.passes_done), compared)
        return found

    def _compared(self, step: Step, theirs: DataFrame) -> tuple[Fingerprint, str]:
        from levada.spark.jobs.verification import same, within

        begins, compacts = step.verified_ends, "compact" in self._source.setting("cleanup.policy")

        def loses(held: History) -> bool:
            """Whether the source may lack what was copied; compaction takes a key's latest record only when another has come."""
            return between(begins, held.starts) != {} or (compacts and between(step.ends, held.ends) != {})

        if not loses(self._held()):
            try:
                found, difference = same(self._read(between(begins, step.ends)), theirs, step.passes, compacts=compacts)
            except Exception:
                if not loses(self._held()):
                    raise
            else:
                if not difference or not loses(self._held()):
                    return found, difference
        ours = self._read(_left(begins, step.ends, self._held()), whole=False)
        return within(ours, theirs)

    def _translated(
        self, step: Step, held: History
    ) -> tuple[Sequence[Translated], dict[str, dict[int, int]], dict[str, str]]:
        """(places, what of them is to be committed, with which mark)."""
        from levada.spark.jobs.routing import place

        committed = groups.committed(self._client, self._source.name, self._source.partitions)
        if not committed:
            return [], {}, {}
        self._teller.doing("translating the places of " + ", ".join(committed))
        behind = {g for g, offsets in committed.items() if is_behind(offsets, step.begins, held.starts, step.ends)}
        others = {group: offsets for group, offsets in committed.items() if group not in behind}
        target, copy = self._target, History(self._client, self._target.name, self._target.partitions)
        ours = self._read(undone(others.values(), _latest(step.begins, held.starts), step.ends)).withColumn(
            "target", place(target.router, target.partitions, target.keyless)
        )
        ends = {p: self._place.ledger.compared(target.name).get(p, start) for p, start in copy.starts.items()}
        theirs = history(self._spark, self._connection, target.name, between(copy.starts, ends))
        places = translated(ours, theirs, others, copy.starts, behind)
        if places.missing:
            group, records = next(iter(places.missing.items()))
            raise NotTheSame(
                f"{target.name} lacks {records:,} records of {self._source.name} that group {group} has not done; nobody was moved. "
                "Delete it and run again"
            )
        marks = {group: mark(offsets) for group, offsets in committed.items()}
        standing = groups.standing(self._client, target.name, target.partitions)
        return places.found, advanced(places.found, standing, marks), marks


def _latest(one: Offsets, other: Offsets) -> Offsets:
    return {p: max(offset, other.get(p, offset)) for p, offset in one.items()}


def _left(starts: Offsets, ends: Offsets, held: History) -> dict[int, tuple[int, int]]:
    """What is still there of it."""
    return between(_latest(starts, held.starts), ends)


def repartitioned(records: DataFrame, target: Topic, since_ms: Offsets) -> DataFrame:
    """The records of one batch as they are written: at their new partition, in order, each partition by one task."""
    from levada.spark.jobs.order import ORDER, in_order
    from levada.spark.jobs.routing import place

    placed = in_order(records, since_ms=since_ms).withColumn(
        "target", place(target.router, target.partitions, target.keyless)
    )
    sorted_there = placed.repartition("target").sortWithinPartitions("target", *ORDER[1:])
    return sorted_there.select("key", "value", "headers", "timestamp", sorted_there["target"].alias("partition"))
