"""The seam to the operating system, on a real file system."""

from __future__ import annotations

import errno
import gc
import os
import threading
from pathlib import Path

import pytest

from levada.log.disk import Disk, WouldBlock


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_appended_bytes_are_read_back_by_position(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(str(tmp_path / "a"))
    assert [file.append(b"one"), file.append(memoryview(b"three")), file.size] == [0, 3, 8]
    assert file.pread(3, 5) == b"three"
    assert file.pread(6, 100) == b"ee"
    assert file.pread(8, 100) == b""


def test_what_is_in_the_page_cache_is_read_without_waiting(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(str(tmp_path / "a"))
    file.append(b"x" * 10_000)
    assert file.pread(9_000, 5_000, nowait=True) == b"x" * 1_000


def test_cold_pages_are_not_waited_for(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.create(str(tmp_path / "a"))
    file.append(b"x" * 100)

    def cold(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "cold")

    monkeypatch.setattr(os, "preadv", cold)
    with pytest.raises(WouldBlock):
        file.pread(0, 10, nowait=True)
    assert file.pread(0, 10) == b"x" * 10


def test_a_file_system_that_cannot_tell_reads_as_usual(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.create(str(tmp_path / "a"))
    file.append(b"x" * 100)
    calls = []

    def unsupported(*_: object) -> int:
        calls.append(1)
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "preadv", unsupported)
    assert file.pread(0, 10, nowait=True) == b"x" * 10
    assert file.pread(0, 10, nowait=True) == b"x" * 10
    assert len(calls) == 1


def test_a_short_write_is_finished(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.create(str(tmp_path / "a"))
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: whole(fd, bytes(data)[:3], position))
    file.append(b"0123456789")
    assert file.pread(0, 100) == b"0123456789"


def test_a_failed_write_is_cut_back(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.create(str(tmp_path / "a"))
    file.append(b"whole")
    whole, calls = os.pwrite, []

    def full(fd: int, data: bytes, position: int) -> int:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return whole(fd, bytes(data)[:2], position)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="full"):
        file.append(b"torn")
    assert (file.size, os.path.getsize(file.path)) == (5, 7)
    file.truncate(file.size)
    assert os.path.getsize(file.path) == 5


def test_a_file_is_created_once(disk: Disk, tmp_path: Path) -> None:
    disk.create(str(tmp_path / "a"))
    with pytest.raises(FileExistsError):
        disk.create(str(tmp_path / "a"))


def test_a_closed_file_stays_open_for_the_thread_that_uses_it(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(str(tmp_path / "a"))
    file.append(b"x")
    started, closed, outcome = threading.Event(), threading.Event(), []
    handle = file._handle

    def use() -> None:
        mine = file._handle
        started.set()
        closed.wait()
        outcome.append(os.pread(mine.fd, 1, 0))

    thread = threading.Thread(target=use)
    thread.start()
    started.wait()
    fd = handle.fd
    del handle
    file.close()
    closed.set()
    thread.join()
    del thread
    gc.collect()
    assert outcome == [b"x"]
    with pytest.raises(OSError):
        os.fstat(fd)
    with pytest.raises(OSError):
        file.append(b"y")


def test_a_small_file_is_replaced_as_a_whole(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    disk.atomic_write(path, b"one")
    disk.atomic_write(path, b"")
    disk.atomic_write(path, b"three")
    assert disk.read(path) == b"three"
    assert disk.listdir(str(tmp_path)) == ["a"]


def test_directories_and_names(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "x" / "y")
    assert disk.mkdir(path) and not disk.mkdir(path)
    disk.create(path + "/a").append(b"12345")
    disk.rename(path + "/a", path + "/b")
    disk.fsync_dir(path)
    assert (disk.exists(path + "/a"), disk.size(path + "/b")) == (False, 5)
    assert disk.modified_ms(path + "/b") > 1_600_000_000_000
    disk.unlink(path + "/a")
    assert disk.free_bytes(path) > 0
    disk.remove_tree(str(tmp_path / "x"))
    disk.remove_tree(str(tmp_path / "x"))
    assert not disk.exists(path)
    with pytest.raises(FileNotFoundError):
        disk.open(path + "/b")
