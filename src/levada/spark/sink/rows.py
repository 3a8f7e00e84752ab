"""Which columns of a DataFrame make a record. They are those of Spark's Kafka sink, and others are left out, as there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from levada.errors import LevadaError

_BYTES: Final = ("binary", "string")
#: Column → the types it may have.
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": _BYTES,
    "value": _BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
}


class WrongColumns(LevadaError, ValueError):
    """The rows cannot be written: a column is missing or of a type that no record has. Nothing has been done."""


class Columns(NamedTuple):
    """Where each column stands in a row; None for one that is not there, or not wanted."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None


def columns_of(schema: Any, *, topic: str | None, include_timestamp: bool) -> Columns:
    """From the DataFrame's schema. With a `topic` every row goes there, whatever a column of that name says. WrongColumns."""
    found: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        name = field.name.lower()
        if name not in TYPES:
            continue
        if name in found:
            raise WrongColumns(f"there are two columns {name!r}; one is allowed")
        kind = field.dataType.simpleString()
        if kind not in TYPES[name]:
            raise WrongColumns(f"column {field.name!r} has type {kind}; {' or '.join(TYPES[name])} is allowed")
        found[name] = place
    if "value" not in found:
        have = ", ".join(field.name for field in schema.fields) or "none"
        raise WrongColumns(f"there is no column 'value', binary or string, to write; the columns are: {have}")
    if topic is not None:
        found.pop("topic", None)
    elif "topic" not in found:
        raise WrongColumns("no topic to write to: give the option topic, or a column 'topic'")
    if not include_timestamp:
        found.pop("timestamp", None)
    elif "timestamp" not in found:
        raise WrongColumns("includeTimestamp=true needs a column 'timestamp', of type timestamp")
    return Columns(**found)
