"""Files in a directory of their own, written whole or not at all: for what can be rebuilt from the log, only not as fast.

    <data>/dedup/<name>      what `broker/dedup` puts down

Everything here blocks: it is called in worker threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from levada.config import MiB
from levada.log.disk import Disk

_PART: Final = 4 * MiB
_NEW: Final = ".new"


class DirectoryShelf:
    """A directory of named pieces of bytes; made when the first is written."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk

    def names(self) -> list[str]:
        if not self._disk.exists(str(self._path)):
            return []
        return [name for name in self._disk.listdir(str(self._path)) if not name.endswith(_NEW)]

    def read(self, name: str) -> bytes | None:
        try:
            return self._disk.read(str(self._path / name))
        except FileNotFoundError:
            return None

    def parts(self, name: str) -> Iterator[bytes]:
        try:
            file = self._disk.open(str(self._path / name))
        except FileNotFoundError:
            return
        try:
            position = 0
            while part := file.pread(position, _PART):
                yield bytes(part)
                position += len(part)
        finally:
            file.close()

    def begin(self, name: str) -> Piece:
        self._disk.mkdir(str(self._path))
        return Piece(self._path, name, self._disk)

    def remove(self, name: str) -> None:
        self._disk.unlink(str(self._path / name))


class Piece:
    """A file that gets its name once all of it is on the disk."""

    def __init__(self, path: Path, name: str, disk: Disk) -> None:
        self._path = path
        self._name = name
        self._disk = disk
        self._new = str(path / (name + _NEW))
        disk.unlink(self._new)
        self._file = disk.create(self._new)

    def write(self, part: bytes) -> None:
        self._file.append(part)

    def finish(self) -> None:
        self._file.sync()
        self._file.close()
        self._disk.rename(self._new, str(self._path / self._name))
        self._disk.fsync_dir(str(self._path))

    def discard(self) -> None:
        self._file.close()
        self._disk.unlink(self._new)
