"""Deleting old segments: by time, by size, below the start; never beyond the floor; and by renaming first."""

from __future__ import annotations

import errno

import pytest

from levada.config import DAY_MS, HOUR_MS
from levada.errors import StorageFailed
from levada.log.log import Log
from levada.records.read import Record
from support.batches import make_batch
from support.logs import NOW_MS, append, contents, fill, open_log, read_batches, sync, tiny
from support.simulated_disk import SimulatedDisk


def aged(disk: SimulatedDisk, hours: int = 10, **settings: object) -> Log:
    """A segment an hour, three batches each."""
    log = open_log(disk, tiny(segment_bytes=10_000, **settings))
    for hour in range(hours):
        for _ in range(3):
            append(log, timestamp_ms=NOW_MS + hour * HOUR_MS)
        if hour + 1 < hours:
            log.roll(NOW_MS)
    sync(log)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_segments_whose_largest_timestamp_is_too_old_are_deleted() -> None:
    log = aged(SimulatedDisk(), retention_ms=5 * HOUR_MS)
    size = log.segments[0].size
    assert log.retain(NOW_MS + 8 * HOUR_MS) == 3 * size
    assert (log.start_offset, bases(log)[0]) == (27, 27)
    assert read_batches(log)[0].base_offset == 27


def test_the_active_segment_is_rolled_when_it_is_too_old_as_well() -> None:
    disk = SimulatedDisk()
    log = aged(disk, retention_ms=HOUR_MS)
    log.retain(NOW_MS + 2 * DAY_MS)
    assert (log.start_offset, log.end_offset, bases(log)) == (90, 90, [90])
    assert append(log).base_offset == 90
    assert open_log(disk, recovery_point=log.synced_offset).start_offset == 90


def test_an_empty_active_segment_stays() -> None:
    log = open_log(SimulatedDisk(), tiny(retention_ms=0))
    assert log.retain(NOW_MS + DAY_MS) == 0
    assert bases(log) == [0]


def test_without_timestamps_the_time_of_writing_counts() -> None:
    log = open_log(SimulatedDisk(), tiny(retention_ms=HOUR_MS))
    append(log, make_batch(records=[Record(0, -1, b"k", b"v")]))
    log.roll(NOW_MS)
    assert log.retain(HOUR_MS) == 0
    assert log.retain(HOUR_MS + 1) > 0


def test_segments_beyond_the_size_are_deleted_as_long_as_enough_is_left() -> None:
    log = aged(SimulatedDisk(), retention_ms=-1)
    size = log.segments[0].size
    log.config = tiny(retention_ms=-1, retention_bytes=6 * size + 1)
    assert log.retain(NOW_MS) == 3 * size
    assert log.size_bytes == 7 * size
    log.config = tiny(retention_ms=-1, retention_bytes=0)
    assert log.retain(NOW_MS) == 7 * size
    assert log.start_offset == log.end_offset == 90


def test_nothing_is_deleted_beyond_the_floor() -> None:
    log = aged(SimulatedDisk(), retention_ms=0)
    log.retain(NOW_MS + 9 * DAY_MS, floor=20)
    assert log.start_offset == 18
    log.retain(NOW_MS + 9 * DAY_MS, floor=27)
    assert log.start_offset == 27


def test_what_was_trimmed_goes_though_somebody_would_have_needed_it() -> None:
    log = aged(SimulatedDisk(), retention_ms=0)
    log.trim(20)
    assert log.retain(NOW_MS + 9 * DAY_MS, floor=5) > 0
    assert (log.start_offset, bases(log)[0]) == (20, 18)


def test_what_is_overdue_is_measured_without_the_floor() -> None:
    log = aged(SimulatedDisk(), retention_ms=5 * HOUR_MS)
    size = log.segments[0].size
    log.retain(NOW_MS + 8 * HOUR_MS, floor=9)
    assert log.overdue_bytes(NOW_MS + 8 * HOUR_MS) == 2 * size
    assert log.start_offset == 9


def test_a_compacted_log_deletes_only_what_was_trimmed() -> None:
    log = aged(SimulatedDisk(), retention_ms=0, compact=True, delete=False)
    assert log.retain(NOW_MS + 9 * DAY_MS) == 0
    log.trim(20)
    assert bases(log)[0] == 0
    assert log.retain(NOW_MS) == 2 * log.segments[0].size
    assert (log.start_offset, bases(log)[0]) == (20, 18)


def test_files_are_renamed_first_and_removed_later() -> None:
    disk = SimulatedDisk()
    log = aged(disk, retention_ms=0, file_delete_delay_ms=1000)
    files = [path for path in disk.paths() if not path.endswith("checkpoint")]
    log.retain(NOW_MS + DAY_MS, floor=9)
    first = [path for path in files if "/00000000000000000000." in path]
    assert len(first) == 3
    assert all(path + ".deleted" in disk.paths() and path not in disk.paths() for path in first)
    log.purge(NOW_MS + DAY_MS + 999)
    assert all(path + ".deleted" in disk.paths() for path in first)
    log.purge(NOW_MS + DAY_MS + 1000)
    assert not [path for path in disk.paths() if path.endswith(".deleted")]


def test_deleted_segments_do_not_come_back() -> None:
    disk = SimulatedDisk()
    log = aged(disk, retention_ms=0)
    files = {path: disk.read(path) for path in disk.paths()}
    log.retain(NOW_MS + DAY_MS, floor=45)
    expected = contents(log)
    # The renames were lost with the power.
    for path, data in files.items():
        if not path.endswith("checkpoint"):
            disk.replace(path, data)
    log = open_log(disk, tiny(), recovery_point=log.synced_offset, same_boot=False)
    assert (log.start_offset, contents(log)) == (45, expected)
    log.retain(NOW_MS)
    assert bases(log)[0] == 45


def test_retention_makes_room_on_a_full_disk() -> None:
    disk = SimulatedDisk()
    log = aged(disk, retention_ms=0)
    disk.room = disk.free_bytes("/") and 0
    assert log.retain(NOW_MS + DAY_MS) > 0
    assert log.start_offset == 81
    disk.room = None
    sync(log)
    assert open_log(disk, recovery_point=log.synced_offset).start_offset == 81


def test_a_producer_is_remembered_when_its_records_are_gone() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, tiny(retention_ms=0))
    append(log, producer_id=7, sequence=0)
    log.retain(NOW_MS + DAY_MS)
    assert log.start_offset == 3
    log.purge(NOW_MS + 2 * DAY_MS)
    log = open_log(disk, recovery_point=log.synced_offset)
    assert log.producers.get(7) is not None
    assert append(log, producer_id=7, sequence=3).base_offset == 3


def test_a_damaged_log_keeps_all_it_has() -> None:
    disk = SimulatedDisk()
    log = aged(disk, retention_ms=0)
    log.close()
    disk.flip(log.segments[-1].path, 70, 1)
    log = open_log(disk, tiny(retention_ms=0), clean=True)
    assert log.scrub() is not None
    assert log.retain(NOW_MS + DAY_MS) == 0


def test_a_disk_that_fails_while_deleting_says_so() -> None:
    disk = SimulatedDisk()
    log = aged(disk, retention_ms=0)
    disk.fail("rename", errno.EIO, path_ends=".log")
    with pytest.raises(StorageFailed, match="Input/output error"):
        log.retain(NOW_MS + DAY_MS, floor=45)
    disk.fault = None
    fill(log, 1)
    assert (log.start_offset, len(contents(log))) == (45, 16)
