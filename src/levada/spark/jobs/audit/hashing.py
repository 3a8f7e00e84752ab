"""Compiled: 64 bits of each record of a batch: its offset, timestamp, key, value and headers. Their sum is a partition's checksum.

Null is told from empty, and every part from the next, so that no two records are alike that are not the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numba import int64, uint64

from levada.spark.compiling import BYTES, compiled, types
from levada.spark.sink.places import Ints, Places, lists_of, no_places, places_of

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_M1: Final = np.uint64(0xFF51AFD7ED558CCD)
_M2: Final = np.uint64(0xC4CEB9FE1A85EC53)

#: A column of Arrow's, which is not to be written to.
_NUMBERS: Final = types.Array(int64, 1, "C", readonly=True)

Hashes = np.ndarray[Any, np.dtype[np.uint64]]


@compiled()
def _put(found, word):  # type: ignore[no-untyped-def]
    """One more word."""
    found = found ^ (word * _P2)
    return ((found << uint64(31)) | (found >> uint64(33))) * _P1


@compiled()
def _put_bytes(found, data, at, size):  # type: ignore[no-untyped-def]
    """The size, which is −1 for null, then eight bytes at a time."""
    found = _put(found, uint64(size + 1))
    end = at + max(size, 0)
    while at + 8 <= end:
        word = uint64(0)
        for step in range(8):
            word |= uint64(data[at + step]) << uint64(8 * step)
        found = _put(found, word)
        at += 8
    word = uint64(0)
    for step in range(end - at):
        word |= uint64(data[at + step]) << uint64(8 * step)
    return _put(found, word)


@compiled()
def _finished(found):  # type: ignore[no-untyped-def]
    found = (found ^ (found >> uint64(33))) * _M1
    found = (found ^ (found >> uint64(33))) * _M2
    return found ^ (found >> uint64(33))


@compiled(
    (
        _NUMBERS,
        _NUMBERS,
        *(BYTES, int64[::1], int64[::1]),
        *(BYTES, int64[::1], int64[::1]),
        *(int64[::1], int64[::1]),
        *(BYTES, int64[::1], int64[::1]),
        *(BYTES, int64[::1], int64[::1]),
        uint64[::1],
    )
)
def _hash(  # type: ignore[no-untyped-def]
    offsets, times, key, key_at, key_size, value, value_at, value_size,
    headers_at, headers_count, name, name_at, name_size, held, held_at, held_size, hashes,
):  # fmt: skip
    for row in range(len(offsets)):
        found = _put(_put(_P1, uint64(offsets[row])), uint64(times[row]))
        found = _put_bytes(found, key, key_at[row], key_size[row])
        found = _put_bytes(found, value, value_at[row], value_size[row])
        count = max(headers_count[row], 0)
        found = _put(found, uint64(count))
        for one in range(headers_at[row], headers_at[row] + count):
            found = _put_bytes(found, name, name_at[one], name_size[one])
            found = _put_bytes(found, held, held_at[one], held_size[one])
        hashes[row] = _finished(found)


def record_hashes(offsets: Ints, times: Ints, key: Places, value: Places, headers: pa.Array) -> Hashes:
    """Of each row. A record without headers is the same, whether they are null or none."""
    hashes: Hashes = np.empty(len(offsets), np.uint64)
    at, count = lists_of(headers)
    children = headers.values
    names = places_of(children.field(0)) if len(children) else no_places(0)
    values = places_of(children.field(1)) if len(children) else no_places(0)
    _hash(offsets, times, *key, *value, at, count, *names, *values, hashes)
    return hashes


@compiled((BYTES, int64[::1], int64[::1], uint64, uint64[::1]))
def _hash_bytes(data, at, size, seed, hashes):  # type: ignore[no-untyped-def]
    for row in range(len(at)):
        hashes[row] = _finished(_put_bytes(seed, data, at[row], size[row]))


def byte_hashes(column: Places, seed: int) -> Hashes:
    """Of the bytes of each row."""
    hashes: Hashes = np.empty(len(column.at), np.uint64)
    _hash_bytes(*column, np.uint64(seed), hashes)
    return hashes


@compiled((BYTES, int64[::1], int64[::1], BYTES, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1]))
def _find_last(wanted, at, count, name, name_at, name_size, held_at, held_size, found):  # type: ignore[no-untyped-def]
    """Where the value of the last header of this name is; −1 where there is none, or an empty one."""
    for row in range(len(at)):
        found[row] = -1
        for one in range(at[row] + max(count[row], 0) - 1, at[row] - 1, -1):
            if name_size[one] != len(wanted):
                continue
            same = True
            for step in range(len(wanted)):
                if name[name_at[one] + step] != wanted[step]:
                    same = False
                    break
            if same:
                found[row] = one if held_size[one] > 0 else -1
                break


def header_places(headers: pa.Array, name: str) -> Places:
    """The last header of this name of each row; null where there is none, or an empty one."""
    at, count = lists_of(headers)
    children = headers.values
    if not len(children):
        return no_places(len(headers))
    names, values = places_of(children.field(0)), places_of(children.field(1))
    found = np.empty(len(headers), np.int64)
    wanted = np.frombuffer(name.encode(), np.uint8)
    _find_last(wanted, at, count, *names, values.at, values.size, found)
    there = found >= 0
    return Places(values.data, np.where(there, values.at[found], 0), np.where(there, values.size[found], -1))
