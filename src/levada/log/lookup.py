"""Finding a record by its timestamp. The indexes say where to begin; the batches are opened only where it is found.

What goes wrong on the way is told as by `Layout.read`: BrokenSegment, Retired.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from levada.config import MiB
from levada.log.results import Found
from levada.log.scan import Unreadable
from levada.log.snapshots import BrokenSegment
from levada.records.batch import Batch, batches
from levada.records.read import read

if TYPE_CHECKING:
    from levada.log.log import Log

_CHUNK: Final = MiB


def offset_at(log: Log, timestamp_ms: int, end_offset: int) -> Found | None:
    """The first record from the log's start on, below `end_offset`, whose timestamp is not before this one."""
    start = log.start_offset
    segments = log.segments
    for number, segment in enumerate(segments):
        if segment.base_offset >= end_offset:
            break
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if following <= start or segment.largest_timestamp()[0] < timestamp_ms:
            continue
        try:
            first = max(start, segment.seek_time(timestamp_ms))
        except Unreadable as where:
            raise BrokenSegment(segment, where) from None
        for batch in _batches(log, first, min(following, end_offset)):
            if batch.max_timestamp >= timestamp_ms:
                for record in read(batch):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                        return Found(record.offset, record.timestamp_ms, batch.leader_epoch)
    return None


def max_timestamp(log: Log, end_offset: int) -> Found | None:
    """The first record that has the largest timestamp; None when there is no record, or it is not below `end_offset`."""
    largest = max(
        (segment.largest_timestamp() for segment in log.segments), key=lambda found: found[0], default=(-1, 0)
    )
    if largest[0] < 0:
        return None
    for batch in _batches(log, max(largest[1], log.start_offset), end_offset):
        # Below the start offset it is not there any more: the largest that is left counts then.
        if largest[1] < log.start_offset:
            return _largest_left(log, end_offset)
        return _with_timestamp(batch, largest[0])
    return None


def _largest_left(log: Log, end_offset: int) -> Found | None:
    best: Batch | None = None
    for batch in _batches(log, log.start_offset, end_offset):
        if batch.record_count and (best is None or batch.max_timestamp > best.max_timestamp):
            best = batch
    return None if best is None else _with_timestamp(best, best.max_timestamp)


def _with_timestamp(batch: Batch, timestamp_ms: int) -> Found:
    for record in read(batch):
        if record.timestamp_ms == timestamp_ms:
            return Found(record.offset, timestamp_ms, batch.leader_epoch)
    # Compaction took the record and left the batch's header as it was.
    return Found(batch.last_offset, timestamp_ms, batch.leader_epoch)


def _batches(log: Log, offset: int, end_offset: int) -> Iterator[Batch]:
    """The batches from the one that holds the offset on, all below `end_offset`."""
    while offset < end_offset:
        data = log.read(offset, _CHUNK, end_offset)
        if not data:
            return
        for batch in batches(data):
            yield batch
            offset = batch.next_offset
