"""Small files become large ones: files that follow one another in a partition are written anew as one, in the order of their offsets.

The commit that puts the new file in the place of the old ones changes no row, and says so. Whoever reads by an earlier version of
the table still finds the old files, until vacuum removes them after `RETENTION_HOURS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from levada.spark.archive.files import Archived
from levada.spark.archive.layout import Written, file_schema
from levada.spark.archive.place import filesystem, missing
from levada.spark.archive.table import ArchiveTable, Overtaken
from levada.spark.archive.wanted import Typed
from levada.spark.archive.writing import FILE_BYTES, GROUP_ROWS, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MiB: Final = 1 << 20
#: As long as readers may hold on to a version of the table.
RETENTION_HOURS: Final = 7 * 24


class Sizes(NamedTuple):
    """When files are put together."""

    #: Files from this size on are left alone, and new ones are about this large.
    target_bytes: int = FILE_BYTES // 2
    #: Not before so many small ones follow one another: each row is written again only a few times in all.
    files_min: int = 8


class Merge(NamedTuple):
    """Files of one partition to be written as one. It is sent to an executor."""

    place: str
    typed: Typed
    files: tuple[Archived, ...]


class Compacted(NamedTuple):
    """What a run has done."""

    files_before: int
    files_after: int
    bytes: int


def runs(files: Sequence[Archived], sizes: Sizes) -> list[tuple[Archived, ...]]:
    """Which files of a partition, in the order of their offsets, are to become one: small ones that follow one another."""
    chosen: list[tuple[Archived, ...]] = []
    run: list[Archived] = []
    size = 0

    def close() -> None:
        full = size >= sizes.target_bytes and len(run) > 1
        if full or len(run) >= sizes.files_min:
            chosen.append(tuple(run))
        run.clear()

    for file in files:
        if file.size >= sizes.target_bytes:
            close()
            size = 0
            continue
        run.append(file)
        size += file.size
        if size >= sizes.target_bytes:
            close()
            size = 0
    close()
    return chosen


def merged(job: Merge) -> list[Written]:
    """Write the rows of the files anew; durable when this returns, and nobody knows of it yet."""
    partition = job.files[0].partition
    return list(write_files(job.place, partition, _rows(job), job.typed, file_bytes=2 * FILE_BYTES))


def _rows(job: Merge) -> Iterator[pa.RecordBatch]:
    files = filesystem(job.place)
    schema = file_schema(job.typed)
    for one in job.files:
        try:
            with pq.ParquetFile(files.open_input_file(one.path)) as parquet:
                for batch in parquet.iter_batches(GROUP_ROWS):
                    yield batch.cast(schema) if batch.schema != schema else batch
        except FileNotFoundError:
            raise missing(job.place, one.path, "where it was to be put together with others") from None


def compact(spark: SparkSession, table: ArchiveTable, typed: Typed, sizes: Sizes | None = None) -> Compacted:
    """Put small files together, those of all partitions side by side, one commit for each."""
    jobs = planned(table.refresh().files(), table.place, typed, sizes or Sizes())
    if not jobs:
        return Compacted(0, 0, 0)
    results = spark.sparkContext.parallelize(jobs, len(jobs)).map(merged).collect()
    before = after = size = 0
    for job, new in zip(jobs, results, strict=True):
        check_rows(job.files, new)
        try:
            table.replace(job.files, new)
        except Overtaken:
            continue  # somebody else has put them together
        before, after, size = before + len(job.files), after + len(new), size + sum(one.size for one in new)
    return Compacted(before, after, size)


def planned(files: Mapping[int, Sequence[Archived]], place: str, typed: Typed, sizes: Sizes) -> list[Merge]:
    """What is to be done in all partitions."""
    return [Merge(place, typed, run) for held in files.values() for run in runs(held, sizes)]


def check_rows(old: Sequence[Archived], new: Sequence[Written]) -> None:
    """A file is taken out of the table only for one that holds what it held."""
    had = (old[0].first, old[-1].last, sum(one.rows for one in old))
    has = (new[0].first, new[-1].last, sum(one.rows for one in new))
    if had != has:
        raise AssertionError(f"{len(old)} files with first, last and number of rows {had} were written anew as {has}")
