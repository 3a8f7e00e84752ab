"""`json`: objects, read by a given schema a column at a time.

A field that an object does not have is null; one that the schema does not have is passed over. A value of another type than the
schema says is bad, and with it its whole record. Dates and times are ISO 8601, decimals numbers or text.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json

from levada.schemas import parsed_ddl, unreadable
from levada.spark.formats.ddl import WrongSchema, arrow_of, ddl_of, struct_of
from levada.spark.formats.plain import String
from levada.spark.formats.reading import Read, salvaged

Flags = np.ndarray[Any, np.dtype[np.bool_]]
#: If more than one in so many rows is not plain, all are read the other way: putting the two together would cost more.
_ASIDE: Final = 8


class Json:
    """Objects of the type that a schema in Spark's DDL says."""

    name = "json"

    def __init__(self, schema: str) -> None:
        self.type = struct_of(schema)
        if (wrong := unreadable(parsed_ddl(schema))) is not None:
            text = ddl_of(arrow_of(wrong))
            raise WrongSchema(f"json cannot be read as {text}; say which fields there are with struct, or string")
        #: What the parser gives: it knows no dates.
        self._parsed = _dateless(self.type)

    def read(self, values: pa.Array, *, first_only: bool = False) -> Read:
        from levada.spark.formats.flat import is_flat, read_flat

        bad = String().read(values).bad
        empty: Flags = values.is_null().to_numpy(zero_copy_only=False).copy()
        empty[list(bad)] = True
        if not is_flat(self.type):
            return self._lines(values, empty, bad, first_only)
        flat = read_flat(values, self.type, empty)
        if flat.left > len(values) // _ASIDE:
            return self._lines(values, empty, bad, first_only)
        if not flat.left:
            return Read(flat.values, bad)
        rows = np.flatnonzero(flat.aside)
        others = self._lines(values.take(pa.array(rows)), np.zeros(len(rows), np.bool_), {}, first_only)
        places = np.arange(len(values))
        places[rows] = len(values) + np.arange(len(rows))
        bad |= {int(rows[row]): why for row, why in others.bad.items()}
        return Read(pa.concat_arrays([flat.values, others.values]).take(pa.array(places)), dict(sorted(bad.items())))

    def _lines(self, values: pa.Array, empty: Flags, bad: dict[int, str], first_only: bool) -> Read:
        """All of them by the parser that knows all of JSON. Those `empty` are null, or `bad` for the reason given."""
        from levada.spark.formats.objects import lines_of

        lines, ends, wrong = lines_of(values, empty)
        bad |= wrong
        empty[list(wrong)] = True

        def parse(begin: int, end: int) -> pa.Array:
            return self._parse(lines[ends[begin - 1] if begin else 0 : ends[end - 1]], empty[begin:end])

        read = salvaged(parse, len(values), self.type, first_only=first_only)
        return Read(read.values, dict(sorted((bad | read.bad).items())))

    def _parse(self, lines: memoryview, empty: Flags) -> pa.Array:
        """The lines as structs, null where they are empty. ArrowInvalid, ValueError."""
        table = pyarrow.json.read_json(
            pa.BufferReader(lines),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(self._parsed)), unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(empty):
            raise ValueError(f"{len(empty)} values are {table.num_rows} JSON objects")
        wanted = pa.schema(list(self.type))
        if table.schema != wanted:
            table = table.cast(wanted)
        columns = [_joined(column) for column in table.columns]
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=pa.array(empty))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _dateless(kind: pa.DataType) -> pa.DataType:
    """The type with text for dates."""
    if pa.types.is_date32(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _dateless(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _dateless(field.type)) for field in kind])
    return kind
