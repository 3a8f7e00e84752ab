"""The seam between the log and the operating system: every file the log touches, it touches through here.

Thin on purpose. Errors are the OSError the system gave; what they mean is for the log to say. Nothing is durable until
`File.sync` returned for the bytes and `Disk.fsync_dir` for the name. `tests/support/simulated_disk.py` has the same
interface in memory, and forgets what was not synced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from typing import Final

_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)


class WouldBlock(Exception):
    """The bytes are not in the page cache; reading them would wait for the disk."""


def _sync_function() -> Callable[[int], None]:
    """fdatasync; on macOS, where neither it nor fsync reaches the platter, F_FULLFSYNC."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:

        def full_sync(fd: int) -> None:
            fcntl.fcntl(fd, full)

        return full_sync
    return getattr(os, "fdatasync", os.fsync)


_sync: Final = _sync_function()


class _Handle:
    """A file descriptor that closes itself when the last one who uses it lets go.

    A worker thread may be in the middle of fdatasync or pread when the loop closes the file or the cache of open files
    evicts it. It holds its own reference meanwhile, so the number is not given to another file under its hands.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self.fd)


_CLOSED: Final = _Handle(-1)


class File:
    """An open file. `size` is where the next append goes; one writer, any number of readers."""

    __slots__ = ("_handle", "_nowait", "path", "size")

    path: str
    size: int

    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        self._handle = _Handle(os.open(path, flags | os.O_CLOEXEC, 0o644))
        self._nowait = _NOWAIT
        self.size = os.fstat(self._handle.fd).st_size

    def append(self, data: bytes | bytearray | memoryview) -> int:
        """Write after the last byte and return the position. If it raises, `size` is as before and `truncate(size)` cuts
        what was written of it."""
        position = self.size
        length = len(data)
        written = os.pwrite(self._handle.fd, data, position)
        if written != length:
            self._append_rest(memoryview(data), position, written)
        self.size = position + length
        return position

    def _append_rest(self, data: memoryview, position: int, written: int) -> None:
        while written < len(data):
            written += os.pwrite(self._handle.fd, data[written:], position + written)

    def pread(self, position: int, size: int, *, nowait: bool = False) -> bytes | bytearray:
        """Up to `size` bytes; fewer at the end of the file or, with `nowait`, where the page cache ends.

        With `nowait`, WouldBlock when the first byte is not in the page cache. Where the file system cannot tell,
        it reads as usual.
        """
        handle = self._handle
        if not (nowait and self._nowait):
            return os.pread(handle.fd, size, position)
        buffer = bytearray(size)
        try:
            count = os.preadv(handle.fd, (buffer,), position, self._nowait)
        except BlockingIOError:
            raise WouldBlock from None
        except OSError as reason:
            if reason.errno != errno.EOPNOTSUPP:
                raise
            self._nowait = 0
            return os.pread(handle.fd, size, position)
        if count != size:
            del buffer[count:]
        return buffer

    def sync(self) -> None:
        """Wait until every byte written before this call is on the disk."""
        handle = self._handle
        _sync(handle.fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._handle.fd, size)
        self.size = size

    def close(self) -> None:
        """Let go of the file; whoever is reading or syncing it in another thread still finishes."""
        self._handle = _CLOSED


class Disk:
    """Files and directories by path."""

    def create(self, path: str) -> File:
        """A new, empty file to append to. FileExistsError when there is one."""
        return File(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, path: str) -> File:
        """An existing file, to read."""
        return File(path, os.O_RDONLY)

    def open_append(self, path: str) -> File:
        """An existing file, to read, append to and cut."""
        return File(path, os.O_RDWR)

    def read(self, path: str) -> bytes:
        """All of a small file. FileNotFoundError."""
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def replace(self, path: str, data: bytes | bytearray | memoryview) -> None:
        """Write a small file anew: the old content or the new, never a mixture. Durable once the directory is synced."""
        self._replace(path, data, sync=len(data) > 0)

    def replace_unsynced(self, path: str, data: bytes | bytearray | memoryview) -> None:
        """The same, but losing power may leave anything in it: for what can be told from garbage and made again."""
        self._replace(path, data, sync=False)

    def _replace(self, path: str, data: bytes | bytearray | memoryview, *, sync: bool) -> None:
        temporary = path + ".tmp"
        handle = _Handle(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        rest = memoryview(data)
        while len(rest):
            rest = rest[os.write(handle.fd, rest) :]
        if sync:
            _sync(handle.fd)
        del handle
        os.replace(temporary, path)

    def atomic_write(self, path: str, data: bytes | bytearray | memoryview) -> None:
        """`replace`, and durable when it returns."""
        self.replace(path, data)
        self.fsync_dir(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, replacing a file that has it."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def mkdir(self, path: str) -> bool:
        """Make the directory and those above it; False when it was there."""
        if os.path.isdir(path):
            return False
        os.makedirs(path, exist_ok=True)
        return True

    def fsync_dir(self, path: str) -> None:
        """Wait until the names in this directory are on the disk."""
        handle = _Handle(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        os.fsync(handle.fd)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def free_bytes(self, path: str) -> int:
        """Room left for us on the file system that holds this path."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize
