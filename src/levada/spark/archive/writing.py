"""A range of a partition as parquet files, written by an executor straight from the columns of the fetched batches."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from levada.errors import LevadaError
from levada.spark.archive.layout import STORED, TYPED, Written, directory, file_schema, new_name
from levada.spark.archive.place import ArchiveError, filesystem, make_directory, settle
from levada.spark.archive.wanted import Typed
from levada.spark.columns import decode
from levada.spark.fetch import Range, RangeLost, fetched
from levada.spark.options.cluster import Cluster

MiB: Final = 1 << 20
#: A file is closed when it has this size.
FILE_BYTES: Final = 256 * MiB
#: Rows are put down together in groups of about so many, or so much: whoever reads a few offsets reads one group.
GROUP_ROWS: Final = 1 << 18
GROUP_BYTES: Final = 64 * MiB


class Job(NamedTuple):
    """What one task is to archive. It is sent to an executor."""

    place: str
    typed: Typed
    cluster: Cluster
    range: Range
    file_bytes: int = FILE_BYTES


class Done(NamedTuple):
    """What became of a job: the files, in order, and the parts of the range that were gone before they could be read."""

    range: Range
    files: list[Written]
    lost: list[Range]


def archive(job: Job) -> Done:
    """Write the committed records of a range. Files are durable when this returns, and nobody knows of them yet."""
    lost: list[Range] = []
    files = list(write_files(job.place, job.range.partition, _batches(job, lost), job.typed, job.file_bytes))
    return Done(job.range, files, lost)


def _batches(job: Job, lost: list[Range]) -> Iterator[pa.RecordBatch]:
    """The records of the range; what was deleted meanwhile is passed over and noted."""
    wanted = job.range
    read = job.typed.format()
    while wanted.start < wanted.end:
        try:
            for piece in fetched(job.cluster.settings, wanted, read_committed=True):
                for batch in decode(piece, STORED, topic=wanted.topic):
                    yield batch if read is None else batch.append_column(TYPED, read.read(batch.column("value")).values)
            return
        except RangeLost as error:
            if error.lost.start >= error.start:  # not deleted: not readable yet, or never written
                raise
            lost.append(error.lost)
            wanted = wanted._replace(start=error.lost.end)


def write_files(
    place: str, partition: int, batches: Iterable[pa.RecordBatch], typed: Typed, file_bytes: int = FILE_BYTES
) -> Iterator[Written]:
    """Put rows, which come in the order of their offsets, into files of about this size."""
    file: _File | None = None
    try:
        for group in _groups(batches):
            if file is None:
                file = _File(place, partition, group, typed)
            else:
                file.write(group)
            if file.size >= file_bytes:
                yield file.close()
                file = None
        if file is not None:
            done, file = file.close(), None
            yield done
    finally:
        if file is not None:
            file.discard()


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


class _File:
    """A file that is being written."""

    def __init__(self, place: str, partition: int, group: pa.Table, typed: Typed) -> None:
        self._place = place
        self._partition = partition
        self._first = group.column("offset")[0].as_py()
        self._path = new_name(partition, self._first)
        self._rows = 0
        self._oldest: int | None = None
        self._newest: int | None = None
        try:
            make_directory(place, directory(partition))
            self._files = filesystem(place)
            self._out = self._files.open_output_stream(self._path)
        except (OSError, LevadaError) as reason:
            raise ArchiveError(
                f"the archive {place} cannot be written to on {socket.gethostname()}: {reason}"
            ) from reason
        self._writer = pq.ParquetWriter(
            self._out,
            file_schema(typed),
            compression="zstd",
            compression_level=1,
            use_dictionary=["timestampType"],
            column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
            store_schema=False,
        )
        self.write(group)

    @property
    def size(self) -> int:
        return int(self._out.tell())

    def write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._rows += group.num_rows
        self._last = group.column("offset")[-1].as_py()
        found = pc.min_max(group.column("timestamp").cast(pa.int64())).as_py()
        self._oldest = found["min"] if self._oldest is None else min(self._oldest, found["min"])
        self._newest = found["max"] if self._newest is None else max(self._newest, found["max"])

    def close(self) -> Written:
        """Durable, and as it will be for ever."""
        self._writer.close()
        size = self.size
        self._out.close()
        settle(self._place, self._path)
        return Written(
            self._path,
            size,
            self._partition,
            self._first,
            self._last,
            self._rows,
            self._oldest or 0,
            self._newest or 0,
            f"{socket.gethostname()}:{os.getpid()}",
        )

    def discard(self) -> None:
        """It failed half way: nobody will ever name it. What cannot be removed now, vacuum removes."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._out.close()
            self._files.delete_file(self._path)
