"""Spark's DDL ⇄ Arrow types, without a JVM: an executor has none, and neither has the process that plans a read.

Every field may be null, whatever is said: what is read was written by others. What may stand there is in `levada.schemas`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from levada.errors import LevadaError
from levada.schemas import Type, parsed_ddl


class WrongSchema(LevadaError, ValueError):
    """The schema cannot be understood, or has a type that the format cannot hold."""


TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES: Final = {kind: name for name, kind in _PLAIN.items()}


def struct_of(ddl: str) -> pa.StructType:
    """The type of a row: `a INT, b STRING` or `STRUCT<a: INT, b: STRING>`. WrongSchema."""
    try:
        return arrow_of(parsed_ddl(ddl))
    except ValueError as why:
        raise WrongSchema(
            f"the schema {ddl!r} cannot be read: {why}; an example is: id BIGINT, tags ARRAY<STRING>"
        ) from None


def arrow_of(kind: Type) -> pa.DataType:
    """A type as Arrow has it."""
    match kind.name:
        case "decimal":
            return pa.decimal128(kind.digits, kind.scale)
        case "array":
            [(name, element)] = kind.parts
            return pa.list_(pa.field(name, arrow_of(element)))
        case "map":
            (_, key), (_, value) = kind.parts
            return pa.map_(arrow_of(key), arrow_of(value))
        case "struct":
            return pa.struct([pa.field(name, arrow_of(part)) for name, part in kind.parts])
    return _PLAIN[kind.name]


def ddl_of(kind: pa.DataType) -> str:
    """An Arrow type in Spark's words. WrongSchema for one that Spark does not have."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{ddl_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_of(kind.key_type)},{ddl_of(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{_quoted(field.name)}:{ddl_of(field.type)}' for field in kind)}>"
    raise WrongSchema(f"Spark has no type for {kind}")


def ddl_of_schema(schema: pa.Schema) -> str:
    """A schema as the DDL of a table."""
    return ", ".join(f"{_quoted(field.name)} {ddl_of(field.type)}" for field in schema)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
