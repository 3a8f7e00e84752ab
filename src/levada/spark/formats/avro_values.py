"""`avro`: values by a given schema, bare or in Confluent's frame: byte 0 | int32 id of the schema in its registry | value.

Nobody is asked for the schema of that id: it is the one given, which must be what the values were written with.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

import fastavro
import pyarrow as pa

from levada.spark.formats.ddl import TIMESTAMP, WrongSchema
from levada.spark.formats.reading import Read, salvaged

_FRAME: Final = 5
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


class Avro:
    """Values of an Avro schema, given as JSON; `framed` where each has Confluent's five bytes before it."""

    name = "avro"

    def __init__(self, schema: str, *, framed: bool = False) -> None:
        try:
            self._schema: Any = fastavro.parse_schema(json.loads(schema))
        except Exception as error:  # whatever is wrong with it: fastavro has no common error for that
            raise WrongSchema(f"the Avro schema {schema!r} cannot be read: {error}") from error
        self._framed = framed
        self.type = _type_of(self._schema, {}, ())

    def read(self, values: pa.Array, *, first_only: bool = False) -> Read:
        found: list[Any] = []
        bad: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            if value is None or (first_only and bad):
                found.append(None)
                continue
            try:
                found.append(self._value(value))
            except Exception as error:  # fastavro raises whatever the bytes lead it to
                found.append(None)
                bad[row] = f"it is not of the Avro schema: {type(error).__name__}: {error}"

        def column(begin: int, end: int) -> pa.Array:
            return pa.array(found[begin:end], self.type)

        read = salvaged(column, len(found), self.type, first_only=first_only)
        return Read(read.values, dict(sorted((bad | read.bad).items())))

    def _value(self, value: bytes) -> Any:
        if self._framed:
            if len(value) < _FRAME or value[0] != 0:
                raise ValueError("it does not begin with the byte 0 and the id of a schema, as Confluent frames it")
            value = value[_FRAME:]
        stream = io.BytesIO(value)
        read = fastavro.schemaless_reader(stream, self._schema, None)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes follow the value")
        return read


def _type_of(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    """The Arrow type of an Avro schema as fastavro parsed it. `inside` are the records it lies in."""
    if isinstance(schema, list):
        branches = [one for one in schema if one != "null"]
        if len(branches) != 1:
            raise WrongSchema(f"the Avro union {schema} has no one type in Spark; only a type and null together have")
        return _type_of(branches[0], named, inside)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema in inside:
            raise WrongSchema(f"the Avro type {schema} holds itself, which no type of Spark does")
        if schema not in named:
            raise WrongSchema(f"the Avro type {schema!r} is not known")
        return _type_of(named[schema], named, inside)
    kind = schema["type"]
    if "name" in schema and kind in ("record", "enum", "fixed", "error"):
        named[schema["name"]] = schema
    match kind:
        case "record" | "error":
            within = (*inside, schema["name"])
            return pa.struct([pa.field(one["name"], _type_of(one["type"], named, within)) for one in schema["fields"]])
        case "array":
            return pa.list_(pa.field("element", _type_of(schema["items"], named, inside)))
        case "map":
            return pa.map_(pa.string(), _type_of(schema["values"], named, inside))
    logical = schema.get("logicalType", "")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical:
        raise WrongSchema(f"the Avro logical type {logical} is not read; {', '.join(_LOGICAL)} and decimal are")
    return _type_of(kind, named, inside)
