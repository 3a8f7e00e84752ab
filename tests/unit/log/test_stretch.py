from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levada.config import KiB, TopicConfig
from levada.log import stretch
from levada.log.disk import Disk
from levada.log.log import Log
from levada.log.results import Damage
from levada.log.stretch import Stretch, find
from levada.records.batch import batches
from support.logs import append, open_log, sync
from support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.skipif(stretch._cachestat() is None, reason="this kernel has no cachestat")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of any size."""
    monkeypatch.setattr(stretch, "STRETCH_BYTES_MIN", 1)


def make_log(path: Path, *, count: int = 40, segment_bytes: int = 2000) -> Log:
    log = open_log(Disk(), TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=300), path=str(path / "t-0"))
    for number in range(count):
        append(log, count=1 + number % 4, value=b"v" * (number * 7 % 90))
    return log


@pytest.fixture
def log(tmp_path: Path, small: None) -> Iterator[Log]:
    made = make_log(tmp_path)
    yield made
    made.close()


def bytes_of(found: Stretch) -> bytes:
    return os.pread(found.fileno(), len(found), found.position)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(offset=st.integers(0, 99), max_bytes=st.integers(1, 3000), end=st.integers(1, 100))
def test_a_stretch_is_what_reading_gives(log: Log, offset: int, max_bytes: int, end: int) -> None:
    end = min(end, log.end_offset)
    found = find(log, offset, max_bytes, end)
    if offset >= end:
        assert found is None
        return
    data = bytes(log.read(offset, max_bytes, end))
    if found is None:
        # Not even one batch fits, which reading gives all the same.
        assert not data or len(data) > max_bytes
        return
    assert bytes_of(found) == data
    *_, last = batches(data)
    assert found.end_offset == last.next_offset or last.next_offset <= found.end_offset <= end


def test_few_bytes_are_better_read(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    assert find(log, 0, 1 << 20, log.end_offset) is None
    log.close()


def test_many_bytes_are_sent_from_where_they_are(tmp_path: Path) -> None:
    log = open_log(Disk(), TopicConfig(), path=str(tmp_path / "t-0"))
    for _ in range(30):
        append(log, count=10, value=b"v" * KiB)
    found = find(log, 0, 200 * KiB, log.end_offset)
    assert found is not None
    assert 190 * KiB < len(found) <= 200 * KiB
    assert bytes_of(found) == bytes(log.read(0, 200 * KiB, log.end_offset))
    log.close()


def test_what_nobody_verified_is_read_first(tmp_path: Path, small: None) -> None:
    made = make_log(tmp_path, segment_bytes=100_000)
    sync(made)
    made.close()
    log = open_log(Disk(), TopicConfig(), path=str(tmp_path / "t-0"), clean=True)
    assert find(log, 0, 1 << 20, log.end_offset) is None
    log.read(0, 1 << 20, log.end_offset)
    assert find(log, 0, 1 << 20, log.end_offset) is not None
    log.close()


def test_what_is_not_in_the_page_cache_is_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(log, 0, 1 << 20, log.end_offset) is not None
    monkeypatch.setattr(stretch, "_is_cached", lambda fd, position, size: False)
    assert find(log, 0, 1 << 20, log.end_offset) is None


def test_pages_that_were_dropped_are_not_in_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (256 * KiB))
    fd = os.open(path, os.O_RDONLY)
    assert stretch._is_cached(fd, 100, 200 * KiB)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if not stretch._is_cached(fd, 100, 200 * KiB):
        os.pread(fd, 256 * KiB, 0)
        assert stretch._is_cached(fd, 100, 200 * KiB)
    os.close(fd)


def test_a_damaged_log_is_read(log: Log) -> None:
    log.damage = Damage("file", 0, 5, "broken")
    assert find(log, 0, 1 << 20, log.end_offset) is None


def test_a_file_that_is_not_on_a_real_disk_is_read(small: None) -> None:
    log = open_log(SimulatedDisk())
    append(log)
    assert find(log, 0, 1 << 20, log.end_offset) is None


def test_the_file_stays_open_as_long_as_somebody_sends_it(tmp_path: Path, small: None) -> None:
    log = make_log(tmp_path)
    found = find(log, 0, 1 << 20, log.end_offset)
    assert found is not None
    data = bytes_of(found)
    log.close()
    (Path(log.path) / f"{0:020}.log").unlink()
    rest = found.rest(10)
    assert bytes_of(rest) == data[10:]
