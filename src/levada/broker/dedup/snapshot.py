"""A memory as bytes, so that after a restart only what came after it must be read from the log.

    a line of JSON: format, by_id, seed, window_ms, entries, and for each place: topic id, topic, partition, up to which offset it is covered
    the entries, 32 bytes each as in slots.py, in this machine's byte order
    4 bytes, big-endian: CRC-32C of all before

A snapshot of a shorter window than is wanted now covers nothing: what it had forgotten is read again. An entry at or beyond the offset up to which its place is covered does not count: it will be met again in the log. Anything that
does not fit makes the whole snapshot worthless: the log has it all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

import numpy as np
from crc32c import crc32c

from levada.broker.dedup.array import Entries
from levada.broker.dedup.memory import Memory
from levada.broker.dedup.places import Place
from levada.broker.dedup.table import FILLED_MAX, Table, place_of, time_of
from levada.engine.port import At
from levada.errors import DamagedIndex

_FORMAT: Final = f"levada dedup 1 {sys.byteorder}"
_ROW: Final = 32
_CRC: Final = 4
_FOREVER_MS: Final = 1 << 62


def encode(memory: Memory, covered: Mapping[Place, int], window_ms: int) -> Iterator[bytes]:
    """The snapshot, a part at a time. Worthless, and not to be kept, if `memory.table.shifts` changes before its end."""
    places = [[str(place.topic_id), *place.at, covered.get(place, 0)] for place in memory.places.all]
    head = {
        "format": _FORMAT,
        "by_id": memory.by_id,
        "seed": memory.seed,
        "window_ms": window_ms,
        "entries": len(memory),
        "places": places,
    }
    part = json.dumps(head).encode() + b"\n"
    crc = crc32c(part)
    yield part
    for entries in memory.table.entries():
        if len(entries):
            part = entries.tobytes()
            crc = crc32c(part, crc)
            yield part
    yield crc.to_bytes(_CRC, "big")


def decode(
    parts: Iterator[bytes], *, by_id: bool, ends: Mapping[Place, int], now_ms: int, window_ms: int
) -> tuple[Memory, dict[Place, int]]:
    """The memory of a snapshot without what is past the window; and up to where it covers each place.

    `ends` are the places that still count, and how far their logs go: what a snapshot knows beyond that was lost. DamagedIndex.
    """
    reader = _Reader(parts)
    try:
        head = json.loads(reader.line())
        if head["format"] != _FORMAT or head["by_id"] is not by_id:
            raise DamagedIndex(f"the snapshot is {head['format']!r}, by_id {head['by_id']}")
        memory = Memory(by_id=by_id, seed=head["seed"])
        memory.table = Table(int(head["entries"] / FILLED_MAX * 1.1))
        covered: dict[Place, int] = {}
        limits = np.zeros(len(head["places"]) + 1, np.uint64)
        for topic_id, topic, partition, offset in head["places"]:
            place = Place(UUID(topic_id), At(topic, partition))
            number = memory.places.number(place)
            if place in ends:
                limits[number] = covered[place] = min(offset, ends[place])
            else:
                memory.places.dead[number] = 1
        for entries in reader.entries():
            numbers = place_of(entries).astype(np.int64)
            if len(numbers) and numbers.max() >= len(head["places"]):
                raise DamagedIndex("the snapshot names places that it does not list")
            known = entries[(entries[:, 3] < limits[numbers]) & (time_of(entries) > max(0, now_ms - window_ms))]
            memory.table.merge(np.ascontiguousarray(known), _FOREVER_MS, now_ms - window_ms, memory.places.dead)
        reader.check()
        if head["window_ms"] < window_ms:
            covered.clear()
    except (ValueError, KeyError, TypeError, StopIteration, OverflowError) as reason:
        raise DamagedIndex(f"the snapshot cannot be read: {reason!r}") from None
    return memory, covered


class _Reader:
    """Cuts parts of any size into a line and rows, and keeps the last bytes for the checksum."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""
        self._crc = 0

    def line(self) -> bytes:
        while b"\n" not in self._rest:
            self._rest += next(self._parts)
        line, _, self._rest = self._rest.partition(b"\n")
        self._crc = crc32c(line + b"\n")
        return line

    def entries(self) -> Iterator[Entries]:
        while True:
            usable = max(0, len(self._rest) - _CRC) // _ROW * _ROW
            rows, self._rest = self._rest[:usable], self._rest[usable:]
            self._crc = crc32c(rows, self._crc)
            yield np.frombuffer(rows, np.uint64).reshape(-1, 4)
            try:
                self._rest += next(self._parts)
            except StopIteration:
                return

    def check(self) -> None:
        if self._rest != self._crc.to_bytes(_CRC, "big"):
            raise DamagedIndex("the snapshot does not match its checksum")
