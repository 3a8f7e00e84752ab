"""The files of an archive's table, by what its log says of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable


class Archived(NamedTuple):
    """A file of the table. Offsets are inclusive."""

    path: str
    size: int
    partition: int
    first: int
    last: int
    rows: int
    newest_us: int | None = None


def files_of(table: DeltaTable) -> Iterator[Archived]:
    """All that the table has now."""
    actions = pa.table(table.get_add_actions(flatten=True))
    newest = (
        actions.column("max.timestamp").cast(pa.int64()).to_pylist()
        if "max.timestamp" in actions.column_names
        else None
    )
    columns = ("path", "size_bytes", "partition.partition", "min.offset", "max.offset", "num_records")
    rows = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
    for number, row in enumerate(rows):
        path, size, partition, first, last, count = row
        yield Archived(path, size, partition, first, last, count, None if newest is None else newest[number])
