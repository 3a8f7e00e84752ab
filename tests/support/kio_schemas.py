"""Kafka's message schemas as `kio` has them, in the form of `src/levada/wire/schemas/`.

`kio` is generated from the JSON files of Apache Kafka 4.3. Our tables are written from it by

    PYTHONPATH=tests python -m support.kio_schemas

and a test compares every field of every version with it, so a table cannot drift by a hand's slip.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from levada.wire.apis import APIS
from levada.wire.schema import Field, Message, Versions, describe

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
#: Arrays of structs whose default is null: kio has no room for that, Kafka's JSON files (in the kafka-clients jar) do.
NULL_BY_DEFAULT = {
    ("ListPartitionReassignmentsRequest", "topics"),
    ("ConsumerGroupHeartbeatRequest", "topic_partitions"),
    *(
        ("StreamsGroupHeartbeatRequest", name)
        for name in ("active_tasks", "standby_tasks", "warmup_tasks", "client_tags", "task_offsets", "task_end_offsets")
    ),
    *(
        ("StreamsGroupHeartbeatResponse", name)
        for name in ("active_tasks", "standby_tasks", "warmup_tasks", "partitions_by_user_endpoint")
    ),
    ("Topology", "subtopologies"),
}
TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}


def versions_of(api_key: int) -> range:
    known = sorted(schema_name_map[api_key_map[api_key]])
    return range(known[0], known[-1] + 1)


def entity(api_key: int, version: int, kind: str) -> type[Any]:
    """kio's dataclass of this message."""
    return (load_request_schema if kind == "request" else load_response_schema)(api_key, version)


def message(api_key: int, kind: str) -> Message:
    """One message over all its versions."""
    kinds = {version: entity(api_key, version, kind) for version in versions_of(api_key)}
    span = Versions(min(kinds), max(kinds))
    flexible = min((v for v, e in kinds.items() if e.__flexible__), default=None)
    return Message(APIS[api_key].name, kind, span, flexible, merged(kinds))


def merged(kinds: dict[int, type[Any]]) -> tuple[Field, ...]:
    """The union of the fields of all versions, in an order that suits each of them."""
    order: list[str] = []
    for version in sorted(kinds):
        place = 0
        for field in dataclasses.fields(kinds[version]):
            name = name_of(field)
            if name in order:
                place = order.index(name) + 1
            else:
                order.insert(place, name)
                place += 1
    by_name = {
        name: {v: f for v, e in kinds.items() for f in dataclasses.fields(e) if name_of(f) == name} for name in order
    }
    return tuple(field_of(name, found, kinds[max(kinds)].__name__) for name, found in by_name.items())


def field_of(name: str, found: dict[int, Any], struct: str) -> Field:
    newest = found[max(found)]
    inner, is_array, _ = unwrap(newest.type)
    nullable = [
        v
        for v, f in found.items()
        if unwrap(f.type)[2] and (k := f.metadata.get("kafka_type")) != "uuid" and k != "datetime_i64"
    ]
    nested = {v: unwrap(f.type)[0] for v, f in found.items()} if dataclasses.is_dataclass(inner) else {}
    kind = newest.metadata.get("kafka_type")
    return Field(
        name=name,
        type="struct" if nested else TYPES.get(kind, kind),
        is_array=is_array,
        versions=Versions(min(found), max(found)),
        nullable=Versions(min(nullable), max(nullable)) if nullable else None,
        tag=newest.metadata.get("tag"),
        default=None if nullable and (struct, name) in NULL_BY_DEFAULT else default_of(newest, is_array, bool(nested)),
        fields=merged(nested) if nested else (),
    )


def name_of(field: Any) -> str:
    """Kafka's own name: kio drops the unit of times, which it hands out as timedelta and datetime."""
    kind = field.metadata.get("kafka_type", "")
    return f"{field.name}_ms" if kind.startswith(("timedelta", "datetime")) else field.name


def unwrap(kind: Any) -> tuple[Any, bool, bool]:
    """(inner type, is it an array, may it be null)."""
    nullable = False
    if typing.get_origin(kind) in (UnionType, typing.Union):
        nullable = True
        (kind,) = (arg for arg in typing.get_args(kind) if arg is not NoneType)
    if typing.get_origin(kind) is tuple:
        return typing.get_args(kind)[0], True, nullable
    return kind, False, nullable


def default_of(field: Any, is_array: bool, is_struct: bool) -> Any:
    """What Kafka fills in where the field is absent; MISSING stands for the type's zero value, which is not written."""
    value = field.default
    if value is dataclasses.MISSING:
        return "…"
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if field.metadata.get("kafka_type") == "datetime_i64":
        return -1
    if (
        (field.metadata.get("kafka_type") == "uuid" and not is_array)
        or (is_array and value == ())
        or (is_struct and value is not None)
    ):
        return "…"
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value


def tables() -> Iterator[tuple[str, str]]:
    """(file name, text) of every table."""
    for api in APIS.values():
        yield f"{api.file}.txt", describe(message(api.key, "request")) + "\n" + describe(message(api.key, "response"))


if __name__ == "__main__":
    folder = Path(__file__).parents[2] / "src/levada/wire/schemas"
    for file, text in tables():
        (folder / file).write_text(text)
