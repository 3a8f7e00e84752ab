"""`levada.routing` for a whole column of keys, in compiled code. The tests keep the two equal."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import int32, int64, uint32, uint64, void

from levada.routing import ROUTERS
from levada.spark.compiling import BYTES, compiled

#: A topic's router, as a number.
NUMBERS: Final = {name: number for number, name in enumerate(ROUTERS)}
_FNV1A64: Final = NUMBERS["fnv1a64"]
assert set(NUMBERS) == {"fnv1a64", "murmur2"}

#: The columns of the table of topics.
PARTITIONS: Final = 0
ROUTER: Final = 1
ALL_TO_ZERO: Final = 2  #: what has no key goes to partition 0
NEXT: Final = 3  #: of the partitions for what has no key; counted here
FIRST_SLOT: Final = 4  #: partition p of the topic is slot FIRST_SLOT + p
WIDTH: Final = 5

#: In the column of chosen partitions: none is.
NOT_CHOSEN: Final = -(2**31)

Ints = np.ndarray[Any, np.dtype[np.int64]]
Table = np.ndarray[Any, np.dtype[np.int64]]


@compiled()
def _fnv1a64(data, at, size):  # type: ignore[no-untyped-def]
    value = uint64(14695981039346656037)
    for step in range(size):
        value = (value ^ uint64(data[at + step])) * uint64(1099511628211)
    return value


@compiled()
def _murmur2(data, at, size):  # type: ignore[no-untyped-def]
    m = uint32(0x5BD1E995)
    value = uint32(uint32(0x9747B28C) ^ uint32(size))
    whole = size & ~3
    for step in range(0, whole, 4):
        place = at + step
        word = uint32(
            uint32(data[place])
            | (uint32(data[place + 1]) << uint32(8))
            | (uint32(data[place + 2]) << uint32(16))
            | (uint32(data[place + 3]) << uint32(24))
        )
        word = uint32(word * m)
        word = uint32(uint32(word ^ (word >> uint32(24))) * m)
        value = uint32(uint32(value * m) ^ word)
    if whole < size:
        tail = uint32(0)
        for step in range(size - whole):
            tail |= uint32(data[at + whole + step]) << uint32(8 * step)
        value = uint32(uint32(value ^ tail) * m)
    value = uint32(uint32(value ^ (value >> uint32(13))) * m)
    return uint32(value ^ (value >> uint32(15)))


@compiled(int64(BYTES, int64[::1], int64[::1], int32[::1], int32[::1], int64[:, ::1], int64[::1]))
def route(data, at, size, topics, chosen, table, slots):  # type: ignore[no-untyped-def]
    """The slot of each row: by the partition chosen for it, by its key, else the topic's next. `topics` are rows of `table`.

    Returns −1, or the first row whose chosen partition its topic does not have.
    """
    for row in range(len(slots)):
        topic = topics[row]
        partitions = table[topic, PARTITIONS]
        if chosen[row] != NOT_CHOSEN:
            partition = int64(chosen[row])
            if partition < 0 or partition >= partitions:
                return row
        elif size[row] > 0:
            if table[topic, ROUTER] == _FNV1A64:
                partition = int64(_fnv1a64(data, at[row], size[row]) % uint64(partitions))
            else:
                partition = int64(_murmur2(data, at[row], size[row]) & uint32(0x7FFFFFFF)) % partitions
        elif table[topic, ALL_TO_ZERO] != 0:
            partition = int64(0)
        else:
            partition = table[topic, NEXT]
            table[topic, NEXT] = partition + 1 if partition + 1 < partitions else int64(0)
        slots[row] = table[topic, FIRST_SLOT] + partition
    return int64(-1)


@compiled(void(int64[::1], int64[::1], int64[::1], int64[::1]))
def _group(slots, starts, following, order):  # type: ignore[no-untyped-def]
    starts[:] = 0
    for row in range(len(slots)):
        starts[slots[row] + 1] += 1
    for slot in range(1, len(starts)):
        starts[slot] += starts[slot - 1]
        following[slot - 1] = starts[slot - 1]
    for row in range(len(slots)):
        slot = slots[row]
        order[following[slot]] = row
        following[slot] += 1


def grouped(slots: Ints, starts: Ints) -> Ints:
    """The rows by slot, in their order within each. Those of slot s are result[starts[s] : starts[s + 1]]; `starts` is filled."""
    order: Ints = np.empty(len(slots), np.int64)
    _group(slots, starts, np.empty(len(starts) - 1, np.int64), order)
    return order
