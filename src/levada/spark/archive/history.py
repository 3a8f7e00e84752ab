"""The older part of topics, read from their tables: what `levada.spark.history.History` asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from levada.spark.archive.files import Archived
from levada.spark.archive.layout import COLUMNS, is_ours
from levada.spark.archive.place import filesystem, missing
from levada.spark.archive.table import ArchiveTable, Whose
from levada.spark.columns import ROWS_MAX, schema_of
from levada.spark.columns.decoding import Constants
from levada.spark.fetch import Range
from levada.spark.history import Held
from levada.wire.answers import TopicPartition

_NUMBERS: Final = ("offset", "timestamp")


class Tables:
    """Archives by topic. What is pickled is where they are; each process looks at the tables itself."""

    def __init__(self, places: Mapping[Whose, str]) -> None:
        self._places = {whose.topic: (whose, place) for whose, place in places.items()}
        self._open: dict[str, ArchiveTable] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_places": self._places, "_open": {}}

    def held(self, at: TopicPartition, up_to: int = 0) -> Held | None:
        """The offsets that are archived; looks again where what is known ends before `up_to`. WrongTable, ArchiveError."""
        known = self._known(at)
        if known is None or known.end < up_to:
            table = self._table(at.topic, again=True)
            known = None if table is None else _held(table, at.partition)
        return known

    def _known(self, at: TopicPartition) -> Held | None:
        table = self._open.get(at.topic)
        return None if table is None else _held(table, at.partition)

    def at_time(self, at: TopicPartition, time_ms: int) -> int | None:
        """The first archived offset whose record is of this time or later."""
        table = self._table(at.topic, again=False)
        if table is None:
            return None
        for file in table.files().get(at.partition, ()):
            if file.newest_us is None or file.newest_us >= time_ms * 1000:
                found = _first_since(table.place, file, time_ms * 1000)
                if found is not None:
                    return found
        return None

    def read(self, wanted: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The archived records of this range, in order."""
        table = self._table(wanted.topic, again=False)
        if table is None:
            raise LookupError(f"nothing is kept of {wanted.topic}")
        for files in pieces(table.files().get(wanted.partition, ()), wanted):
            if len(files) == 1 and is_ours(files[0].path):
                yield from rows(table.place, files[0], wanted, columns)
            else:
                yield from _sorted_rows(table.place, files, wanted, columns)

    def _table(self, topic: str, *, again: bool) -> ArchiveTable | None:
        if topic not in self._places:
            return None
        table = self._open.get(topic)
        if table is None:
            whose, place = self._places[topic]
            table = ArchiveTable.existing(place, whose)
            if table is not None:
                self._open[topic] = table
            return table
        return table.refresh() if again else table


def _held(table: ArchiveTable, partition: int) -> Held | None:
    end = table.next_offset(partition)
    if end is None:
        return None
    files = table.files().get(partition)
    return Held(files[0].first if files else end, end, tuple(table.lost().get(partition, ())))


def pieces(files: Sequence[Archived], wanted: Range) -> Iterator[Sequence[Archived]]:
    """The files that hold something of the range, in order; together those whose offsets lie between one another's.

    Ours never do, but the table is anybody's to optimize.
    """
    held: list[Archived] = []
    for file in files:
        if file.last < wanted.start or file.first >= wanted.end:
            continue
        if held and file.first > max(one.last for one in held):
            yield held
            held = []
        held.append(file)
    if held:
        yield held


def _sorted_rows(
    place: str, files: Sequence[Archived], wanted: Range, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Of files that somebody else has written, who owes nobody an order."""
    with_offset = columns if "offset" in columns else [*columns, "offset"]
    found = [batch for file in files for batch in rows(place, file, wanted, with_offset, in_order=False)]
    if found:
        yield from pa.Table.from_batches(found).sort_by("offset").select(list(columns)).to_batches(ROWS_MAX)


def rows(
    place: str, file: Archived, wanted: Range, columns: Sequence[str], *, in_order: bool = True
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are of the range, as the log would have given them."""
    stored = [name for name in columns if name in COLUMNS and name != "partition"]
    needed = stored if "offset" in stored else [*stored, "offset"]
    schema = schema_of(columns)
    with _opened(place, file) as parquet:
        for group in range(parquet.num_row_groups):
            if not _may_hold(parquet, group, wanted):
                continue
            for batch in parquet.iter_batches(ROWS_MAX, row_groups=[group], columns=needed):
                part = (_within if in_order else _among)(batch, wanted)
                if part.num_rows:
                    yield _shaped(part, schema, wanted)


def _opened(place: str, file: Archived) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(filesystem(place).open_input_file(file.path))
    except FileNotFoundError:
        raise missing(place, file.path, "where it is to be read") from None


def _may_hold(parquet: pq.ParquetFile, group: int, wanted: Range) -> bool:
    index = parquet.schema_arrow.get_field_index("offset")
    found = parquet.metadata.row_group(group).column(index).statistics
    return found is None or not found.has_min_max or (found.min < wanted.end and found.max >= wanted.start)


def _within(batch: pa.RecordBatch, wanted: Range) -> pa.RecordBatch:
    """Offsets grow from row to row: what is wanted lies together."""
    offsets = batch.column("offset").to_numpy()
    begin, end = offsets.searchsorted(wanted.start), offsets.searchsorted(wanted.end)
    return batch.slice(begin, end - begin)


def _among(batch: pa.RecordBatch, wanted: Range) -> pa.RecordBatch:
    offsets = batch.column("offset").to_numpy()
    return batch.filter(pa.array((offsets >= wanted.start) & (offsets < wanted.end)))


def _shaped(batch: pa.RecordBatch, schema: pa.Schema, wanted: Range) -> pa.RecordBatch:
    constants = Constants(wanted.topic, wanted.partition)
    columns = [
        constants.column(field.name, batch.num_rows)
        if field.name in ("topic", "partition")
        else batch.column(field.name).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _first_since(place: str, file: Archived, time_us: int) -> int | None:
    with _opened(place, file) as parquet:
        for batch in parquet.iter_batches(ROWS_MAX, columns=list(_NUMBERS)):
            index = pc.index(pc.greater_equal(batch.column("timestamp").cast(pa.int64()), time_us), True).as_py()
            if index >= 0:
                found: int = batch.column("offset")[index].as_py()
                return found
    return None
