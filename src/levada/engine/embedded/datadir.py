"""The data directory: who has it open, what it says about itself, and where a partition lives in it.

    <data>/.lock                              flock of the broker that has it open, and its process id
    <data>/meta.properties                    format version, cluster id, broker epoch, clean flag … (meta.py)
    <data>/recovery-point-offset-checkpoint   how far each partition is whole (recovery.py)
    <data>/unrecovered-partitions             partitions not opened since a crash
    <data>/topics/<topic>-<partition>/        the log
    <data>/topics/<topic id>-<partition>-delete/   a partition of a deleted topic, on its way out
    <data>/topics/<topic>-<partition>.<topic id>.unknown/   one of a topic that is not registered and was not deleted

Opening clears the clean flag before anything else is written, and only `close` sets it. Everything here blocks: the
engine calls it in a worker thread.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from levada.engine.embedded import meta as meta_file
from levada.engine.embedded import recovery
from levada.engine.embedded.meta import FORMAT_VERSION, Meta
from levada.engine.embedded.recovery import RecoveryState, decode_checkpoint, encode_checkpoint
from levada.engine.port import At
from levada.errors import DataFormatTooNew, DataInUse, StorageFailed, StorageFull
from levada.log.disk import Disk

PRODUCER_ID_BLOCK: Final = 1_000
DELETED: Final = "-delete"
UNKNOWN: Final = ".unknown"
_PREFIX_LENGTH: Final = 200

#: From a format version to what makes it the next one. Every version that was ever released stays here.
Upgrade = Callable[[Path, Disk], None]
UPGRADES: Final[Mapping[int, Upgrade]] = {}

_SEGMENT: Final = re.compile(r"[0-9]{20}\.log")

_log = structlog.get_logger("levada.data")


class SegmentFile(NamedTuple):
    path: str
    base_offset: int


class DirectoryLock:
    """Holds the data directory for this process. The system lets go of it when the process ends, however that is."""

    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(data / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", errors="replace").strip()
            os.close(self._fd)
            raise DataInUse(f"{data} is in use by another broker, process {holder or 'unknown'}") from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._fd)


class DataDir:
    """An open data directory. Make one with `open`."""

    def __init__(self, path: Path, disk: Disk, meta: Meta, recovery_state: RecoveryState, *, was_clean: bool) -> None:
        self.path = path
        self.disk = disk
        self.recovery = recovery_state
        #: Whether the run before this one stopped as it should.
        self.was_clean = was_clean
        self._meta = meta
        self._writing = threading.Lock()
        self._saved_unrecovered = dict(recovery_state.unrecovered)
        #: Reserved with the start itself, so that the first producer does not wait for the disk.
        self.first_producer_ids = range(meta.producer_id_next - PRODUCER_ID_BLOCK, meta.producer_id_next)

    @classmethod
    def open(
        cls,
        path: Path,
        disk: Disk,
        *,
        node_id: int = 1,
        boot: str | None = None,
        upgrades: Mapping[int, Upgrade] = UPGRADES,
    ) -> DataDir:
        """Make the directory, or take up the one that is there. DataFormatTooNew, StorageFailed."""
        file = str(path / meta_file.FILE)
        boot = boot_id() if boot is None else boot
        try:
            found = disk.read(file)
        except FileNotFoundError:
            return cls._make(path, disk, node_id, boot)
        version = meta_file.format_version(found, file)
        if version > FORMAT_VERSION:
            raise DataFormatTooNew(
                f"{path} has format {version}, this version of Levada reads up to {FORMAT_VERSION}; a newer one wrote it"
            )
        if version < FORMAT_VERSION:
            _upgrade(path, disk, version, upgrades)
            found = disk.read(file)
        return cls._take_up(path, disk, Meta.decode(found, file), node_id, boot)

    @classmethod
    def _make(cls, path: Path, disk: Disk, node_id: int, boot: str) -> DataDir:
        topics = str(path / "topics")
        if disk.exists(topics) and disk.listdir(topics):
            raise StorageFailed(
                f"{path} has topics but no {meta_file.FILE}; it was a Levada directory and is not whole"
            )
        disk.mkdir(str(path))
        meta = Meta(
            cluster_id=meta_file.new_cluster_id(),
            node_id=node_id,
            boot_id=boot,
            clean=False,
            producer_id_next=PRODUCER_ID_BLOCK,
        )
        disk.atomic_write(str(path / meta_file.FILE), meta.encode())
        disk.fsync_dir(str(path.parent))
        disk.mkdir(topics)
        disk.fsync_dir(str(path))
        return cls(path, disk, meta, RecoveryState({}, {}, (), clean=True, same_boot=True), was_clean=True)

    @classmethod
    def _take_up(cls, path: Path, disk: Disk, meta: Meta, node_id: int, boot: str) -> DataDir:
        if disk.mkdir(str(path / "topics")):
            disk.fsync_dir(str(path))
        same_boot = bool(boot) and boot == meta.boot_id
        points, _ = _checkpoint(disk, path / recovery.POINTS_FILE)
        previous, whole = _checkpoint(disk, path / recovery.UNRECOVERED_FILE)
        clean = meta.clean and whole
        present = [at for _, at in _partitions(path, disk)] if previous or not clean else []
        state = RecoveryState(points, previous, present, clean=clean, same_boot=same_boot)
        if state.unrecovered != previous:
            # Before the new boot id is written: until then a crash here leads to the same answer.
            disk.atomic_write(str(path / recovery.UNRECOVERED_FILE), encode_checkpoint(state.unrecovered))
        now = replace(
            meta,
            node_id=node_id,
            boot_id=boot,
            clean=False,
            broker_epoch=meta.broker_epoch + (0 if meta.clean else 1),
            producer_id_next=meta.producer_id_next + PRODUCER_ID_BLOCK,
        )
        disk.atomic_write(str(path / meta_file.FILE), now.encode())
        return cls(path, disk, now, state, was_clean=meta.clean)

    @property
    def cluster_id(self) -> str:
        return self._meta.cluster_id

    @property
    def broker_epoch(self) -> int:
        return self._meta.broker_epoch

    @property
    def topics(self) -> Path:
        return self.path / "topics"

    def partition_path(self, at: At) -> Path:
        return self.path / "topics" / f"{at.topic}-{at.partition}"

    def deleted_path(self, topic_id: UUID, partition: int) -> Path:
        """Where a deleted partition goes first; shorter than any name's limit, and never a partition's own."""
        return self.path / "topics" / f"{topic_id.hex}-{partition}{DELETED}"

    def unknown_path(self, at: At, topic_id: UUID) -> Path:
        """Where a partition is kept whose topic nobody knows; never longer than a name may be."""
        return self.path / "topics" / f"{at.topic[:_PREFIX_LENGTH]}-{at.partition}.{topic_id.hex}{UNKNOWN}"

    def partitions(self) -> list[At]:
        """Every partition that has a directory."""
        return [at for _, at in _partitions(self.path, self.disk)]

    def segments(self, at: At) -> list[SegmentFile]:
        """A partition's segments by name, oldest first, without opening it; none if it has no directory."""
        directory = self.partition_path(at)
        try:
            names = self.disk.listdir(str(directory))
        except FileNotFoundError:
            return []
        found = (SegmentFile(str(directory / name), int(name[:20])) for name in names if _SEGMENT.fullmatch(name))
        return sorted(found, key=lambda segment: segment.base_offset)

    def size_bytes(self) -> int:
        """Bytes of log in all partitions."""
        total = 0
        for at in self.partitions():
            for segment in self.segments(at):
                with contextlib.suppress(FileNotFoundError):  # retention took it while we looked
                    total += self.disk.size(segment.path)
        return total

    def deleted(self) -> list[Path]:
        """Directories that a deletion left behind."""
        return [self.topics / name for name in self.disk.listdir(str(self.topics)) if name.endswith(DELETED)]

    def reserve_producer_ids(self) -> range:
        """The next block of producer ids, never given out before; durable when it returns. StorageFull, StorageFailed."""
        with self._writing:
            first = self._meta.producer_id_next
            try:
                self._write(replace(self._meta, producer_id_next=first + PRODUCER_ID_BLOCK))
            except OSError as reason:
                raise storage_error("producer ids", reason) from reason
        return range(first, first + PRODUCER_ID_BLOCK)

    def checkpoint(self, points: Mapping[At, int], unrecovered: Mapping[At, int]) -> None:
        """Save how far the partitions are whole, one call at a time. Copies, because the loop goes on changing its own."""
        self.disk.atomic_write(str(self.path / recovery.POINTS_FILE), encode_checkpoint(points))
        if unrecovered != self._saved_unrecovered:
            self.disk.atomic_write(str(self.path / recovery.UNRECOVERED_FILE), encode_checkpoint(unrecovered))
            self._saved_unrecovered = dict(unrecovered)

    def drop_checkpoint(self) -> None:
        """Without it a start after a crash verifies everything, which is slow and never wrong."""
        self.disk.unlink(str(self.path / recovery.POINTS_FILE))
        self.disk.fsync_dir(str(self.path))

    def close(self) -> None:
        """Say that all is whole. Every log must have been synced and closed."""
        self.checkpoint(self.recovery.points, self.recovery.unrecovered)
        with self._writing:
            self._write(replace(self._meta, clean=True))

    def _write(self, meta: Meta) -> None:
        self.disk.atomic_write(str(self.path / meta_file.FILE), meta.encode())
        self._meta = meta


def _partitions(data: Path, disk: Disk) -> Iterator[tuple[str, At]]:
    for name in disk.listdir(str(data / "topics")):
        topic, _, partition = name.rpartition("-")
        if topic and partition.isdecimal():
            yield name, At(topic, int(partition))


def _checkpoint(disk: Disk, file: Path) -> tuple[dict[At, int], bool]:
    """A checkpoint's entries, and whether it could be read. What it says can be found out again, only more slowly."""
    try:
        return decode_checkpoint(disk.read(str(file)), str(file)), True
    except FileNotFoundError:
        return {}, True
    except StorageFailed as reason:
        _log.warning("checkpoint ignored", file=str(file), reason=str(reason))
        return {}, False


def _upgrade(path: Path, disk: Disk, version: int, upgrades: Mapping[int, Upgrade]) -> None:
    """Bring an older directory up to our format, one version at a time. Each step sets the version last."""
    for step in range(version, FORMAT_VERSION):
        if step not in upgrades:
            raise StorageFailed(f"{path} has format {version}, which no version of Levada ever wrote")
        _log.info("upgrading the data directory", data=str(path), from_format=step, to_format=step + 1)
        upgrades[step](path, disk)


def storage_error(what: object, reason: OSError) -> StorageFull | StorageFailed:
    """What an error of the disk means."""
    kind = StorageFull if reason.errno in (errno.ENOSPC, errno.EDQUOT) else StorageFailed
    return kind(f"{what}: {reason}")


def boot_id() -> str:
    """This boot of the machine; empty where the system does not tell, which is taken for another boot."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def raise_file_limit() -> int:
    """Allow this process as many open files as the system lets it have; return how many that is."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            return hard
    return soft
