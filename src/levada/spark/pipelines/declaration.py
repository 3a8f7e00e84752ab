"""What a pipeline is: pure functions over frames, and where their rows come from and go to.

    @pipeline(
        source=topic("orders", format="json", schema="id STRING, user STRING, amount DOUBLE, at TIMESTAMP"),
        sink=[topic("large-orders", key="user"), lake("large-orders")],
        trigger="10 seconds",
    )
    def large_orders(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 1000")

Calling `large_orders(frame)` just calls the function: a unit test hands it a static frame.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from levada.errors import nearest
from levada.spark.options.sink import SINK_ID_LENGTH_MAX
from levada.spark.pipelines.errors import WrongDeclaration
from levada.spark.pipelines.lakes import Lake
from levada.spark.pipelines.topics import Topic
from levada.spark.pipelines.triggers import Trigger, trigger_of
from levada.spark.session import STATE_STORES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Sink = Topic | Lake
Mode = Literal["append", "update", "complete"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
TRIGGER: Final = "1 second"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """See `pipeline`."""

    name: str
    sources: Mapping[str, Topic]
    sinks: tuple[Sink, ...]
    function: Callable[..., DataFrame]
    trigger: Trigger
    mode: Mode | None = None
    state: str = "rocksdb"
    partitions: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    #: Where it was declared.
    file: str = ""
    line: int = 0

    def __call__(self, *frames: DataFrame, **named: DataFrame) -> DataFrame:
        """The function itself."""
        return self.function(*frames, **named)

    @property
    def about(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def sink_id(self, sink: Sink) -> str:
        """Under which the sink's batches are remembered. Names have no slash in them, so no other pipeline's sink is called so."""
        return f"{self.name}/{sink.id}"


#: Where pipelines are put down while a file is loaded.
_declared: ContextVar[list[Pipeline] | None] = ContextVar("declared", default=None)


@contextmanager
def collecting() -> Iterator[list[Pipeline]]:
    """All that is declared meanwhile, in order; also what is declared again under the same name."""
    found: list[Pipeline] = []
    token = _declared.set(found)
    try:
        yield found
    finally:
        _declared.reset(token)


def pipeline(
    *,
    source: Topic | Mapping[str, Topic],
    sink: Sink | Sequence[Sink],
    trigger: str = TRIGGER,
    name: str | None = None,
    mode: Mode | None = None,
    state: str = "rocksdb",
    partitions: int | None = None,
    conf: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., DataFrame]], Pipeline]:
    """Declare a function of frames a pipeline. WrongDeclaration, before any Spark is started.

    - `source`: one topic, or several by the names of the function's parameters.
    - `sink`: one or several. They share each micro-batch, and each is exactly-once on its own.
    - `trigger`: how often a micro-batch is begun ("10 seconds"), or "available now": all that is there, then the end.
    - `name`: of its consumer group, its checkpoint, its sinks; the function's name unless given. Another name is another pipeline.
    - `mode`: append (rows that are final), update (rows that changed) or complete (all rows, each time). Unless given: append,
      and update where the function aggregates and all sinks are topics.
    - `state`: rocksdb or memory; `partitions` of the state. Both are fixed by the first run.
    - `conf`: more of Spark's SQL settings, for this pipeline alone.
    """
    caller = sys._getframe(1)
    place = (caller.f_code.co_filename, caller.f_lineno)

    def declare(function: Callable[..., DataFrame]) -> Pipeline:
        if isinstance(function, Pipeline):
            raise WrongDeclaration(f"{function.name} is a pipeline already; declare its .function once more instead")
        declared = Pipeline(
            name=name if name is not None else function.__name__,
            sources=_sources(source, function),
            sinks=(sink,) if isinstance(sink, Sink) else tuple(sink),
            function=function,
            trigger=trigger_of(trigger),
            mode=mode,
            state=state,
            partitions=partitions,
            conf={key: str(value) for key, value in (conf or {}).items()},
            file=place[0],
            line=place[1],
        )
        _check(declared)
        if (collected := _declared.get()) is not None:
            collected.append(declared)
        return declared

    return declare


def _sources(source: Topic | Mapping[str, Topic], function: Callable[..., DataFrame]) -> dict[str, Topic]:
    """By the names of the function's parameters."""
    takes = [
        one.name
        for one in inspect.signature(function).parameters.values()
        if one.kind is not one.VAR_KEYWORD and one.default is one.empty
    ]
    if not isinstance(source, Mapping):
        if len(takes) != 1:
            raise WrongDeclaration(
                f"{function.__name__} takes {', '.join(takes) or 'nothing'}: with one source it must take one frame; "
                'several sources are named: source={"orders": topic("orders"), …}'
            )
        return {takes[0]: source}
    if set(takes) != set(source):
        raise WrongDeclaration(
            f"{function.__name__} takes {', '.join(takes) or 'nothing'}, and its sources are {', '.join(source) or 'none'}: "
            "they must have the same names"
        )
    return dict(source)


def _check(declared: Pipeline) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", declared.name):
        raise WrongDeclaration(
            f"pipeline {declared.name!r}: a name is 1 to 100 of [A-Za-z0-9._-] and begins with a letter or digit"
        )
    try:
        _check_ends(declared)
        _check_choice("mode", declared.mode or "append", MODES)
        _check_choice("state", declared.state, STATE_STORES)
        if declared.partitions is not None and declared.partitions < 1:
            raise WrongDeclaration(f"partitions={declared.partitions}: must be at least 1")
    except ValueError as error:
        raise WrongDeclaration(f"pipeline {declared.name!r}: {error}") from error


def _check_ends(declared: Pipeline) -> None:
    for name, source in declared.sources.items():
        if not isinstance(source, Topic):
            raise WrongDeclaration(f"source {name!r} is {source!r}; it must be a topic(…)")
        source.check_source()
    if not declared.sinks:
        raise WrongDeclaration("it has no sinks: sink=topic(…) or sink=lake(…)")
    for sink in declared.sinks:
        if not isinstance(sink, Sink):
            raise WrongDeclaration(f"sink {sink!r} must be a topic(…) or a lake(…)")
        sink.check_sink()
        if len(declared.sink_id(sink)) > SINK_ID_LENGTH_MAX:
            raise WrongDeclaration(
                f"sink {sink.id!r}: its name and the pipeline's have more than {SINK_ID_LENGTH_MAX - 1} characters together"
            )
    ids = [(type(sink), sink.id) for sink in declared.sinks]
    for kind, one in ids:
        if ids.count((kind, one)) > 1:
            raise WrongDeclaration(f"it has two sinks {one!r}")
    read = {name for source in declared.sources.values() for name in (source.name or "").split(",")}
    for sink in declared.sinks:
        if isinstance(sink, Topic) and sink.name in read:
            raise WrongDeclaration(f"it reads topic {sink.name!r}, which it writes to")
    if declared.mode == "complete" and any(isinstance(sink, Lake) for sink in declared.sinks):
        raise WrongDeclaration('mode="complete" would append the whole result to the lake again and again')


def _check_choice(field_name: str, value: str, allowed: Sequence[str] | Mapping[str, str]) -> None:
    if value not in allowed:
        raise WrongDeclaration(
            f"{field_name}={value!r} is not allowed; {', '.join(allowed)} are{nearest(value, allowed)}"
        )
