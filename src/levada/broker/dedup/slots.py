"""Compiled: the slots of a table. Imported only where dedup is on.

A slot is four uint64: FNV-1a, second hash, time in ms << 22 | place, offset. A first hash of 0 is an empty slot. Where a message
belongs is its second hash's upper half, scaled to the capacity; if that slot is taken, it is the next free one behind it
(linear probing). Beyond the capacity are some more slots for those that belong to the last ones, so nothing ever wraps around.

A table that changes its size has two arrays for a while. Both are in the order of the second hash, so moving goes from
front to back, and one number says where to look: messages that belong before `done` in the old array are in the new one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import boolean, int64, uint8, uint64

from levada.broker.dedup.compiling import compiled

#: Slots beyond the capacity.
SPARE: Final = 2048
PLACE_BITS: Final = 22
PLACES_MAX: Final = 1 << PLACE_BITS
_PLACE_MASK: Final = np.uint64(PLACES_MAX - 1)
_SHIFT: Final = np.uint64(PLACE_BITS)
_HALF: Final = np.uint64(32)
_EMPTY: Final = np.uint64(0)

SLOTS: Final = uint64[:, ::1]


@compiled()
def _home(second, capacity):  # type: ignore[no-untyped-def]
    return int64(((second >> _HALF) * uint64(capacity)) >> _HALF)


@compiled()
def _find(slots, home, first, second):  # type: ignore[no-untyped-def]
    """The slot that holds it, else the free one where it would go; −1 where there is none."""
    at = uint64(home)
    end = uint64(len(slots))
    while at < end:
        if slots[at, 0] == _EMPTY or (slots[at, 0] == first and slots[at, 1] == second):
            return int64(at)
        at += uint64(1)
    return int64(-1)


@compiled()
def _is_over(slots, at, cutoff_ms, dead):  # type: ignore[no-untyped-def]
    """Whether what the slot holds was first seen at or before this time, or in a place that is gone."""
    mark = slots[at, 2]
    return int64(mark >> _SHIFT) <= cutoff_ms or dead[mark & _PLACE_MASK] != 0


@compiled()
def _put(slots, at, first, second, mark, offset):  # type: ignore[no-untyped-def]
    slots[at, 0] = first
    slots[at, 1] = second
    slots[at, 2] = mark
    slots[at, 3] = offset


@compiled()
def _copy(target, to, source, at):  # type: ignore[no-untyped-def]
    # One by one: as a slice it takes ten times as long.
    target[to, 0] = source[at, 0]
    target[to, 1] = source[at, 1]
    target[to, 2] = source[at, 2]
    target[to, 3] = source[at, 3]


@compiled()
def _remove(slots, at, capacity):  # type: ignore[no-untyped-def]
    """Empty a slot and close the gap: whoever stands behind it and belongs at or before it moves up."""
    gap, behind = at, at + 1
    while behind < len(slots) and slots[behind, 0] != _EMPTY:
        if _home(slots[behind, 1], capacity) <= gap:
            _copy(slots, gap, slots, behind)
            gap = behind
        behind += 1
    slots[gap, 0] = _EMPTY


@compiled(
    int64(
        SLOTS, int64, SLOTS, int64, int64, uint64[:, ::1], int64[:, ::1], int64, int64, int64, int64, boolean,
        boolean, uint8[::1], int64[:, ::1], uint64[::1],
    )
)  # fmt: skip
def meet(  # type: ignore[no-untyped-def]
    slots,
    capacity,
    old,
    old_capacity,
    done,
    hashes,
    records,
    base_offset,
    place,
    now_ms,
    window_ms,
    insert,
    dense,
    dead,
    firsts,
    scratch,
):
    """Look every message up, in order; returns how many slots were taken.

    `firsts` gets place and offset of the first copy where it is a repeat: seen less than `window_ms` before `now_ms`. Where it
    is −1 the message is new and, with `insert`, remembered: at the offset it has in its batch or, with `dense`, at the next one
    after the last that is new. A row that is not −1 beforehand is passed over.
    """
    count = len(firsts)
    touched = _EMPTY
    # First have all the slots on their way from memory: they do not wait for one another. `scratch` only keeps the compiler
    # from leaving this out.
    for row in range(count):
        touched ^= slots[_home(hashes[row, 1], capacity), 0]
    scratch[0] = touched
    added, fresh = int64(0), int64(-1)
    cutoff_ms = now_ms - window_ms
    mark = (uint64(now_ms) << _SHIFT) | uint64(place)
    for row in range(count):
        first, second = hashes[row, 0], hashes[row, 1]
        if firsts[row, 0] >= 0:
            continue
        fresh += 1
        if first == _EMPTY:
            continue
        home = _home(second, capacity)
        array = slots
        if old_capacity:
            old_home = _home(second, old_capacity)
            if old_home >= done:
                array, home = old, old_home
        at = _find(array, home, first, second)
        if at < 0:
            continue
        taken = array[at, 0] != _EMPTY
        if taken and not _is_over(array, at, cutoff_ms, dead):
            firsts[row, 0] = int64(array[at, 2] & _PLACE_MASK)
            firsts[row, 1] = int64(array[at, 3])
            fresh -= 1
        elif insert:
            _put(array, at, first, second, mark, uint64(base_offset + (fresh if dense else records[row, 1])))
            if not taken:
                added += 1
    return added


@compiled(int64(SLOTS, int64, SLOTS, int64, int64, SLOTS))
def drop(slots, capacity, old, old_capacity, done, entries):  # type: ignore[no-untyped-def]
    """Forget exactly these entries; what has been replaced meanwhile stays. Returns how many slots became free."""
    dropped = int64(0)
    for row in range(len(entries)):
        first, second = entries[row, 0], entries[row, 1]
        home, array, size = _home(second, capacity), slots, capacity
        if old_capacity:
            old_home = _home(second, old_capacity)
            if old_home >= done:
                home, array, size = old_home, old, old_capacity
        at = _find(array, home, first, second)
        if at >= 0 and array[at, 0] != _EMPTY and array[at, 2] == entries[row, 2] and array[at, 3] == entries[row, 3]:
            _remove(array, at, size)
            dropped += 1
    return dropped


@compiled(int64(SLOTS, int64, SLOTS, int64, int64, SLOTS, int64, uint8[::1]))
def merge(slots, capacity, old, old_capacity, done, entries, window_ms, dead):  # type: ignore[no-untyped-def]
    """Remember entries with the times and positions they have; the earlier copy stays where the window still covers it."""
    added = int64(0)
    for row in range(len(entries)):
        first, second = entries[row, 0], entries[row, 1]
        if first == _EMPTY:
            continue
        home, array = _home(second, capacity), slots
        if old_capacity:
            old_home = _home(second, old_capacity)
            if old_home >= done:
                home, array = old_home, old
        at = _find(array, home, first, second)
        if at < 0:
            continue
        taken = array[at, 0] != _EMPTY
        seen_ms = int64(entries[row, 2] >> _SHIFT)
        if not taken or _is_over(array, at, seen_ms - window_ms, dead):
            _put(array, at, first, second, entries[row, 2], entries[row, 3])
            if not taken:
                added += 1
    return added


@compiled(int64(SLOTS, int64, int64, int64, int64, uint8[::1], int64[::1]))
def sweep(slots, capacity, start, limit, cutoff_ms, dead, removed):  # type: ignore[no-untyped-def]
    """Empty the slots from `start` on, about `limit` of them, that are over; adds to `removed`. Returns where to go on, 0 at the end."""
    at, end = start, len(slots)
    stop = min(start + limit, end)
    while at < stop:
        while slots[at, 0] != _EMPTY and _is_over(slots, at, cutoff_ms, dead):
            _remove(slots, at, capacity)
            removed[0] += 1
        at += 1
    return at if at < end else int64(0)


@compiled(int64(SLOTS, int64, SLOTS, int64, int64, int64, uint8[::1], int64[::1]))
def move(slots, capacity, old, done, limit, cutoff_ms, dead, removed):  # type: ignore[no-untyped-def]
    """Move what stands from `done` on in the old array, about `limit` slots, up to one that is empty; leave out what is over.

    Returns the new `done`: the array's length once all of it has been moved.
    """
    at, end = done, len(old)
    stop = done + limit
    while at < end and (at < stop or old[at, 0] != _EMPTY):
        if old[at, 0] != _EMPTY:
            target = int64(-1)
            if not _is_over(old, at, cutoff_ms, dead):
                target = _find(slots, _home(old[at, 1], capacity), old[at, 0], old[at, 1])
            if target < 0:
                removed[0] += 1
            else:
                _copy(slots, target, old, at)
        at += 1
    return at + 1 if at < end else end


@compiled(int64(SLOTS, int64, int64, SLOTS))
def collect(slots, start, stop, out):  # type: ignore[no-untyped-def]
    """Copy what is remembered in these slots; returns how many."""
    count = 0
    for at in range(start, stop):
        if slots[at, 0] != _EMPTY:
            _copy(out, count, slots, at)
            count += 1
    return count
