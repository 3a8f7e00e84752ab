"""A reset of a pipeline: what it means, before it is done, and the wish for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from levada.cli.pipeline_told import no_runner, sink_name
from levada.cli.session import count
from levada.errors import InvalidRequest, LevadaError

if TYPE_CHECKING:
    from levada.spark.runner.board import Ledger
    from levada.spark.runner.records import Actual, Wanted
    from levada.wire.blocking import BlockingClient


def consequences(name: str, actual: Actual, epoch: int, ledger: Ledger, client: BlockingClient) -> Iterator[str]:
    """A line for each thing that is going to happen."""
    from levada.spark.runner.records import State

    yield f"A reset of {name} begins epoch {epoch}:"
    yield f"- its checkpoint is deleted, with how far it came{_came(actual)}: {actual.checkpoint or 'where it is, if it has one'}"
    for source in actual.sources:
        yield f"- {_reading(source, client)}"
    for sink in actual.sinks:
        held = _held(sink, client)
        yield f"- what it makes of that is written into {sink_name(sink)} beside what is there{held}, also what it wrote before"
    if name in ledger.wanted and not ledger.wanted[name].run:
        yield "- it is stopped, and stays so until it is started"
    elif said := no_runner(ledger):
        yield f"- it is done when a runner starts. {said}"
    elif actual.state is State.RUNNING:
        yield "- it is running: it is stopped first, and started again"
    else:
        yield f"- it is {actual.state}, and is started"


def begun_anew(name: str, held: Wanted, epoch: int) -> Wanted:
    """What is wanted from now on, with this epoch. InvalidRequest where another reset came first: what was told of this one is not so."""
    if held.epoch >= epoch:
        raise InvalidRequest(f"{name} has been reset meanwhile, to epoch {held.epoch}: nothing was done")
    return replace(held, epoch=epoch, asked=held.asked + 1)


def _came(actual: Actual) -> str:
    batch, state = actual.progress.get("batch", -1), actual.progress.get("state_rows", 0)
    parts = [f"batch {batch:,}"] if batch >= 0 else []
    parts += [f"{count(state, 'row')} of state"] if state else []
    return f" ({', '.join(parts)})" if parts else ""


def _reading(source: dict[str, Any], client: BlockingClient) -> str:
    topic, starting = str(source.get("topic")), str(source.get("starting"))
    if starting == "latest":
        return f"it reads what comes into {topic} from then on; what is there now is passed over"
    bounds = _bounds(topic, client)
    if bounds is None:
        return f"it reads {topic} again from {starting}"
    partitions, records = bounds
    there = f"about {count(records, 'record')} in {count(partitions, 'partition')} are there"
    return f"it reads {topic} again from {starting}: {there}"


def _held(sink: dict[str, Any], client: BlockingClient) -> str:
    bounds = _bounds(str(sink["topic"]), client) if "topic" in sink else None
    return "" if bounds is None else f" (about {count(bounds[1], 'record')})"


def _bounds(topic: str, client: BlockingClient) -> tuple[int, int] | None:
    """(partitions, offsets that it holds); None where the broker does not say, as with a pattern."""
    from levada.wire.answers import EARLIEST, LATEST, TopicPartition

    try:
        names = topic.split(",")
        found = client.topics(names)
        places = [TopicPartition(name, one.partition) for name in names for one in found[name].partitions]
        low = client.list_offsets(dict.fromkeys(places, EARLIEST))
        high = client.list_offsets(dict.fromkeys(places, LATEST))
    except (LevadaError, KeyError):
        return None
    return len(places), sum(high[at].offset - low[at].offset for at in places)
