"""The audit of a topic: what is measured, and in which order."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from levada.spark.fetch import Range
from levada.spark.history import History as Kept
from levada.spark.history import history_of
from levada.spark.jobs.audit.figures import (
    KINDS,
    UNARCHIVED,
    Duplicates,
    Figures,
    Hole,
    Keys,
    Partition,
    Slot,
)
from levada.spark.jobs.audit.tally import Tally
from levada.spark.jobs.extent import History, Offsets, Where, between, size
from levada.spark.jobs.first import Identity, identity
from levada.spark.jobs.frames import PLACE, Connection, history
from levada.spark.jobs.running import Teller
from levada.spark.jobs.topics import Topic, need
from levada.spark.losses import below
from levada.spark.split import split
from levada.wire.answers import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.spark.jobs.audit.scan import Part, Seen
    from levada.wire.blocking import BlockingClient

#: Of each kind of hole, so many are told.
_HOLES: Final = 5
#: A timeline has at most so many slots, each one of these long.
_SLOTS: Final = 120
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS: Final = (
    *(count * _SECOND_MS for count in (1, 2, 5, 10, 15, 30)),
    *(count * _MINUTE_MS for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR_MS for count in (1, 2, 6, 12)),
    *(count * _DAY_MS for count in (1, 2, 7, 30)),
)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What is wanted. Without `by`, repeats are told as the topic's own dedup tells them, and by the message's id where it has none.

    InvalidRequest where it contradicts itself.
    """

    topic: str
    start: Where = "earliest"
    end: Where = "latest"
    by: str | None = None

    def __post_init__(self) -> None:
        if self.by is not None:
            identity(self.by)


class Ready(NamedTuple):
    """An audit that can begin."""

    source: Topic
    kept: Kept
    by: Identity
    #: How near in time repeats must lie to have been seen by the topic's dedup; None where it has none of this kind.
    window_ms: int | None
    starts: Offsets
    log_starts: Offsets
    ends: Offsets
    #: What lies below the log, and is not in the archive either.
    unarchived: Sequence[Hole] = ()
    #: The first offset that there is, in the log or the archive, by partition.
    firsts: Mapping[int, int] = {}


def prepare(client: BlockingClient, wanted: Audit) -> Ready:
    """Look at everything."""
    source = need(client, wanted.topic)
    own = source.setting("levada.dedup")
    said = wanted.by or (own if own != "off" else "id")
    window_ms = int(source.setting("levada.dedup.window.ms")) if said == own else None
    found = History(client, source.name, source.partitions)
    starts, ends = found.resolve(wanted.start, "--from"), found.resolve(wanted.end, "--to")
    ends = {p: max(starts[p], ends[p]) for p in starts}
    kept = history_of(client, [source.name])
    lost = unarchived(source.name, kept, starts, found.log_starts, ends)
    return Ready(source, kept, identity(said), window_ms, starts, found.log_starts, ends, lost, found.starts)


def unarchived(topic: str, kept: Kept, starts: Offsets, log_starts: Offsets, ends: Offsets) -> list[Hole]:
    """What was deleted from the log before it was archived."""
    holes = []
    for p, start in starts.items():
        if start < log_starts[p]:
            at = TopicPartition(topic, p)
            lost = below(at, start, ends[p], log_starts[p], kept.held(at, up_to=log_starts[p]))
            holes += [Hole(UNARCHIVED, p, one.start, one.end) for one in lost if one.end is not None]
    return holes


def audit(spark: SparkSession, connection: Connection, ready: Ready, teller: Teller) -> Figures:
    """Measure everything. What retention deletes meanwhile is passed over."""
    from levada.spark.jobs.audit.parcels import buckets_for
    from levada.spark.jobs.audit.scan import Wanted, scan

    began = time.monotonic()
    source, offsets = ready.source, size(between(ready.starts, ready.ends))
    teller.doing(f"records, gaps, keys, repeats by {ready.by.what}", offsets)
    tasks = spark.sparkContext.defaultParallelism
    by = ready.by if ready.by.is_bytes else None
    found = scan(
        spark,
        connection.cluster,
        ready.kept,
        Wanted(parts(ready, tasks), source.router, source.partitions, by, ready.window_ms, buckets_for(offsets)),
    )
    repeated = found.duplicates if by is not None else _told_by_spark(spark, connection, ready, teller)
    return figures(ready, connection.cluster.bootstrap, found.seen, found.keys, repeated, time.monotonic() - began)


def _told_by_spark(spark: SparkSession, connection: Connection, ready: Ready, teller: Teller) -> Duplicates:
    """Repeats by something that only Spark can take out of a record: a second read."""
    from levada.spark.jobs.audit.duplicates import duplicates
    from levada.spark.jobs.first import needed

    ranges = between(ready.starts, ready.ends)
    teller.doing(f"repeats by {ready.by.what}", size(ranges))
    told = history(spark, connection, ready.source.name, ranges, needed(ready.by, PLACE), whole=False)
    return duplicates(told, ready.by, ready.window_ms)


def parts(ready: Ready, tasks: int) -> list[Part]:
    """What each task reads: below the start of the log from the archive, else from the log."""
    from levada.spark.jobs.audit.scan import Part

    found = []
    for archived in (True, False):
        ranges = []
        for p, (start, end) in between(ready.starts, ready.ends).items():
            edge = min(max(ready.log_starts[p], start), end)
            low, high = (start, edge) if archived else (edge, end)
            if low < high:
                ranges.append(Range(ready.source.name, p, low, high))
        found += [Part(one, archived) for one in split(ranges, parts_min=tasks)]
    return found


def figures(
    ready: Ready, bootstrap: str, seen: Sequence[Seen], keys: Keys, repeated: Duplicates, seconds: float
) -> Figures:
    """All that was found, put together."""
    source = ready.source
    whole = Tally()
    for one in seen:
        whole.merge(one.tally)
    slot_ms, slots = timeline(whole.times.counts, whole.times.slot_ms)
    return Figures(
        topic=source.name,
        bootstrap=bootstrap,
        at_ms=round(time.time() * 1000),
        router=source.router,
        keyless=source.keyless,
        cleanup=source.setting("cleanup.policy"),
        dedup=source.setting("levada.dedup"),
        partitions=[_partition(ready, p, [one for one in seen if one.partition == p]) for p in sorted(ready.ends)],
        holes=some([*(hole for one in seen for hole in one.examples), *ready.unarchived]),
        keys=keys,
        duplicates=repeated,
        slot_ms=slot_ms,
        timeline=slots,
        seconds=seconds,
    )


def _partition(ready: Ready, p: int, seen: Sequence[Seen]) -> Partition:
    tally = Tally()
    for one in seen:
        tally.merge(one.tally)
    holes = {kind: sum(one.holes[kind] for one in seen) for kind in KINDS}
    holes[UNARCHIVED] = sum(hole.end - hole.start for hole in ready.unarchived if hole.partition == p)
    return Partition(
        p,
        ready.starts[p],
        ready.log_starts[p],
        ready.ends[p],
        tally.records,
        sum(one.tally.records for one in seen if one.archived),
        tally.bytes,
        tally.keyless,
        tally.tombstones,
        tally.first_ms,
        tally.last_ms,
        tally.checksum,
        tuple(tally.sizes),
        holes,
        min(ready.starts[p], ready.firsts.get(p, ready.starts[p])),
    )


def timeline(counts: Mapping[int, int], slot_ms: int) -> tuple[int, list[Slot]]:
    """(how long a slot is, the slots with records, in order): few enough to be drawn."""
    if not counts:
        return slot_ms, []
    covered = max(counts) - min(counts) + slot_ms
    step = next((one for one in _STEPS if one >= slot_ms and covered // one < _SLOTS), -(-covered // _SLOTS))
    slots: dict[int, int] = {}
    for begin, count in counts.items():
        at = begin // step * step
        slots[at] = slots.get(at, 0) + count
    return step, [Slot(at, slots[at]) for at in sorted(slots)]


def some(found: Sequence[Hole]) -> list[Hole]:
    """The first few of each kind."""
    ordered = sorted(found, key=lambda hole: hole[1:])
    return [hole for kind in KINDS for hole in [one for one in ordered if one.kind == kind][:_HOLES]]
