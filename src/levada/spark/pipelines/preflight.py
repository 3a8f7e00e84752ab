"""What is looked at before a pipeline is started: the topics it names, and whether its sinks remember what its checkpoint does.

A checkpoint that was lost begins again at batch 0, and an older copy of it where it was, under numbers that the sinks have seen:
they would take new rows for rows they have. So a sink that is ahead of its checkpoint stops the start, and says what to do.
"""

from __future__ import annotations

from levada.errors import UnknownTopic, nearest
from levada.spark.pipelines.checkpoint import Checkpoint, begin_anew
from levada.spark.pipelines.declaration import Pipeline, Sink
from levada.spark.pipelines.errors import WrongCheckpoint
from levada.spark.pipelines.lakes import Lake
from levada.spark.pipelines.places import Places
from levada.spark.pipelines.tables import Table
from levada.spark.pipelines.topics import Topic
from levada.spark.sink.commit import Sinks
from levada.wire.blocking import BlockingClient


def check(pipeline: Pipeline, places: Places, epoch: int | None = None) -> int:
    """The epoch that it would run in: the checkpoint's, or a newer one that is asked for. UnknownTopic, WrongCheckpoint, Unreachable."""
    checkpoint = Checkpoint(places.checkpoint(pipeline.name))
    now = max(checkpoint.epoch, epoch or 0)
    planned = checkpoint.planned if now == checkpoint.epoch else -1
    if planned >= 0:
        checkpoint.check(pipeline)
    with BlockingClient(places.bootstrap, client_id="levada-pipelines") as client:
        _check_topics(pipeline, client)
        sinks = Sinks(client)
        for sink in pipeline.sinks:
            seen = _seen(pipeline, sink, places, now, sinks)
            if seen is not None and ahead(seen, (now, planned)):
                raise _forgotten(pipeline, sink, seen, checkpoint, planned)
    return now


def _check_topics(pipeline: Pipeline, client: BlockingClient) -> None:
    wanted = [name for source in pipeline.sources.values() for name in (source.name or "").split(",") if name]
    wanted += [sink.id for sink in pipeline.sinks if isinstance(sink, Topic)]
    known = [name for name, about in client.topics().items() if not about.is_internal]
    for name in wanted:
        if name.strip() not in known:
            raise UnknownTopic(
                f"pipeline {pipeline.name!r}: there is no topic {name!r}{nearest(name, known)}; "
                f"`levada topic create {name}` makes it".replace("?;", "?")
            )


def _seen(pipeline: Pipeline, sink: Sink, places: Places, epoch: int, sinks: Sinks) -> tuple[int, int] | None:
    """Epoch and batch that a sink has last; None where it has nothing, or does not count."""
    sink_id = pipeline.sink_id(sink)
    if isinstance(sink, Lake):
        batch = Table(places.table(sink.name), sink_id, epoch).last_batch()
        return None if batch is None else (epoch, batch)
    if sink.delivery == "at_least_once":
        return None
    found = sinks.last_committed(sink_id)
    return None if found is None else (found.epoch, found.batch)


def ahead(seen: tuple[int, int], planned: tuple[int, int]) -> bool:
    """Whether a sink has seen what the checkpoint has not planned; of both, the epoch and the last batch, −1 for none."""
    return seen > planned


def _forgotten(
    pipeline: Pipeline, sink: Sink, seen: tuple[int, int], checkpoint: Checkpoint, planned: int
) -> WrongCheckpoint:
    epoch, batch = seen
    if planned < 0:
        what = (
            "knows nothing: was it deleted, or is this another --home (--spark-home of `levada up`) or another cluster?"
        )
    else:
        what = f"knows those up to {planned}: is it an older copy, or did the power fail?"
    return WrongCheckpoint(
        f"sink {sink.id!r} of pipeline {pipeline.name!r} has batches up to {batch} of epoch {epoch}, of which the checkpoint "
        f"in {checkpoint.directory} {what} Bring it back, or {begin_anew(pipeline.name)}"
    )
