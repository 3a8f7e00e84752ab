"""A topic as one end of a pipeline: what it reads from, or writes to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from levada.errors import nearest
from levada.spark.pipelines.errors import WrongDeclaration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A shape of a sink's own: made of the micro-batch, which is a static frame.
Shape = Callable[["DataFrame"], "DataFrame"]

#: Formats whose values have fields, which become the columns of the frame.
STRUCTURED: Final = ("json", "avro")
DELIVERIES: Final = ("exactly_once", "at_least_once")
#: Of `topic`, in the words of the source's options.
_SOURCE_OPTIONS: Final = {
    "name": "subscribe",
    "pattern": "subscribePattern",
    "format": "valueFormat",
    "schema": "valueSchema",
    "key_format": "keyFormat",
    "key_schema": "keySchema",
    "on_error": "onError",
    "max_records": "maxOffsetsPerTrigger",
    "min_records": "minOffsetsPerTrigger",
    "max_delay": "maxTriggerDelay",
}
_FOR_SOURCES: Final = (*_SOURCE_OPTIONS, "starting", "columns", "watermark")
_FOR_SINKS: Final = ("key", "delivery", "shape")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """See `topic`."""

    name: str | None = None
    pattern: str | None = None
    format: str | None = None
    schema: str | None = None
    key_format: str | None = None
    key_schema: str | None = None
    on_error: str | None = None
    starting: str | None = None
    columns: tuple[str, ...] | None = None
    watermark: tuple[str, str] | None = None
    max_records: int | None = None
    min_records: int | None = None
    max_delay: str | None = None
    key: str | None = None
    delivery: str | None = None
    shape: Shape | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def using(self, shape: Shape) -> Topic:
        """The same sink, written with what this function makes of each micro-batch."""
        return replace(self, shape=shape)

    @property
    def id(self) -> str:
        """What it is called within its pipeline."""
        return self.name or self.pattern or ""

    def check_source(self) -> None:
        """WrongDeclaration if this is no topic to read from."""
        self._refuse(_FOR_SINKS, "a sink")
        if bool(self.name) == bool(self.pattern):
            raise WrongDeclaration("a source is a topic's name or a pattern: one of the two")
        from levada.spark.options.source import SourceOptions

        SourceOptions.of(self.reading(bootstrap="127.0.0.1:9092", group="pipeline"))

    def check_sink(self) -> None:
        """WrongDeclaration if this is no topic to write to."""
        self._refuse([name for name in _FOR_SOURCES if name != "name"], "a source")
        if not self.name or "," in self.name:
            raise WrongDeclaration(f"a sink is one topic, by its name; {self.id!r} is not")
        if self.delivery not in (None, *DELIVERIES):
            raise WrongDeclaration(
                f"topic {self.name!r}: delivery={self.delivery!r} is not allowed; {', '.join(DELIVERIES)} are"
                f"{nearest(self.delivery, DELIVERIES)}"
            )

    def _refuse(self, names: Sequence[str], whose: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                said = "using()" if name == "shape" else f"{name}="
                raise WrongDeclaration(f"topic {self.id!r}: {said} is for {whose}")

    @property
    def structured(self) -> bool:
        """Whether its frame has the fields of the values as columns."""
        return self.format in STRUCTURED

    def reading(self, *, bootstrap: str, group: str) -> dict[str, str]:
        """The options of `format("levada")` that read it."""
        found = {"bootstrap": bootstrap, "groupId": group}
        for name, option in _SOURCE_OPTIONS.items():
            if (value := getattr(self, name)) is not None:
                found[option] = str(value)
        if self.structured:
            found["columns"] = ",".join(("value", *(self.columns or ())))
        elif self.columns:
            found["columns"] = ",".join(self.columns)
        starting = self.starting or "earliest"
        found["startingTimestamp" if starting.isdecimal() else "startingOffsets"] = starting
        return {**found, **self.options}


def topic(
    name: str | None = None,
    *,
    pattern: str | None = None,
    format: str | None = None,  # noqa: A002
    schema: str | None = None,
    key_format: str | None = None,
    key_schema: str | None = None,
    on_error: str | None = None,
    starting: str | datetime | Mapping[str, Mapping[str, int]] | None = None,
    columns: Sequence[str] | None = None,
    watermark: tuple[str, str] | None = None,
    max_records: int | None = None,
    min_records: int | None = None,
    max_delay: str | None = None,
    key: str | None = None,
    delivery: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Topic:
    """A topic to read from or to write to.

    Of a source:

    - `name`, several with commas between them, or a `pattern` that names must match.
    - `format` of the values: raw, string, json with a `schema` in DDL, avro with one in JSON. With json and avro the frame
      has the fields as its columns; otherwise it has Kafka's columns. `key_format`, `key_schema`: the same of keys.
    - `columns` of the record to have beside the fields (key, topic, partition, offset, timestamp, headers), or instead of all.
    - `on_error`: fail, column (the row stays, with `_error`) or deadLetter.
    - `starting`, at the first run: earliest (the default), latest, group, a time, or {"orders": {"0": 17}}.
    - `watermark`: a column of event time, and how late its rows may come: ("at", "30 minutes").
    - `max_records` of one micro-batch; `min_records` and `max_delay`: how much it waits for, and for how long.

    Of a sink:

    - `key`: the column that is the records' key. A frame with a `value` column is written as it is; of any other frame each
      row becomes a JSON object.
    - `delivery`: exactly_once (the default) or at_least_once.

    `options` are more options of the source or the sink, in their own words.
    """
    return Topic(
        name=name,
        pattern=pattern,
        format=format,
        schema=schema,
        key_format=key_format,
        key_schema=key_schema,
        on_error=on_error,
        starting=_starting(starting),
        columns=tuple(columns) if columns is not None else None,
        watermark=_watermark(watermark),
        max_records=max_records,
        min_records=min_records,
        max_delay=max_delay,
        key=key,
        delivery=delivery,
        options={key: str(value) for key, value in (options or {}).items()},
    )


def _starting(starting: str | datetime | Mapping[str, Mapping[str, int]] | None) -> str | None:
    if isinstance(starting, datetime):
        moment = starting if starting.tzinfo else starting.replace(tzinfo=UTC)
        return str(round(moment.timestamp() * 1000))
    if isinstance(starting, Mapping):
        return json.dumps({name: dict(offsets) for name, offsets in starting.items()})
    return starting


def _watermark(watermark: tuple[str, str] | None) -> tuple[str, str] | None:
    if watermark is None:
        return None
    if isinstance(watermark, str) or len(watermark) != 2:
        raise WrongDeclaration(f'watermark={watermark!r}: must be a column and a delay, such as ("at", "10 minutes")')
    column, delay = watermark
    return column, delay


#: All that can be said of a topic, for those who list it.
FIELDS: Final = tuple(one.name for one in fields(Topic))
