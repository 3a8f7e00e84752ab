"""Rows of a task as parquet files, written by an executor. Nobody knows of them until the driver has committed them."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from levada.spark.archive.place import filesystem, make_directory, settle

MiB: Final = 1 << 20
#: A file is closed when it has this size.
FILE_BYTES: Final = 256 * MiB
#: Rows are put down together in groups of so many, or so much: Spark hands them over in much smaller batches.
GROUP_ROWS: Final = 1 << 18
GROUP_BYTES: Final = 64 * MiB
#: So many files, one for each value of what the table is partitioned by, are written beside one another, and so much is held for all.
FILES_OPEN: Final = 64
HELD_BYTES: Final = 256 * MiB
#: What a task hands back of each file.
WRITTEN: Final = "path STRING, size BIGINT, rows BIGINT, partition STRING, stats STRING"
_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("partition", pa.string()),
        ("stats", pa.string()),
    ]
)
#: Longer texts are not told as the least or the greatest of a file.
_TEXT_MAX: Final = 64

#: A directory of rows that have none of the partition's values.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

Partition = tuple[str | None, ...]


class WriteFiles:
    """What `mapInArrow` runs: a task's batches into files, of which a row each comes out. It can be pickled."""

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        partition_by: Sequence[str],
        batch: int,
        *,
        file_bytes: int = FILE_BYTES,
        group_rows: int = GROUP_ROWS,
        files_open: int = FILES_OPEN,
        held_bytes: int = HELD_BYTES,
    ) -> None:
        self.uri = uri
        self.schema = schema
        self.partition_by = tuple(partition_by)
        self.batch = batch
        self.file_bytes = file_bytes
        self.group_rows = group_rows
        self.files_open = files_open
        self.held_bytes = held_bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in self.files(batches):
            yield pa.RecordBatch.from_pylist([one], schema=_SCHEMA)

    def files(self, batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
        open_files: dict[Partition, _File] = {}
        try:
            for batch in batches:
                for partition, rows in self._parted(pa.Table.from_batches([batch]).cast(self.schema)):
                    file = open_files.get(partition)
                    if file is None:
                        if len(open_files) >= self.files_open:
                            yield open_files.pop(max(open_files, key=lambda one: open_files[one].bytes)).close()
                        file = open_files[partition] = _File(self, partition, rows.schema)
                    file.write(rows)
                    if file.size >= self.file_bytes:
                        yield open_files.pop(partition).close()
                    if sum(one.held_bytes for one in open_files.values()) >= self.held_bytes:
                        max(open_files.values(), key=lambda one: one.held_bytes).put_down()
            while open_files:
                _, file = open_files.popitem()
                yield file.close()
        finally:
            for file in open_files.values():
                file.discard()

    def _parted(self, rows: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
        """By the values of the columns that the table is partitioned by, which files do not have."""
        if not rows.num_rows:
            return
        if not self.partition_by:
            yield (), rows
            return
        by = list(self.partition_by)
        for values in rows.select(by).group_by(by).aggregate([]).to_pylist():
            chosen = pa.array([True]).take(pa.array([0] * rows.num_rows, pa.int32()))
            for name in by:
                column, value = rows.column(name), values[name]
                held = (
                    column.is_null()
                    if value is None
                    else pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
                )
                chosen = pc.and_(chosen, held)
            yield tuple(partition_text(values[name]) for name in by), rows.filter(chosen).drop_columns(by)


class _File:
    """A file that is being written."""

    def __init__(self, task: WriteFiles, partition: Partition, schema: pa.Schema) -> None:
        self._uri = task.uri
        self._partition = dict(zip(task.partition_by, partition, strict=True))
        self._path = f"{directory(self._partition)}{task.batch:08d}-{uuid.uuid4().hex}.parquet"
        self._about: list[pq.FileMetaData] = []
        self._group_rows = task.group_rows
        self._held: list[pa.Table] = []
        self._rows_held = self.held_bytes = 0
        make_directory(task.uri, directory(self._partition))
        self._files = filesystem(task.uri)
        self._out = self._files.open_output_stream(self._path)
        self._writer = pq.ParquetWriter(
            self._out, schema, compression="zstd", compression_level=1, metadata_collector=self._about
        )

    @property
    def size(self) -> int:
        return int(self._out.tell())

    @property
    def bytes(self) -> int:
        """What it will have, about."""
        return self.size + self.held_bytes

    def write(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._rows_held += rows.num_rows
        self.held_bytes += rows.nbytes
        if self._rows_held >= self._group_rows or self.held_bytes >= GROUP_BYTES:
            self.put_down()

    def put_down(self) -> None:
        """Write what is held."""
        held, self._held = self._held, []
        self._rows_held = self.held_bytes = 0
        if held:
            self._writer.write_table(pa.concat_tables(held))

    def close(self) -> dict[str, Any]:
        """Durable, and as it will be for ever."""
        self.put_down()
        self._writer.close()
        size = self.size
        self._out.close()
        settle(self._uri, self._path)
        about = self._about[0]
        return {
            "path": self._path,
            "size": size,
            "rows": about.num_rows,
            "partition": json.dumps(self._partition),
            "stats": json.dumps(stats_of(about)),
        }

    def discard(self) -> None:
        """It failed half way. What cannot be removed now, vacuum removes."""
        with contextlib.suppress(OSError):
            self._writer.close()
            self._out.close()
            self._files.delete_file(self._path)


def directory(partition: Mapping[str, str | None]) -> str:
    """Where files of a partition lie: `day=2026-01-31/`, as readers expect that go by names rather than by the log."""
    named = (f"{name}={_NULL if value is None else quote(value, safe='')}/" for name, value in partition.items())
    return "".join(named)


def partition_text(value: Any) -> str | None:
    """A partition's value as Delta writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def stats_of(about: pq.FileMetaData) -> dict[str, Any]:
    """A file's statistics as Delta has them: by these, readers pass over files that hold nothing they want."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(about.num_columns):
        name = about.schema.column(index).path
        groups = [about.row_group(group).column(index).statistics for group in range(about.num_row_groups)]
        if "." in name or any(one is None for one in groups):
            continue
        if all(one.has_null_count for one in groups):
            nulls[name] = sum(one.null_count for one in groups)
        held = [one for one in groups if one.has_min_max]
        if not held or len(held) < sum(one.num_values > 0 for one in groups):
            continue
        least, most = _told(min(one.min for one in held)), _told(max(one.max for one in held), up=True)
        if least is not None and most is not None:
            low[name], high[name] = least, most
    return {"numRecords": about.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _told(value: Any, *, up: bool = False) -> Any:
    """A bound as Delta writes it; None where it cannot be told. Times have milliseconds there: the upper bound is rounded up."""
    match value:
        case bool():
            return None
        case int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _TEXT_MAX else None
        case datetime.datetime():
            over = value.microsecond % 1000
            moment = value - datetime.timedelta(microseconds=over)
            if over and up:
                moment += datetime.timedelta(milliseconds=1)
            zone = "Z" if value.tzinfo else ""
            return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}{zone}"
        case datetime.date():
            return value.isoformat()
    return None
