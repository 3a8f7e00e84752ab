"""The latest record of each key, as it was at an offset or a time: as files, as a Delta table, or as a topic."""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from levada.errors import InvalidRequest
from levada.spark.jobs.extent import History, Offsets, Where, between, size
from levada.spark.jobs.frames import RECORD, Connection, history, write
from levada.spark.jobs.running import Teller, job_name
from levada.spark.jobs.topics import Topic, find, make, need, other_than

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from levada.wire.blocking import BlockingClient

Form = Literal["parquet", "delta", "csv"]
FORMS: Final[tuple[Form, ...]] = ("parquet", "delta", "csv")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What is wanted: one of `to` and `into`. InvalidRequest where it contradicts itself."""

    topic: str
    at: Where = "latest"
    to: str | None = None
    form: Form | None = None
    into: str | None = None

    def __post_init__(self) -> None:
        if (self.to is None) == (self.into is None):
            raise InvalidRequest("one of --to PATH and --into TOPIC is needed")
        other_than(self.topic, self.into, "--into")
        if self.form is not None and self.form not in FORMS:
            raise InvalidRequest(f"--format {self.form!r}: must be {', '.join(FORMS)}")


class Ready(NamedTuple):
    """A snapshot that can be made: everything was looked at."""

    source: Topic
    target: Topic | None
    made: bool
    path: str | None
    form: Form
    starts: Offsets
    ends: Offsets


class Snapshotted(NamedTuple):
    """What was done. `at` is the offset behind the last record that counts, by partition."""

    keys: int
    where: str
    form: str
    made: bool
    at: Offsets


def form_of(path: str, said: Form | None) -> Form:
    """As said, or as the name ends."""
    if said is not None:
        return said
    ending = path.rstrip("/").rpartition(".")[2].lower()
    return next((form for form in FORMS if form == ending), "parquet")


def refuse_what_is_there(path: str, form: Form) -> None:
    """InvalidRequest where a snapshot would be added to something, or be taken for one that was made before."""
    is_there = "://" not in path and os.path.lexists(path)
    if not is_there and form == "delta":
        from deltalake import DeltaTable

        is_there = DeltaTable.is_deltatable(path)
    if is_there:
        raise InvalidRequest(f"--to {path}: it is there already; name another place, or remove it")


def prepare(client: BlockingClient, wanted: Snapshot) -> Ready:
    """Look at everything. Nothing has been made where this raises."""
    source = need(client, wanted.topic)
    found = History(client, source.name, source.partitions)
    ends = found.resolve(wanted.at, "--at")
    if wanted.to is not None:
        form = form_of(wanted.to, wanted.form)
        refuse_what_is_there(wanted.to, form)
        return Ready(source, None, False, wanted.to, form, found.starts, ends)
    assert wanted.into is not None
    target = find(client, wanted.into)
    made = target is None
    if target is None:
        target = make(client, wanted.into, source, source.partitions, {"cleanup.policy": "compact"})
    return Ready(source, target, made, None, "parquet", found.starts, ends)


def snapshot(
    spark: SparkSession, client: BlockingClient, connection: Connection, ready: Ready, teller: Teller
) -> Snapshotted:
    """Make it. It is all there, or not at all."""
    from levada.spark.jobs.latest import snapshot as latest

    ranges = between(ready.starts, ready.ends)
    teller.doing(f"the latest of each key of {ready.source.name}", size(ranges))
    rows = latest(history(spark, connection, ready.source.name, ranges, RECORD)).persist()
    try:
        keys = rows.count()
        if ready.path is not None:
            _written(rows, ready.path, ready.form)
            return Snapshotted(keys, ready.path, ready.form, True, ready.ends)
        assert ready.target is not None
        job = job_name("snapshot", ready.source, ready.target, at=sorted(ready.ends.items()))
        if keys:
            write(rows.drop("partition", "offset"), connection, ready.target.name, sink=job, batch=0)
        return Snapshotted(keys, ready.target.name, "topic", ready.made, ready.ends)
    finally:
        rows.unpersist()


def _written(rows: DataFrame, path: str, form: Form) -> None:
    """Under another name first, where that can be done: what lies at the path is whole."""
    if form == "delta":
        from levada.spark.pipelines.tables import Table

        refuse_what_is_there(path, form)
        Table(path, "levada.snapshot").append(rows.select(*RECORD), 0)
        return
    if "://" in path:
        _files(rows, path, form)
        return
    place = Path(path).absolute()
    unfinished = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}")
    try:
        _files(rows, str(unfinished), form)
        unfinished.rename(place)
    except BaseException:
        rows.sparkSession.sparkContext.cancelAllJobs()  # or its tasks would make files there again
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _files(rows: DataFrame, path: str, form: Form) -> None:
    if form == "parquet":
        rows.select(*RECORD).write.mode("error").parquet(path)
        return
    rows.selectExpr(*_as_text()).write.mode("error").option("header", True).csv(path)


def _as_text() -> list[str]:
    """Keys and values as text; bytes that are none as base64 after "base64:". CSV has no headers."""
    text = "if(is_valid_utf8(cast({0} as string)), cast({0} as string), concat('base64:', base64({0}))) as {0}"
    return [text.format("key"), text.format("value"), "partition", "offset", "timestamp"]
