"""Appending and reading: offsets, rolling, limits, duplicates, and how little is read for it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from levada.config import DAY_MS, TopicConfig
from levada.errors import InvalidProducerEpoch, OffsetOutOfRange, OutOfOrderSequence, StorageFailed
from levada.log.disk import Disk, WouldBlock
from levada.log.files import Files
from levada.log.index import RELATIVE_OFFSET_MAX
from levada.log.results import Aborted, Appended, Found
from levada.records.batch import Batch, batches
from levada.records.build import build
from levada.records.read import Record
from support.batches import make_batch, make_marker
from support.logs import NOW_MS, append, contents, fill, open_log, read_batches, read_records, sync, tiny
from support.simulated_disk import SimulatedDisk


def test_an_append_gets_the_next_offsets_and_is_read_back() -> None:
    log = open_log(SimulatedDisk())
    assert append(log, count=3) == Appended(0, 2)
    assert append(log, count=2) == Appended(3, 4)
    assert [record.offset for record in read_records(log)] == [0, 1, 2, 3, 4]
    assert [batch.leader_epoch for batch in read_batches(log)] == [0, 0]


def test_a_log_is_the_same_after_it_was_closed() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    expected = contents(log)
    log.close()
    log = open_log(disk, clean=True)
    assert contents(log) == expected
    assert append(log).base_offset == 36


def test_a_closed_log_takes_no_writes() -> None:
    log = open_log(SimulatedDisk())
    log.close()
    with pytest.raises(StorageFailed, match="is closed"):
        append(log)


def test_the_log_says_what_the_brokers_clock_stamped() -> None:
    log = open_log(SimulatedDisk())
    batch = make_batch(1)
    batch.stamp_append_time(12345)
    assert append(log, batch).timestamp_ms == 12345
    assert append(log).timestamp_ms == -1


# Producers


def test_a_repeat_is_answered_with_the_first_copy_and_not_written() -> None:
    log = open_log(SimulatedDisk())
    first = append(log, producer_id=1, sequence=0)
    size = log.size_bytes
    repeat = append(log, producer_id=1, sequence=0)
    assert repeat == first._replace(duplicate=True)
    assert (log.size_bytes, log.end_offset) == (size, 3)


def test_a_gap_in_the_sequence_is_refused_and_changes_nothing() -> None:
    log = open_log(SimulatedDisk())
    append(log, producer_id=1, sequence=0, producer_epoch=1)
    with pytest.raises(OutOfOrderSequence):
        append(log, producer_id=1, sequence=7, producer_epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        append(log, producer_id=1, sequence=3, producer_epoch=0)
    assert log.end_offset == 3


def test_the_broker_may_write_for_a_producer_without_a_sequence() -> None:
    log = open_log(SimulatedDisk())
    append(log, producer_id=1, sequence=0, transactional=True)
    batch = make_batch(1, producer_id=1, sequence=-1, transactional=True)
    assert log.append(batch, leader_epoch=0, now_ms=NOW_MS, sequences=False).base_offset == 3


def test_aborted_transactions_are_told_by_range() -> None:
    log = open_log(SimulatedDisk())
    append(log, producer_id=1, sequence=0, transactional=True)
    assert log.first_unstable_offset == 0
    append(log, make_marker(producer_id=1, commit=False))
    assert log.first_unstable_offset is None
    fill(log, 10)
    append(log, producer_id=2, sequence=0, transactional=True)
    append(log, make_marker(producer_id=2, commit=False))
    assert log.aborted(0, 5) == [Aborted(1, 0)]
    assert log.aborted(5, 20) == []
    assert log.aborted(0, log.end_offset) == [Aborted(1, 0), Aborted(2, 34)]


# Rolling


def test_a_segment_is_rolled_before_it_grows_too_large() -> None:
    log = open_log(SimulatedDisk(), tiny(segment_bytes=300))
    fill(log, 10)
    assert len(log.segments) > 2
    assert all(0 < segment.size <= 300 for segment in log.segments)


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = open_log(SimulatedDisk(), tiny(segment_bytes=100))
    append(log, value=b"x" * 200)
    append(log, value=b"x" * 200)
    assert len(log.segments) == 2 and len(contents(log)) == 2


def test_a_segment_is_rolled_when_the_records_time_has_moved_on() -> None:
    log = open_log(SimulatedDisk(), tiny(segment_bytes=10_000, segment_ms=DAY_MS))
    append(log, timestamp_ms=NOW_MS)
    append(log, timestamp_ms=NOW_MS + DAY_MS // 2)
    assert len(log.segments) == 1
    append(log, timestamp_ms=NOW_MS + DAY_MS + 5)
    assert len(log.segments) == 2


def test_without_timestamps_the_brokers_clock_counts() -> None:
    log = open_log(SimulatedDisk(), tiny(segment_bytes=10_000, segment_ms=1000))
    records = [Record(0, -1, b"k", b"v")]
    append(log, make_batch(records=records))
    append(log, make_batch(records=records), now_ms=NOW_MS + 1000)
    assert len(log.segments) == 1
    append(log, make_batch(records=records), now_ms=NOW_MS + 1001)
    assert len(log.segments) == 2


def test_jitter_lets_a_segment_be_rolled_earlier() -> None:
    log = open_log(SimulatedDisk(), tiny(segment_bytes=10_000, segment_ms=1000, segment_jitter_ms=900))
    log.segments[-1].jitter_ms = 900
    append(log, count=1, timestamp_ms=NOW_MS)
    append(log, count=1, timestamp_ms=NOW_MS + 101)
    assert len(log.segments) == 2


def test_a_segment_is_rolled_when_its_index_is_full() -> None:
    log = open_log(SimulatedDisk(), tiny(segment_bytes=100_000, index_interval_bytes=0, segment_index_bytes=48))
    for number in range(10):
        append(log, count=1, timestamp_ms=NOW_MS + number)
    assert len(log.segments) > 1
    assert all(len(segment.opened().indexes.times) <= 4 for segment in log.segments)


def test_a_segment_is_rolled_before_an_offset_does_not_fit_its_index() -> None:
    log = open_log(SimulatedDisk(), tiny(segment_bytes=100_000))
    append(log, count=1)
    wide = make_batch(records=[Record(0, NOW_MS, b"k", b"v"), Record(RELATIVE_OFFSET_MAX, NOW_MS, b"k", b"v")])
    append(log, wide)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert append(log).base_offset == RELATIVE_OFFSET_MAX + 2
    assert len(contents(log)) == 3


# Reading


@pytest.mark.parametrize("max_bytes", [0, 1, 119, 120, 300, 100_000])
def test_a_read_gives_whole_batches_that_fit_and_at_least_one(max_bytes: int) -> None:
    log = open_log(SimulatedDisk(), TopicConfig())
    fill(log, 10)
    size = len(contents(log)[0])
    found = list(batches(log.read(0, max_bytes, log.end_offset)))
    assert len(found) == min(10, max(1, max_bytes // size))


def test_an_offset_within_a_batch_gives_the_whole_batch() -> None:
    log = open_log(SimulatedDisk())
    fill(log, 5)
    for offset in range(15):
        assert next(batches(log.read(offset, 1, 15))).base_offset == offset // 3 * 3


def test_nothing_at_or_beyond_the_given_end_is_read() -> None:
    log = open_log(SimulatedDisk())
    fill(log, 8)
    for end in range(0, 25, 3):
        assert sum(batch.record_count for batch in read_batches(log, 0, max_bytes=10_000, end_offset=end)) == end
    assert log.read(24, 100, 24) == b""
    assert log.read(6, 100, 3) == b""


def test_an_offset_that_is_not_there_is_refused_with_the_range() -> None:
    log = open_log(SimulatedDisk())
    fill(log, 3)
    log.trim(4)
    for offset in (-1, 3, 10):
        with pytest.raises(OffsetOutOfRange) as refused:
            log.read(offset, 100, 9)
        assert (refused.value.start, refused.value.end) == (4, 9)


def test_a_reader_that_goes_on_where_it_stopped_reads_no_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, TopicConfig())
    fill(log, 200, count=1, value=b"v" * 200)
    reads: list[str] = []
    log.read(0, 2000, 200)
    disk.fault = lambda what, path: reads.append(what) if what == "read" else None
    offset = next(reversed(list(batches(log.read(0, 2000, 200))))).next_offset
    rounds = 0
    reads.clear()
    while offset < 190:
        offset = list(batches(log.read(offset, 2000, 200)))[-1].next_offset
        rounds += 1
    assert rounds > 10 and len(reads) == rounds


def test_a_reader_at_the_end_reads_once_per_append() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, TopicConfig())
    fill(log, 50)
    reads: list[str] = []
    disk.fault = lambda what, path: reads.append(what) if what == "read" else None
    for number in range(300):
        offset = append(log).base_offset
        assert len(list(batches(log.read(offset, 1 << 20, log.end_offset)))) == 1
        # The visible end may lag behind.
        assert log.read(offset, 1 << 20, offset) == b""
        assert len(reads) == number + 1


def test_a_cold_segment_is_not_waited_for() -> None:
    log = open_log(SimulatedDisk())
    fill(log)
    sync(log)
    for segment in log.segments[:-1]:
        segment.release()
    with pytest.raises(WouldBlock):
        log.read(0, 100, log.end_offset, nowait=True)
    assert log.read(0, 100, log.end_offset)
    assert log.read(0, 100, log.end_offset, nowait=True)


def test_few_files_are_open_however_many_segments_there_are(tmp_path: Path) -> None:
    files = Files(open_max=3)
    log = open_log(Disk(), path=str(tmp_path / "topic-0"), files=files)
    fill(log, 60)
    sync(log)
    contents(log)
    assert len(log.segments) > 10 and len(files) == 3


# Time


def test_a_timestamp_finds_the_first_record_that_is_not_older() -> None:
    log = open_log(SimulatedDisk())
    for number in range(20):
        append(log, count=2, timestamp_ms=NOW_MS + 100 * number)
    assert log.offset_at(NOW_MS) == Found(0, NOW_MS, 0)
    assert log.offset_at(NOW_MS + 1) == Found(1, NOW_MS + 1, 0)
    assert log.offset_at(NOW_MS + 2) == Found(2, NOW_MS + 100, 0)
    assert log.offset_at(NOW_MS + 1901) == Found(39, NOW_MS + 1901, 0)
    assert log.offset_at(NOW_MS + 1902) is None
    assert log.offset_at(NOW_MS + 1901, end_offset=39) is None
    log.trim(5)
    assert log.offset_at(0) == Found(5, NOW_MS + 201, 0)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_found_in_compressed_batches(codec: str) -> None:
    log = open_log(SimulatedDisk())
    append(log, count=5, codec=codec, timestamp_ms=NOW_MS)
    assert log.offset_at(NOW_MS + 3) == Found(3, NOW_MS + 3, 0)


def test_the_largest_timestamp_is_found_wherever_it_is() -> None:
    log = open_log(SimulatedDisk())
    assert log.max_timestamp() is None
    for number in (3, 9, 5, 1, 9, 2, 7, 1, 1, 1):
        append(log, count=2, timestamp_ms=NOW_MS + 100 * number)
    assert log.max_timestamp() == Found(3, NOW_MS + 901, 0)
    assert log.max_timestamp(end_offset=2) is None
    log.trim(4)
    assert log.max_timestamp() == Found(9, NOW_MS + 901, 0)
    log.trim(12)
    assert log.max_timestamp() == Found(13, NOW_MS + 701, 0)


# Getting shorter


def test_a_truncated_log_forgets_what_it_held() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(12):
        append(log, producer_id=1, sequence=3 * number)
        read_batches(log, max(0, log.end_offset - 3))
    log.truncate(16, NOW_MS)
    assert log.end_offset == log.synced_offset == 15
    assert append(log, count=2, producer_id=1, sequence=15, value=b"another size").base_offset == 15
    assert append(log, count=9, producer_id=1, sequence=17).base_offset == 17
    expected = [(0, 2), (3, 5), (6, 8), (9, 11), (12, 14), (15, 16), (17, 25)]
    assert [(batch.base_offset, batch.last_offset) for batch in read_batches(log)] == expected
    for offset in range(26):
        found = next(batches(log.read(offset, 1, 26)))
        assert found.base_offset <= offset <= found.last_offset
    again = open_log(disk, recovery_point=15)
    assert contents(again) == contents(log)
    assert again.producers.snapshot() == log.producers.snapshot()


def test_a_truncated_log_forgets_epochs_and_aborted_transactions() -> None:
    log = open_log(SimulatedDisk())
    append(log, producer_id=1, sequence=0, transactional=True)
    log.append(make_marker(producer_id=1, commit=False), leader_epoch=1, now_ms=NOW_MS)
    assert [tuple(entry) for entry in log.epochs] == [(0, 0), (1, 3)]
    log.truncate(3, NOW_MS)
    assert [tuple(entry) for entry in log.epochs] == [(0, 0)]
    assert log.aborted(0, 3) == [] and log.first_unstable_offset == 0


def test_epochs_are_found_again_when_their_file_was_not_written() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for epoch in (0, 0, 2, 2, 5):
        log.append(make_batch(2), leader_epoch=epoch, now_ms=NOW_MS)
    log = open_log(disk)
    assert [tuple(entry) for entry in log.epochs] == [(0, 0), (2, 4), (5, 8)]


def test_trimming_moves_the_start_and_survives() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 10)
    log.trim(7)
    with pytest.raises(OffsetOutOfRange):
        log.trim(31)
    with pytest.raises(OffsetOutOfRange):
        log.trim(6)
    assert open_log(disk).start_offset == 7
    log.trim(30)
    log = open_log(disk)
    assert (log.start_offset, log.end_offset) == (30, 30)


# Threads


def test_readers_and_a_syncer_run_beside_the_writer(tmp_path: Path) -> None:
    """Every batch a reader sees is the one that was written there, however the writer rolls and deletes meanwhile."""
    log = open_log(Disk(), tiny(segment_bytes=2000, retention_bytes=20_000), path=str(tmp_path / "topic-0"))
    stop, failures = threading.Event(), []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def expected(offset: int) -> bytes:
        return b"%d" % offset

    def reader() -> None:
        offset = 0
        while not stop.is_set():
            end = log.end_offset
            try:
                data = log.read(offset, 700, end)
            except OffsetOutOfRange:
                offset = log.start_offset
                continue
            for batch in batches(data):
                if not (batch.base_offset <= offset <= batch.last_offset < end) or expected(
                    batch.base_offset
                ) not in bytes(batch.view):
                    failures.append(f"{batch} at {offset}, end {end}")
                    return
                offset = batch.next_offset

    def syncer() -> None:
        while not stop.is_set():
            before = log.end_offset
            if log.sync() < before:
                failures.append("a sync covers what was there when it began")

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as reason:
            failures.append(repr(reason))

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (reader, reader, reader, syncer)]
    for thread in threads:
        thread.start()
    try:
        for number in range(1000):
            offset = log.end_offset
            value = expected(offset) + b"x" * (number % 90)
            append(log, Batch(memoryview(build([(None, value)], timestamp_ms=NOW_MS))))
            if number % 100 == 0:
                log.mark_synced(log.synced_offset)
                log.retain(NOW_MS)
                log.purge(NOW_MS + DAY_MS)
            if failures:
                break
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not failures
    log.close()
