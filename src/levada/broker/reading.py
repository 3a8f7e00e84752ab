"""Reading once, outside of any group: some records of one partition from an offset on."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from levada.config import MiB
from levada.engine.port import At, Bounds, Engine, Isolation, Slice
from levada.errors import InvalidRequest, OffsetOutOfRange
from levada.records.batch import batches
from levada.records.read import Record, read_all

RECORDS: Final = 100
RECORDS_MAX: Final = 10_000
BYTES: Final = MiB
BYTES_MAX: Final = 32 * MiB
WAIT_MS_MAX: Final = 60_000
#: What a record counts for beside its key, value and headers.
_RECORD_OVERHEAD: Final = 32


class OutOfRange(enum.Enum):
    """What to do where the partition does not hold the offset."""

    FAIL = "fail"
    TO_EARLIEST = "earliest"
    TO_LATEST = "latest"


class Reading(NamedTuple):
    """Some records, how far the partition goes, and where to read on."""

    records: Sequence[Record]
    start: int
    end: int
    next_offset: int


async def read_records(
    engine: Engine,
    at: At,
    offset: int,
    *,
    limit: int = RECORDS,
    bytes_max: int = BYTES,
    wait_ms: int = 0,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    out_of_range: OutOfRange = OutOfRange.FAIL,
) -> Reading:
    """At most `limit` records and about `bytes_max` bytes, at least one where there is one; waits for the first.

    UnknownTopic, UnknownPartition, OffsetOutOfRange; InvalidRequest for limits that are none.
    """
    _check("limit", limit, 1, RECORDS_MAX)
    _check("bytes_max", bytes_max, 1, BYTES_MAX)
    _check("wait_ms", wait_ms, 0, WAIT_MS_MAX)
    deadline = time.monotonic() + wait_ms / 1000
    while True:
        left_ms = max(0, round((deadline - time.monotonic()) * 1000))
        try:
            found = await engine.read(at, offset, bytes_max, left_ms, isolation)
        except OffsetOutOfRange as refusal:
            if out_of_range == OutOfRange.FAIL:
                raise
            offset = refusal.start if out_of_range == OutOfRange.TO_EARLIEST else refusal.end
            continue
        if not found.batches:
            return Reading((), found.bounds.start, _end(found.bounds, isolation), offset)
        records, next_offset = _some(found, offset, limit, bytes_max, isolation)
        if records:
            return Reading(records, found.bounds.start, _end(found.bounds, isolation), next_offset)
        offset = next_offset  # nothing but markers, aborted or compacted records: go on behind them


def _some(
    found: Slice, offset: int, limit: int, bytes_max: int, isolation: Isolation
) -> tuple[list[Record], int]:
    records: list[Record] = []
    size = 0
    seen = read_all(
        found.batches,
        from_offset=offset,
        aborted=found.aborted,
        committed_only=isolation == Isolation.READ_COMMITTED,
    )
    for record in seen:
        size += _size(record)
        if records and (len(records) == limit or size > bytes_max):
            return records, records[-1].offset + 1
        records.append(record)
    return records, max(offset, max(batch.next_offset for batch in batches(found.batches)))


def _size(record: Record) -> int:
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


def _end(bounds: Bounds, isolation: Isolation) -> int:
    return bounds.stable_end if isolation == Isolation.READ_COMMITTED else bounds.end


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidRequest(f"{name} {value}: must be from {low} to {high}")
