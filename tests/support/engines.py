"""Embedded engines for tests: on a directory, on a copy of it as a kill −9 would leave it, on disks that fail."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from levada.config import BrokerConfig
from levada.engine.embedded.engine import EmbeddedEngine, wall_clock_ms
from levada.engine.port import At, TopicSpec
from levada.log.disk import Disk, File


@asynccontextmanager
async def running(
    data: Path,
    *,
    disk: Disk | None = None,
    now_ms: Callable[[], int] = wall_clock_ms,
    settings: dict[str, str] | None = None,
    topic: dict[str, str] | None = None,
    node_id: int = 1,
) -> AsyncIterator[EmbeddedEngine]:
    """An engine that is closed at the end. `settings` and `topic` are the broker's."""
    config = BrokerConfig(data=data, settings=settings or {}, topic=topic or {}, node_id=node_id)
    engine = await EmbeddedEngine.open(data, config, now_ms=now_ms, disk=disk)
    try:
        yield engine
    finally:
        await engine.close()


async def make_topic(engine: EmbeddedEngine, name: str = "t", partitions: int = 1, **settings: str) -> At:
    """Settings with `_` for `.`."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    await engine.create(TopicSpec(name=name, partitions=partitions, settings=given))
    return At(name, 0)


def as_killed(data: Path, name: str = "killed") -> Path:
    """A copy of a directory that is in use: what a broker killed at this moment leaves to the next one."""
    target = data.with_name(name)
    shutil.copytree(data, target)
    return target


def forbid_syncs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on whatever waits for the disk fails on this thread."""
    here = threading.get_ident()

    def elsewhere(waits: Callable[..., None]) -> Callable[..., None]:
        def checked(*args: Any, **named: Any) -> None:
            assert threading.get_ident() != here, f"{waits.__name__} on the loop"
            waits(*args, **named)

        return checked

    for kind, name in ((Disk, "fsync_dir"), (Disk, "atomic_write"), (File, "sync")):
        monkeypatch.setattr(kind, name, elsewhere(getattr(kind, name)))


class ScarceDisk(Disk):
    """Has room for so many bytes, and then none until there is more."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room

    def take(self, size: int) -> None:
        if size > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= size

    def create(self, path: str) -> File:
        self.take(0 if self.room else 1)
        return self._wrap(super().create(path))

    def open_append(self, path: str) -> File:
        return self._wrap(super().open_append(path))

    def replace(self, path: str, data: bytes | bytearray | memoryview) -> None:
        self.take(len(data))
        super().replace(path, data)

    def _wrap(self, file: File) -> File:
        return _ScarceFile(self, file)


class _ScarceFile(File):
    __slots__ = ("_disk",)

    def __init__(self, disk: ScarceDisk, file: File) -> None:
        self._disk = disk
        self.path, self.size = file.path, file.size
        self._handle, self._nowait = file._handle, file._nowait

    def append(self, data: bytes | bytearray | memoryview) -> int:
        self._disk.take(len(data))
        return super().append(data)


class FailingDisk(Disk):
    """Fails to sync the files whose path contains `broken`."""

    broken: str | None = None

    def create(self, path: str) -> File:
        return _FailingFile(self, super().create(path))

    def open_append(self, path: str) -> File:
        return _FailingFile(self, super().open_append(path))


class _FailingFile(File):
    __slots__ = ("_disk",)

    def __init__(self, disk: FailingDisk, file: File) -> None:
        self._disk = disk
        self.path, self.size = file.path, file.size
        self._handle, self._nowait = file._handle, file._nowait

    def sync(self) -> None:
        if self._disk.broken is not None and self._disk.broken in self.path:
            raise OSError(errno.EIO, "Input/output error")
        super().sync()
