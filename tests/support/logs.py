"""Logs for tests: tiny segments, so that rolling is ordinary."""

from __future__ import annotations

from typing import Any

from levada.config import TopicConfig
from levada.log.disk import Disk
from levada.log.files import Files
from levada.log.log import Log
from levada.log.results import Appended
from levada.records.batch import Batch, batches
from levada.records.read import Record, read
from support.batches import make_batch

PATH = "/data/topic-0"
NOW_MS = 1_700_000_000_000


def tiny(**changes: Any) -> TopicConfig:
    return TopicConfig(**{"segment_bytes": 400, "index_interval_bytes": 100, **changes})


def open_log(disk: Disk, config: TopicConfig | None = None, *, path: str = PATH, **how: Any) -> Log:
    """As after a crash of the process alone, unless told otherwise."""
    disk.mkdir(path)
    how = {"now_ms": NOW_MS, "files": Files(open_max=2), **how}
    return Log.open(path, config if config is not None else tiny(), disk, **how)


def append(log: Log, batch: Batch | None = None, *, count: int = 3, now_ms: int = NOW_MS, **fields: Any) -> Appended:
    made = batch if batch is not None else make_batch(count, **fields)
    return log.append(made, leader_epoch=0, now_ms=now_ms)


def fill(log: Log, batches: int = 12, **fields: Any) -> None:
    for _ in range(batches):
        append(log, **fields)


def sync(log: Log) -> int:
    """What the engine does: sync in a worker, then mark it on the loop."""
    offset = log.sync()
    log.mark_synced(offset)
    return offset


def read_batches(
    log: Log, offset: int | None = None, *, max_bytes: int = 1, end_offset: int | None = None
) -> list[Batch]:
    """Every batch from an offset on, as a consumer would fetch them."""
    at = log.start_offset if offset is None else offset
    end = log.end_offset if end_offset is None else end_offset
    found: list[Batch] = []
    while at < end:
        fetched = list(batches(log.read(at, max_bytes, end)))
        if not fetched:
            break
        found += fetched
        at = fetched[-1].next_offset
    return found


def read_records(log: Log) -> list[Record]:
    return [record for batch in read_batches(log, max_bytes=1 << 20) for record in read(batch)]


def contents(log: Log) -> list[bytes]:
    """The bytes of every batch."""
    return [bytes(batch.view) for batch in read_batches(log)]
