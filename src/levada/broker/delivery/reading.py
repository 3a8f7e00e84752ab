"""Read some records of one partition, once, outside of any group."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from levada.broker.delivery.cut import cut
from levada.broker.delivery.opener import UNPACKED_BYTES_MAX, Opener
from levada.config import MiB
from levada.engine.port import At, Engine, Isolation, Slice
from levada.errors import InvalidRequest, OffsetOutOfRange, RecordError
from levada.records.batch import batches
from levada.records.read import Record, read_all

LIMIT: Final = 100
LIMIT_MAX: Final = 10_000
BYTES_MAX: Final = 1 * MiB


class OutOfRange(enum.Enum):
    """What to do where the offset is not in the partition (any more)."""

    FAIL = "fail"
    TO_EARLIEST = "earliest"
    TO_LATEST = "latest"


class Portion(NamedTuple):
    """What was read; what the partition held then, `end` being the end of what this reader may see; and where to read on."""

    records: Sequence[Record]
    start: int
    end: int
    next_offset: int


async def read_once(
    engine: Engine,
    at: At,
    offset: int,
    *,
    limit: int = LIMIT,
    bytes_max: int = BYTES_MAX,
    wait_ms: int = 0,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    out_of_range: OutOfRange = OutOfRange.FAIL,
    now_ms: Callable[[], int],
    opener: Opener | None = None,
) -> Portion:
    """Up to `limit` records within `bytes_max`, at least one where there is one; waits up to `wait_ms` for the first.

    OffsetOutOfRange with the range there is, unless `out_of_range` says where to go instead. InvalidRequest. A RecordError where a
    batch cannot be opened, naming its offset, unless there are records before it.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(f"{limit} records were asked for; it must be from 1 to {LIMIT_MAX}")
    if bytes_max < 1 or wait_ms < 0:
        raise InvalidRequest(f"bytes_max is {bytes_max} and wait_ms {wait_ms}; they cannot be that small")
    deadline = now_ms() + wait_ms
    offset = await _within(engine, at, offset, out_of_range)
    basket = _Basket(limit, bytes_max)
    opener = opener or Opener()
    while True:
        patience = 0 if basket.records else max(0, deadline - now_ms())
        found = await engine.read(at, offset, min(basket.room, BYTES_MAX), patience, isolation)
        part = cut(found.batches, offset, limit)
        offset = await opener.open(part, partial(basket.fill, found, offset, isolation))
        if not found.batches or basket.is_full:
            end = found.bounds.stable_end if isolation == Isolation.READ_COMMITTED else found.bounds.end
            return Portion(basket.records, found.bounds.start, end, offset)


async def _within(engine: Engine, at: At, offset: int, out_of_range: OutOfRange) -> int:
    bounds = await engine.bounds(at)
    if bounds.start <= offset <= bounds.end:
        return offset
    if out_of_range == OutOfRange.FAIL:
        raise OffsetOutOfRange(
            f"{at}: offset {offset} is not within {bounds.start} to {bounds.end}", start=bounds.start, end=bounds.end
        )
    return bounds.start if out_of_range == OutOfRange.TO_EARLIEST else bounds.end


class _Basket:
    """Records up to a number and a size; the first one whatever its size."""

    def __init__(self, limit: int, bytes_max: int) -> None:
        self.records: list[Record] = []
        self.room = bytes_max
        self.is_full = False
        self._limit = limit

    def fill(self, found: Slice, offset: int, isolation: Isolation) -> int:
        """Add what fits of what is there from `offset` on; return where to read on."""
        try:
            return self._fill(found, offset, isolation)
        except RecordError:
            if not self.records:
                raise
            self.is_full = True
            return self.records[-1].offset + 1

    def _fill(self, found: Slice, offset: int, isolation: Isolation) -> int:
        records = read_all(
            found.batches,
            from_offset=offset,
            aborted=found.aborted,
            committed_only=isolation == Isolation.READ_COMMITTED,
            unpacked_bytes_max=UNPACKED_BYTES_MAX,
        )
        for record in records:
            size = size_of(record)
            if self.is_full or (self.records and size > self.room):
                self.is_full = True
                return offset
            self.records.append(record)
            self.room -= size
            self.is_full = len(self.records) == self._limit or self.room <= 0
            offset = record.offset + 1
        return max((offset, *(batch.next_offset for batch in batches(found.batches))))


def size_of(record: Record) -> int:
    """Roughly what the record needs in a message: its bytes, and some for its fields."""
    size = 32 + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 8 + len(name) + len(value or b"")
    return size
