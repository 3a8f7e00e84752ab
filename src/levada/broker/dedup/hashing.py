"""Compiled: from the bytes of a batch's records to two hashes of each one's id or payload. Imported only where dedup is on.

A record's key is its last header `message_id`, where that is not empty, or its value, where that is not null. The first hash is
FNV-1a 64, as cursus has it; the second one reads eight bytes at a time, is mixed as in xxHash and MurmurHash3, and starts from
a seed. A first hash of 0 means that the record has nothing to be told by: it is never a repeat.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import boolean, int64, types, uint8, uint64

from levada.broker.dedup.compiling import compiled

#: Columns of what is found of each record.
START: Final = 0  #: where it begins
DELTA: Final = 1  #: its offset − the batch's
TIME: Final = 2  #: its timestamp − the batch's
KEY: Final = 3  #: where what it is told by begins
KEY_END: Final = 4  #: and ends; −1 where there is nothing
COLUMNS: Final = 5

BYTES: Final = types.Array(uint8, 1, "C", readonly=True)

_FNV_BASIS: Final = np.uint64(14695981039346656037)
_FNV_PRIME: Final = np.uint64(1099511628211)
_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_M1: Final = np.uint64(0xFF51AFD7ED558CCD)
_M2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_EIGHT: Final = np.uint64(8)
_NAME: Final = np.frombuffer(b"message_id", np.uint8)


@compiled()
def _fnv1a(data, found, start, end):  # type: ignore[no-untyped-def]
    at, last = uint64(start), uint64(end)
    while at < last:
        found = (found ^ uint64(data[at])) * _FNV_PRIME
        at += _ONE
    return found


@compiled()
def _size(records, row):  # type: ignore[no-untyped-def]
    return max(records[row, KEY_END] - records[row, KEY], 0)


@compiled()
def _fnv1a_four(data, records, row, hashes):  # type: ignore[no-untyped-def]
    """Of four records at a time: each step of FNV-1a waits for the one before, but not for those of the others."""
    shortest = min(
        min(_size(records, row), _size(records, row + 1)), min(_size(records, row + 2), _size(records, row + 3))
    )
    a, b, c, d = _FNV_BASIS, _FNV_BASIS, _FNV_BASIS, _FNV_BASIS
    at_a, at_b = uint64(records[row, KEY]), uint64(records[row + 1, KEY])
    at_c, at_d = uint64(records[row + 2, KEY]), uint64(records[row + 3, KEY])
    for _ in range(shortest):
        a = (a ^ uint64(data[at_a])) * _FNV_PRIME
        b = (b ^ uint64(data[at_b])) * _FNV_PRIME
        c = (c ^ uint64(data[at_c])) * _FNV_PRIME
        d = (d ^ uint64(data[at_d])) * _FNV_PRIME
        at_a += _ONE
        at_b += _ONE
        at_c += _ONE
        at_d += _ONE
    hashes[row, 0] = _fnv1a(data, a, at_a, records[row, KEY] + _size(records, row))
    hashes[row + 1, 0] = _fnv1a(data, b, at_b, records[row + 1, KEY] + _size(records, row + 1))
    hashes[row + 2, 0] = _fnv1a(data, c, at_c, records[row + 2, KEY] + _size(records, row + 2))
    hashes[row + 3, 0] = _fnv1a(data, d, at_d, records[row + 3, KEY] + _size(records, row + 3))


@compiled()
def _rotated(word, bits):  # type: ignore[no-untyped-def]
    return (word << uint64(bits)) | (word >> uint64(64 - bits))


@compiled()
def _second(data, start, end, seed):  # type: ignore[no-untyped-def]
    found = seed ^ (uint64(end - start) * _P2)
    at, last = uint64(start), uint64(end)
    while at + _EIGHT <= last:
        word = (
            uint64(data[at])
            | (uint64(data[at + uint64(1)]) << uint64(8))
            | (uint64(data[at + uint64(2)]) << uint64(16))
            | (uint64(data[at + uint64(3)]) << uint64(24))
            | (uint64(data[at + uint64(4)]) << uint64(32))
            | (uint64(data[at + uint64(5)]) << uint64(40))
            | (uint64(data[at + uint64(6)]) << uint64(48))
            | (uint64(data[at + uint64(7)]) << uint64(56))
        )
        found = _rotated(found ^ (_rotated(word * _P2, 31) * _P1), 27) * _P1 + _P3
        at += _EIGHT
    word, bits = _ZERO, _ZERO
    while at < last:
        word |= uint64(data[at]) << bits
        bits += _EIGHT
        at += _ONE
    found ^= _rotated(word * _P1, 33) * _P2
    found = (found ^ (found >> uint64(33))) * _M1
    found = (found ^ (found >> uint64(33))) * _M2
    return found ^ (found >> uint64(33))


@compiled()
def _hash_all(data, seed, records, hashes):  # type: ignore[no-untyped-def]
    count = len(records)
    whole = count - count % 4
    for row in range(0, whole, 4):
        _fnv1a_four(data, records, row, hashes)
    for row in range(whole, count):
        hashes[row, 0] = _fnv1a(data, _FNV_BASIS, records[row, KEY], records[row, KEY] + _size(records, row))
    for row in range(count):
        if records[row, KEY_END] < 0:
            hashes[row, 0] = _ZERO
            continue
        # 0 says "none"; nothing is lost by taking 1 for it, since the other hash must agree as well.
        hashes[row, 0] = max(hashes[row, 0], _ONE)
        hashes[row, 1] = _second(data, records[row, KEY], records[row, KEY_END], seed)


@compiled()
def _varint(data, at, end):  # type: ignore[no-untyped-def]
    """The zigzag varint there, and where it ends; −1 where it does not end in time."""
    raw, bits = _ZERO, 0
    while at < end and bits < 70:
        byte = uint64(data[at])
        at += 1
        raw |= (byte & uint64(0x7F)) << uint64(bits)
        if byte < uint64(0x80):
            return int64(raw >> _ONE) ^ -int64(raw & _ONE), at
        bits += 7
    return int64(0), int64(-1)


@compiled()
def _id_within(data, at, end):  # type: ignore[no-untyped-def]
    """Where the value of the last header `message_id` begins and ends, from the header count on; (0, 0) for none, −1 for nonsense."""
    begin, stop = int64(0), int64(0)
    count, at = _varint(data, at, end)
    if at < 0 or count < 0:
        return int64(-1), int64(-1)
    for _ in range(count):
        size, at = _varint(data, at, end)
        if at < 0 or size < 0 or size > end - at:
            return int64(-1), int64(-1)
        named = size == len(_NAME)
        if named:
            for place in range(len(_NAME)):
                if data[at + place] != _NAME[place]:
                    named = False
                    break
        at += size
        size, at = _varint(data, at, end)
        if at < 0 or size > end - at:
            return int64(-1), int64(-1)
        if size < 0:
            size = 0
        if named:
            begin, stop = at, at + size
        at += size
    if at != end:
        return int64(-1), int64(-1)
    return begin, stop


@compiled(int64(BYTES, int64, int64, boolean, uint64, int64[:, ::1], uint64[:, ::1]))
def read_keys(data, count, last_delta, by_id, seed, records, hashes):  # type: ignore[no-untyped-def]
    """Find each record and hash what it is told by. Returns how many there are, or −1 − the place of the first that makes no sense.

    `data` are the records, unpacked; they must fill it, with rising offsets up to `last_delta`. `records` and `hashes` have
    room for `count`.
    """
    at, end_of_all, delta_before = int64(0), len(data), int64(-1)
    for place in range(count):
        records[place, START] = at
        size, at = _varint(data, at, end_of_all)
        if at < 0 or size < 6 or size > end_of_all - at:
            return -1 - place
        end = at + size
        time, at = _varint(data, at + 1, end)
        if at < 0:
            return -1 - place
        delta, at = _varint(data, at, end)
        if at < 0 or delta <= delta_before or delta > last_delta:
            return -1 - place
        delta_before = delta
        records[place, DELTA] = delta
        records[place, TIME] = time
        key_size, at = _varint(data, at, end)
        if at < 0 or key_size > end - at:
            return -1 - place
        if key_size > 0:
            at += key_size
        value_size, at = _varint(data, at, end)
        if at < 0 or value_size > end - at:
            return -1 - place
        begin, stop, told = at, at + value_size, value_size >= 0
        if by_id:
            begin, stop = _id_within(data, at + max(value_size, 0), end)
            if begin < 0:
                return -1 - place
            told = stop > begin
        records[place, KEY] = begin
        records[place, KEY_END] = stop if told else -1
        at = end
    if at != end_of_all:
        return -1 - count
    _hash_all(data, seed, records, hashes)
    return count
