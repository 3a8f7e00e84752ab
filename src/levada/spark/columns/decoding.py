"""From a fetched piece to RecordBatches: unpack, scan, cut, gather."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from levada.errors import CorruptBatch
from levada.spark.columns.batches import BASE, COUNT
from levada.spark.columns.gather import Bytes, gathered, gathered_headers
from levada.spark.columns.scan import KEY, PLACES, VALUE, Ints, cut, scan
from levada.spark.columns.schema import TYPES, schema_of
from levada.spark.columns.unpack import unpacked

if TYPE_CHECKING:
    from levada.spark.fetch import Fetched


def decoded(
    fetched: Fetched, columns: Sequence[str], rows_max: int, bytes_max: int, topic: str
) -> Iterator[pa.RecordBatch]:
    """See `levada.spark.columns.decode`."""
    schema = schema_of(columns)
    constants = Constants(topic, fetched.partition)
    begun = fetched.from_offset
    try:
        for data, table in unpacked(fetched.data, fetched.from_offset, fetched.to_offset, fetched.aborted):
            records = _Records(data, table, fetched.from_offset, fetched.to_offset, constants)
            begin = 0
            while begin < len(records.places):
                end = cut(records.places, begin, rows_max, bytes_max)
                begun = int(records.offsets[begin])
                yield pa.RecordBatch.from_arrays([records.column(name, begin, end) for name in columns], schema=schema)
                begin = end
    except CorruptBatch as error:
        offset = begun if error.index is None else int(records.offsets[begin + error.index])
        raise CorruptBatch(f"{topic}-{fetched.partition}, reading at offset {offset}: {error}") from error


class _Records:
    """The records of some batches: where they lie in `data`."""

    def __init__(self, data: Bytes, table: Ints, from_offset: int, to_offset: int, constants: Constants) -> None:
        room = int(table[:, COUNT].sum())
        self.data = data
        self.offsets: Ints = np.empty(room, np.int64)
        self.times: Ints = np.empty(room, np.int64)
        self.kinds: np.ndarray[Any, np.dtype[np.int32]] = np.empty(room, np.int32)
        self.places: Ints = np.empty((room, PLACES), np.int64)
        self._constants = constants
        found = scan(data, table, from_offset, to_offset, self.offsets, self.times, self.kinds, self.places)
        if found < 0:
            raise CorruptBatch(
                f"the batch at offset {table[-1 - found, BASE]} does not hold the records it says it does"
            )
        self.places = self.places[:found]

    def column(self, name: str, begin: int, end: int) -> pa.Array:
        """This column of these rows."""
        match name:
            case "key":
                return gathered(self.data, self.places[begin:end], KEY, pa.binary())
            case "value":
                return gathered(self.data, self.places[begin:end], VALUE, pa.binary())
            case "headers":
                return gathered_headers(self.data, self.places[begin:end])
            case "offset":
                return _numbers(self.offsets[begin:end], name)
            case "timestamp":
                return _numbers(self.times[begin:end], name)
            case "timestampType":
                return _numbers(self.kinds[begin:end], name)
            case _:
                return self._constants.column(name, end - begin)


def _numbers(values: np.ndarray[Any, Any], name: str) -> pa.Array:
    """A column that is one of our arrays, uncopied."""
    return pa.Array.from_buffers(TYPES[name], len(values), [None, pa.py_buffer(values)], 0)


class Constants:
    """The columns that are the same in every row, made once for the longest batch so far.

    By hand: to make a scalar of a str or an int, pyarrow would import pandas.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._made: dict[str, pa.Array] = {}

    def column(self, name: str, rows: int) -> pa.Array:
        made = self._made.get(name)
        if made is None or len(made) < rows:
            made = self._made[name] = self._topics(rows) if name == "topic" else self._partitions(rows)
        return made[:rows]

    def _topics(self, rows: int) -> pa.Array:
        offsets = np.arange(rows + 1, dtype=np.int32) * len(self._topic)
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(self._topic * rows))

    def _partitions(self, rows: int) -> pa.Array:
        return _numbers(np.full(rows, self._partition, np.int32), "partition")
