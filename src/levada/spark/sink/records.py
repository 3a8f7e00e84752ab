"""Rows to the records of a batch, in compiled code.

Record, every number a zigzag varint, after its own length: int8 attributes | timestamp − the batch's first | number in the batch |
key length, −1 for null | key | value length, −1 for null | value | header count | for each: key length | key | value length | value.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numba import int64, uint8, uint64

from levada.spark.compiling import BYTES, compiled, types
from levada.spark.sink.places import Bytes, Ints, Places, lists_of, no_places, places_of

#: What a record may need beyond its `sizes`: its length, and the rest of a timestamp's and a number's varint.
SLACK: Final = 5 + 9 + 4

_PLACES: Final = (BYTES, int64[::1], int64[::1])
_HEADERS: Final = (int64[::1], int64[::1], *_PLACES, *_PLACES)


class Headers(NamedTuple):
    """Row i has the headers from `at[i]` on, `number[i]` of them; null is none."""

    at: Ints
    number: Ints
    names: Places
    values: Places


def headers_of(column: pa.Array) -> Headers:
    """Of a column of lists of (key, value)."""
    at, count = lists_of(column)
    pairs = column.values
    return Headers(at, count, places_of(pairs.field(0)), places_of(pairs.field(1)))


def no_headers(rows: int) -> Headers:
    nothing = no_places(0)
    return Headers(np.zeros(rows, np.int64), np.zeros(rows, np.int64), nothing, nothing)


@compiled()
def _length(value):  # type: ignore[no-untyped-def]
    """Bytes of the zigzag varint."""
    rest = uint64((value << 1) ^ (value >> 63))
    count = int64(1)
    while rest >= uint64(128):
        rest >>= uint64(7)
        count += 1
    return count


@compiled()
def _put(out, at, value):  # type: ignore[no-untyped-def]
    rest = uint64((value << 1) ^ (value >> 63))
    while rest >= uint64(128):
        out[uint64(at)] = uint8((rest & uint64(127)) | uint64(128))
        rest >>= uint64(7)
        at += 1
    out[uint64(at)] = uint8(rest)
    return at + 1


@compiled()
def _put_bytes(out, at, data, begin, size):  # type: ignore[no-untyped-def]
    """A length and so many bytes; −1 and none for null."""
    at = _put(out, at, size)
    if size <= 0:
        return at
    # Unsigned places, since those below 0 would be counted from the end: without that, the loop is one memcpy.
    to, source, length = uint64(at), uint64(begin), uint64(size)
    for step in range(length):
        out[to + step] = data[source + step]
    return at + size


@compiled(int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1]))
def measure(keys, values, header_at, header_count, name_sizes, header_sizes, sizes):  # type: ignore[no-untyped-def]
    """What each record needs as the first of a batch, without its length. Returns −1, or the first row with a header that has no key."""
    for row in range(len(sizes)):
        size = 3 + _length(keys[row]) + max(keys[row], int64(0)) + _length(values[row]) + max(values[row], int64(0))
        count = max(header_count[row], int64(0))
        size += _length(count)
        for header in range(header_at[row], header_at[row] + count):
            if name_sizes[header] < 0:
                return row
            size += _length(name_sizes[header]) + name_sizes[header]
            size += _length(header_sizes[header]) + max(header_sizes[header], int64(0))
        sizes[row] = size
    return int64(-1)


@compiled(types.UniTuple(int64, 3)(
    int64[::1], int64, int64, int64[::1], int64[::1], *_PLACES, *_PLACES, *_HEADERS, uint8[::1], int64, int64, int64, int64,
    int64,
))  # fmt: skip
def fill(  # type: ignore[no-untyped-def]
    order, begin, end, sizes, times, key_data, key_at, key_size, value_data, value_at, value_size, header_at, header_count,
    name_data, name_at, name_size, header_data, header_value_at, header_value_size, out, at, limit, count, base_time, max_time,
):  # fmt: skip
    """Write the rows order[begin:end] behind the `count` records that end at `at`, as many as fit below `limit`.

    A first record is always written: there must be room for it. Returns (how many rows of `order` are done, where the records
    end, the largest timestamp).
    """
    for number in range(begin, end):
        row = order[number]
        if count > 0 and at + sizes[row] + SLACK > limit:
            return number, at, max_time
        time = times[row] - base_time
        max_time = max(max_time, times[row])
        at = _put(out, at, sizes[row] - 2 + _length(time) + _length(count))
        out[uint64(at)] = uint8(0)
        at = _put(out, at + 1, time)
        at = _put(out, at, count)
        at = _put_bytes(out, at, key_data, key_at[row], key_size[row])
        at = _put_bytes(out, at, value_data, value_at[row], value_size[row])
        headers = max(header_count[row], int64(0))
        at = _put(out, at, headers)
        for header in range(header_at[row], header_at[row] + headers):
            at = _put_bytes(out, at, name_data, name_at[header], name_size[header])
            at = _put_bytes(out, at, header_data, header_value_at[header], header_value_size[header])
        count += 1
    return end, at, max_time


class Rows(NamedTuple):
    """The rows of one RecordBatch, as they are to be written."""

    keys: Places
    values: Places
    headers: Headers
    times: Ints
    sizes: Ints

    def fill(self, order: Ints, begin: int, end: int, out: Bytes, draft: Any, limit: int) -> tuple[int, int, int]:
        """See `fill`."""
        headers = self.headers
        done, at, max_time = fill(
            order, begin, end, self.sizes, self.times, *self.keys, *self.values, headers.at, headers.number,
            *headers.names, *headers.values, out, draft.at, limit, draft.count, draft.base_time, draft.max_time,
        )  # fmt: skip
        return int(done), int(at), int(max_time)
