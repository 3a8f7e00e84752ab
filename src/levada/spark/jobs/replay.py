"""Records of one topic written to another once more: a range of offsets or of time, as fast as may be or at a given rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from levada.errors import InvalidRequest
from levada.spark.jobs.extent import History, Offsets, Ranges, Where, between, size
from levada.spark.jobs.frames import Connection, what_is_left, write
from levada.spark.jobs.ledger import Step, noted
from levada.spark.jobs.remains import Remains, refuse_lost
from levada.spark.jobs.running import Place, Teller, batch_rows, job_name
from levada.spark.jobs.topics import Topic, find, make, need, other_than
from levada.spark.losses import Lost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from levada.wire.blocking import BlockingClient


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What is wanted. InvalidRequest where it contradicts itself."""

    source: str
    target: str
    start: Where = "earliest"
    end: Where = "latest"
    #: Records a second, at most.
    rate: float | None = None
    keep_partitions: bool = False
    keep_timestamps: bool = False
    #: Begin anew, although it was done before.
    again: bool = False
    batch_rows: int | None = None
    #: Go on behind what was deleted before it was copied.
    skip_lost: bool = False

    def __post_init__(self) -> None:
        other_than(self.source, self.target, "DEST")
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise InvalidRequest(f"--rate {self.rate:g}: must be more than 0 records a second")


class Ready(NamedTuple):
    """A replay that can begin: everything was looked at."""

    wanted: Replay
    source: Topic
    target: Topic
    made: bool
    starts: Offsets
    ends: Offsets
    rows_max: int


class Replayed(NamedTuple):
    """What was done: `records` were written, and the job has been from `starts` to `ends` in all."""

    records: int
    batches: int
    made: bool
    job: str
    starts: Offsets
    ends: Offsets
    #: What this run has passed over, since it was deleted before it was copied.
    lost: Sequence[Lost] = ()


def replayed(records: DataFrame, *, keep_partitions: bool, keep_timestamps: bool) -> DataFrame:
    """As they are written again: routed anew and stamped anew, unless they are to keep what they had."""
    kept = [*(["partition"] if keep_partitions else []), *(["timestamp"] if keep_timestamps else [])]
    return records.select("key", "value", "headers", *kept)


def prepare(client: BlockingClient, wanted: Replay) -> Ready:
    """Look at everything, and make the target where it is missing. Nothing has been made where this raises."""
    source = need(client, wanted.source)
    found = History(client, source.name, source.partitions)
    starts, ends = found.resolve(wanted.start, "--from"), found.resolve(wanted.end, "--to")
    behind = [p for p in starts if starts[p] > ends[p]]
    if behind and not any(starts[p] < ends[p] for p in starts):
        at = behind[0]
        raise InvalidRequest(f"--from is behind --to: partition {at} would be read from {starts[at]} to {ends[at]}")
    ends = {p: max(starts[p], ends[p]) for p in starts}
    target = find(client, wanted.target)
    job = name_of(wanted, source, target) if target is not None else None
    has_begun = job is not None and not wanted.again and noted(client, job, source.name) is not None
    if starts == ends and found.starts != found.ends and not has_begun:
        held = ", ".join(f"{p}: {found.starts[p]:,} to {found.ends[p]:,}" for p in sorted(starts))
        raise InvalidRequest(f"there is no record between --from and --to; {source.name} has offsets {held}")
    if target is not None and wanted.keep_partitions and target.partitions < source.partitions:
        raise InvalidRequest(
            f"--keep-partitions: {target.name} has {target.partitions} partitions and {source.name} {source.partitions}; "
            "it needs as many at least"
        )
    if not wanted.skip_lost and not wanted.again:
        refuse_lost(client, found, source, job, starts, ends)
    rows_max = batch_rows(client, source, wanted.batch_rows)
    made = target is None
    if target is None:
        target = make(client, wanted.target, source, source.partitions)
    return Ready(wanted, source, target, made, starts, ends, rows_max)


def _kept(wanted: Replay) -> dict[str, bool]:
    return {"keep_partitions": wanted.keep_partitions, "keep_timestamps": wanted.keep_timestamps}


def name_of(wanted: Replay, source: Topic, target: Topic) -> str:
    """Under which it is known again."""
    return job_name("replay", source, target, start=wanted.start, end=wanted.end, **_kept(wanted))


def replay(
    spark: SparkSession, client: BlockingClient, connection: Connection, ready: Ready, teller: Teller, **clock: Any
) -> Replayed:
    """Do it, or go on with it. Each partition's order is kept."""
    wanted, source, target = ready.wanted, ready.source, ready.target
    kept = _kept(wanted)
    job = name_of(wanted, source, target)
    place = Place(client, connection, job, source)
    epoch = place.next_epoch() if wanted.again else None

    remains = Remains(lambda: History(client, source.name, source.partitions), teller, skip=wanted.skip_lost)

    def written(step: Step) -> int:
        def write_left(ranges: Sequence[Ranges]) -> int:
            if not ranges:
                return 0
            records = replayed(what_is_left(spark, connection, source.name, ranges), **kept)
            return write(records, connection, target.name, sink=job, batch=step.number, epoch=step.epoch)

        return remains.written(step, write_left)

    teller.doing(f"{source.name} → {target.name}", size(between(ready.starts, ready.ends)))
    copying = place.copying(remains.plan, written, ready.rows_max, teller, rate=wanted.rate, **clock)
    done = copying.run(ready.starts, ready.ends, epoch=epoch)
    begun = {p: held[0] for p, held in done.step.passes.items()}
    return Replayed(done.rows, done.batches, ready.made, job, begun, done.step.ends, remains.lost)
