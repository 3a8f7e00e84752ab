"""Columns of a lake table: what Spark's are in Arrow, and how a table's may change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from levada.spark.pipelines.errors import WrongTable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Delta allows these in no column's name.
_FORBIDDEN: Final = " ,;{}()\n\t="


def arrow_schema(schema: StructType, partition_by: Sequence[str] = ()) -> pa.Schema:
    """A frame's columns, each of which may be null: a table outlives the query that first wrote to it. WrongTable."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found = nullable(to_arrow_schema(schema, timezone="UTC"))
    for field in found:
        if any(sign in _FORBIDDEN for sign in field.name):
            raise WrongTable(
                f"column {field.name!r}: a lake's columns have none of {_FORBIDDEN!r} in their names; rename it"
            )
        if pa.types.is_null(field.type):
            raise WrongTable(f"column {field.name!r} has no type (void): cast it to one")
    for name in partition_by:
        _check_partition(name, found)
    if len(partition_by) >= len(found.names):
        raise WrongTable("a lake needs a column that it is not partitioned by")
    return found


def _check_partition(name: str, schema: pa.Schema) -> None:
    if name not in schema.names:
        raise WrongTable(f"partition_by: {name!r} is no column of the frame; {', '.join(schema.names)} are")
    kind = schema.field(name).type
    if not (
        pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_boolean(kind)
    ):
        raise WrongTable(f"partition_by: {name!r} is {kind}; a string, a whole number, a date or a boolean can be")


def nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_nullable(field) for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(kind.field(index)) for index in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field).with_name("element"))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field).type)
    return pa.field(field.name, kind, nullable=True)


def added(table: pa.Schema, rows: pa.Schema, uri: str) -> list[pa.Field]:
    """The columns that rows have beyond the table's, which may be added. WrongTable for any other difference."""
    for field in table:
        if field.name not in rows.names:
            raise WrongTable(
                f"lake {uri} has a column {field.name!r} that the pipeline no longer makes; columns may be added, not taken "
                "away: make it null, or write to another table"
            )
        kind = rows.field(field.name).type
        if not same(field.type, kind):
            raise WrongTable(
                f"lake {uri} has column {field.name!r} as {field.type}, and the pipeline now makes it {kind}: cast it back, or "
                "write to another table"
            )
    return [field for field in rows if field.name not in table.names]


def same(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a table that has one can hold the other: sizes of offsets and names of elements do not matter."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = [(one.field(index), other.field(index)) for index in range(min(one.num_fields, other.num_fields))]
        return one.num_fields == other.num_fields and all(a.name == b.name and same(a.type, b.type) for a, b in fields)
    if _is_list(one) and _is_list(other):
        return same(one.value_type, other.value_type)
    if pa.types.is_map(one) and pa.types.is_map(other):
        return same(one.key_type, other.key_type) and same(one.item_type, other.item_type)
    return bool(_plain(one) == _plain(other))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind
