"""Keys and values of a RecordBatch read by their formats, and what is done with those that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from levada.errors import RecordError
from levada.spark.columns.schema import COLUMNS, schema_of
from levada.spark.formats.ddl import ddl_of_schema
from levada.spark.formats.plain import Raw
from levada.spark.formats.reading import Format

OnError = Literal["fail", "column", "deadLetter"]
ON_ERROR: Final[tuple[OnError, ...]] = get_args(OnError)
ERROR_COLUMN: Final = "_error"
#: What a dead letter keeps of its record.
_DEAD: Final = ("key", "value", "offset", "timestamp", "headers")


class BadRecord(RecordError):
    """A record's key or value is not of the format it is read by."""

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(f"the record at offset {offset} of {topic}-{partition} cannot be read: {why}")
        self.topic, self.partition, self.offset, self.why = topic, partition, offset, why

    def __reduce__(self) -> Any:
        return BadRecord, (self.topic, self.partition, self.offset, self.why)


class Formatted(NamedTuple):
    """A batch in the formatter's schema, and the rows left out of it: key, value, offset, timestamp, headers, _error."""

    batch: pa.RecordBatch
    dead: pa.RecordBatch | None = None


class Formatter:
    """Makes of decoded columns what was asked for. It can be pickled.

    - `needed` are the columns to decode: those asked for, and what is needed to say which record is bad.
    - `schema` is what comes out, `ddl` the same for Spark: key and value in the types of their formats; with "column" one
      column more, `_error`, null where all is well.
    - On a bad record: "fail" raises BadRecord, "column" keeps the row with null for what is bad, "deadLetter" hands it back.
    """

    def __init__(
        self,
        columns: Sequence[str] = COLUMNS,
        *,
        key: Format | None = None,
        value: Format | None = None,
        on_error: OnError = "fail",
    ) -> None:
        if on_error not in ON_ERROR:
            raise ValueError(f"onError is {on_error!r}; {', '.join(ON_ERROR)} are allowed")
        self.columns = tuple(columns)
        self.on_error = on_error
        formats = {"key": key or Raw(), "value": value or Raw()}
        self._formats: Mapping[str, Format] = {
            name: one for name, one in formats.items() if name in self.columns and not isinstance(one, Raw)
        }
        self.needed = self._needed()
        self.schema = self._schema()

    @property
    def ddl(self) -> str:
        return ddl_of_schema(self.schema)

    def _needed(self) -> tuple[str, ...]:
        more: Sequence[str] = ()
        if self._formats:
            more = _DEAD if self.on_error == "deadLetter" else ("offset",)
        return (*self.columns, *(name for name in more if name not in self.columns))

    def _schema(self) -> pa.Schema:
        fields = [
            pa.field(field.name, self._formats[field.name].type) if field.name in self._formats else field
            for field in schema_of(self.columns)
        ]
        if self._formats and self.on_error == "column":
            fields.append(pa.field(ERROR_COLUMN, pa.string()))
        return pa.schema(fields)

    def apply(self, batch: pa.RecordBatch, *, topic: str, partition: int) -> Formatted:
        """Read keys and values of a batch that has the columns `needed`. BadRecord, for the first one, with "fail"."""
        if not self._formats:
            return Formatted(batch)
        columns = {name: batch.column(name) for name in self.columns}
        bad: dict[int, str] = {}
        for name, one in self._formats.items():
            read = one.read(batch.column(name), first_only=self.on_error == "fail")
            columns[name] = read.values
            for row, why in read.bad.items():
                bad[row] = "; ".join(filter(None, (bad.get(row), f"its {name} is not {one.name}: {why}")))
        if bad and self.on_error == "fail":
            first = min(bad)
            raise BadRecord(topic, partition, batch.column("offset")[first].as_py(), bad[first])
        if self.on_error == "column":
            columns[ERROR_COLUMN] = _reasons(bad, batch.num_rows)
        formatted = pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema)
        if not bad or self.on_error == "column":
            return Formatted(formatted)
        return self._parted(formatted, batch, bad)

    def _parted(self, formatted: pa.RecordBatch, batch: pa.RecordBatch, bad: dict[int, str]) -> Formatted:
        is_bad = np.zeros(batch.num_rows, np.bool_)
        is_bad[list(bad)] = True
        dead = batch.select(list(_DEAD)).append_column(ERROR_COLUMN, _reasons(bad, batch.num_rows))
        return Formatted(formatted.filter(pa.array(~is_bad)), dead.filter(pa.array(is_bad)))


def _reasons(bad: Mapping[int, str], rows: int) -> pa.Array:
    if not bad:
        return pa.nulls(rows, pa.string())
    return pa.array([bad.get(row) for row in range(rows)], pa.string())
