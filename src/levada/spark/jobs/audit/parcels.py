"""What tasks hand on of keys and identities, many records in one row: Spark moves bytes, and nobody looks at a record before they are together.

Records are spread over buckets by a hash. In a bucket are all records of the same key, and all of the same identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from levada.spark.jobs.audit.hashing import byte_hashes, header_places
from levada.spark.jobs.first import Identity
from levada.spark.sink.places import Places, places_of

Ints = np.ndarray[Any, np.dtype[np.int64]]

#: A row as Spark sees it.
DDL: Final = "bucket INT, partition INT, keys BINARY, identities BINARY"
_ROW: Final = pa.schema(
    [("bucket", pa.int32()), ("partition", pa.int32()), ("keys", pa.binary()), ("identities", pa.binary())]
)
_KEYS: Final = pa.schema([("key", pa.binary()), ("records", pa.int64())])
#: So many records are put together before they are handed on. More, and a row would be large; fewer, and there would be many.
ROWS: Final = 1 << 18
#: A bucket's records fit into memory: so many of them, in a topic of so many.
_BUCKET_RECORDS: Final = 500_000
_BUCKETS_MIN: Final = 256
_BUCKETS_MAX: Final = 1 << 16
_SEEDS: Final = (1, 2)


def buckets_for(offsets: int) -> int:
    return min(_BUCKETS_MAX, max(_BUCKETS_MIN, -(-offsets // _BUCKET_RECORDS)))


class Packing:
    """One task's records of one partition → rows of parcels."""

    def __init__(self, partition: int, buckets: int, by: Identity | None) -> None:
        """`by` None: repeats are not looked for."""
        self._partition, self._buckets, self._by = partition, buckets, by
        self._keys: list[pa.Array] = []
        self._identities: list[Ints] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """A batch with key, value, headers, offset, timestamp; what is ready to be handed on."""
        self._keys.append(batch.column(0))
        if self._by is not None:
            self._identities.append(_identities(batch, self._by))
        self._rows += batch.num_rows
        if self._rows >= ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left."""
        if self._rows:
            keys = _bucketed_keys(self._keys, self._buckets)
            identities = _bucketed_identities(self._identities, self._buckets)
            held = sorted(keys.keys() | identities.keys())
            columns = [
                pa.array(held, pa.int32()),
                pa.array([self._partition] * len(held), pa.int32()),
                pa.array([keys.get(bucket) for bucket in held], pa.binary()),
                pa.array([identities.get(bucket) for bucket in held], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_ROW)
        self._keys, self._identities, self._rows = [], [], 0


def _identities(batch: pa.RecordBatch, by: Identity) -> Ints:
    """Two hashes, offset and time in ms of each record that has something to be told by: four rows."""
    told = _places(batch, by)
    there = told.size >= 0
    if not there.any():
        return np.empty((4, 0), np.int64)
    offsets = batch.column(3).to_numpy()
    times = batch.column(4).cast("int64").to_numpy() // 1000
    hashes = [byte_hashes(told, seed).view(np.int64) for seed in _SEEDS]
    return np.vstack([column[there] for column in (*hashes, offsets, times)])


def _places(batch: pa.RecordBatch, by: Identity) -> Places:
    match by.columns:
        case ("headers",):
            return header_places(batch.column(2), by.name)
        case ("key",):
            return places_of(batch.column(0))
    return places_of(batch.column(1))


def _bucketed_keys(held: Sequence[pa.Array], buckets: int) -> dict[int, bytes]:
    """How often each key that is not empty occurs, by bucket."""
    table = pa.table({"key": pa.chunked_array(held, pa.binary())})
    keyed = table.filter(pc.greater(pc.fill_null(pc.binary_length(table.column(0)), 0), 0))
    counted = keyed.group_by("key").aggregate([([], "count_all")])
    if not counted.num_rows:
        return {}
    keys = counted.column("key").combine_chunks()
    number = _bucket(byte_hashes(places_of(keys), 0), buckets)
    order = np.argsort(number, kind="stable")
    counts = counted.column("count_all").combine_chunks().cast(pa.int64())
    batch = pa.RecordBatch.from_arrays([keys, counts], schema=_KEYS).take(pa.array(order))
    return {
        bucket: bytes(pa.RecordBatch.from_arrays(batch.slice(begin, end - begin).columns, schema=_KEYS).serialize())
        for bucket, begin, end in _stretches(number[order])
    }


def _bucketed_identities(held: Sequence[Ints], buckets: int) -> dict[int, bytes]:
    if not held:
        return {}
    together = np.hstack(held)
    number = _bucket(together[0].view(np.uint64), buckets)
    order = np.argsort(number, kind="stable")
    together = together[:, order]
    return {
        bucket: np.ascontiguousarray(together[:, begin:end]).tobytes()
        for bucket, begin, end in _stretches(number[order])
    }


def _bucket(hashes: Any, buckets: int) -> Any:
    """Numbers of two bytes are sorted four times as fast as larger ones."""
    return ((hashes >> np.uint64(32)) % np.uint64(buckets)).astype(np.uint16)


def _stretches(ordered: Any) -> Iterator[tuple[int, int, int]]:
    """(value, begin, end) of stretches of the same value."""
    if not len(ordered):
        return
    edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    begins, ends = [0, *edges.tolist()], [*edges.tolist(), len(ordered)]
    for begin, end in zip(begins, ends, strict=True):
        yield int(ordered[begin]), begin, end


class Bucket(NamedTuple):
    """Everything of one bucket: key, records, partition; hash, hash, offset, time, partition."""

    keys: pa.Table
    identities: Ints


def opened(rows: Sequence[tuple[int, bytes | None, bytes | None]]) -> Bucket:
    """Out of (partition, keys, identities)."""
    tables, identities = [], [np.empty((5, 0), np.int64)]
    for partition, keys, told in rows:
        if keys:
            batch = pa.ipc.read_record_batch(pa.py_buffer(keys), _KEYS)
            here = pa.array(np.full(batch.num_rows, partition, np.int32))
            tables.append(pa.table(batch).append_column("partition", here))
        if told:
            columns = np.frombuffer(told, np.int64).reshape(4, -1)
            identities.append(np.vstack([columns, np.full(columns.shape[1], partition, np.int64)]))
    schema = _KEYS.append(pa.field("partition", pa.int32()))
    return Bucket(pa.concat_tables(tables) if tables else schema.empty_table(), np.hstack(identities))
