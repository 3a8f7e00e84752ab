"""A topic with another number of partitions, more or fewer: a copy in a new topic, verified, with the groups' places in it.

Kafka's protocol cannot rename a topic or take partitions from it, and adding some leaves every record where it is. So the records are
copied: routed anew, in one order for all partitions (`order.py`), batch by batch (`copying.py`). What comes while it runs is taken in
further passes. The source is only read: who produces and consumes moves over when the copy is whole, and not before.

Until the job is told to finish, nothing is removed from the target, by retention or compaction: every run finds there all that earlier
ones have written. The source may lose records all the while; what is gone before it was copied is not copied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from levada.errors import InvalidRequest
from levada.spark.jobs.extent import History, Offsets, between, size
from levada.spark.jobs.frames import Connection
from levada.spark.jobs.ledger import Step, noted
from levada.spark.jobs.running import Teller, batch_rows, job_name
from levada.spark.jobs.topics import HELD, Topic, find, has_records, hold, is_held, make, need, other_than
from levada.spark.jobs.translation import Translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.spark.jobs.checksum import Fingerprint
    from levada.wire.blocking import BlockingClient


@dataclass(frozen=True, kw_only=True)
class Repartition:
    """What is wanted. InvalidRequest where it contradicts itself."""

    topic: str
    partitions: int
    into: str | None = None
    batch_rows: int | None = None
    #: Give the target the source's settings, once it has everything and all groups are placed.
    finish: bool = False

    def __post_init__(self) -> None:
        other_than(self.topic, self.into, "--into")

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
    finish: bool = False
    #: It was finished before, and nothing has come since.
    finished: bool = False


class Repartitioned(NamedTuple):
    """What was done. `coming`: records that came to the source since."""

    target: str
    made: bool
    records: int
    batches: int
    #: Of what was compared now; None where all was compared before.
    fingerprint: Fingerprint | None
    groups: Sequence[Translated]
    #: Group → partition → offset: what was committed now.
    moved: Mapping[str, Offsets]
    #: Groups that have members, and could not be moved.
    left: Sequence[str]
    coming: int
    job: str
    #: The target has the source's settings.
    finished: bool


def prepare(client: BlockingClient, wanted: Repartition) -> Ready:
    """Look at everything, and make the target where it is missing. Nothing has been made where this raises."""
    source = need(client, wanted.topic)
    found = History(client, source.name, source.partitions)
    target = find(client, wanted.target)
    if target is not None and target.partitions != wanted.partitions:
        raise InvalidRequest(
            f"{target.name} is there, with {target.partitions} partitions, not {wanted.partitions}: name another with --into"
        )
    last = None if target is None else noted(client, name_of(source, target), source.name)
    if target is not None and last is None and has_records(client, target):
        raise InvalidRequest(
            f"{target.name} is there, and has records that this job has not written: name another with --into"
        )
    finished = target is not None and last is not None and not is_held(target)
    if target is not None and last is not None and finished:
        refuse_more(source.name, target.name, last, found.ends)
    rows_max = batch_rows(client, source, wanted.batch_rows)
    made = target is None
    if target is None:
        target = make(client, wanted.target, source, wanted.partitions, HELD)
    elif last is None and not is_held(target):
        target = hold(client, target)
    return Ready(source, target, made, found.starts, found.ends, rows_max, wanted.finish, finished)


def refuse_more(source: str, target: str, last: Step, ends: Offsets) -> None:
    """InvalidRequest where something is to be done in a target that may have lost records to its own settings."""
    if not last.is_verified:
        raise InvalidRequest(
            f"{target} is not whole, and somebody has changed settings that it must have until it is ({', '.join(HELD)}): it may have "
            "lost records. Delete it, and run again"
        )
    came = size(between({p: last.ends.get(p, 0) for p in ends}, ends))
    if came:
        begin = json.dumps({str(p): last.ends.get(p, 0) for p in sorted(ends)})
        raise InvalidRequest(
            f"{target} is finished: nothing more is copied to it and nobody is placed in it. {came:,} records came to {source} since; to "
            f"take them over: levada job replay {source} {target} --from '{begin}' --keep-timestamps"
        )


def name_of(source: Topic, target: Topic) -> str:
    """The job of these two."""
    return job_name("repartition", source, target)


def repartition(
    spark: SparkSession, client: BlockingClient, connection: Connection, ready: Ready, teller: Teller
) -> Repartitioned:
    """Copy what is not copied, verify, and translate the groups' places. NotTheSame."""
    from levada.spark.jobs.repartitioning import Repartitioning

    if ready.finished:
        job = name_of(ready.source, ready.target)
        return Repartitioned(ready.target.name, False, 0, 0, None, [], {}, [], 0, job, True)
    return Repartitioning(spark, client, connection, ready, teller).run()
