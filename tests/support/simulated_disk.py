"""A disk in memory that forgets what was not synced, runs full, and fails when told to.

    disk = SimulatedDisk()
    disk.crash_at = 17          # the 17th change from now on raises PowerCut, after it was done
    …
    disk.crash(random)          # what is there when the machine comes up again

`crash` keeps every byte that was synced. Of what was not, any sectors may have been written and any others not, whatever
their order; a file may be as long as it was, as it was synced, or anything between. Names (files made, renamed,
removed) may have changed on the disk or not, each for itself, unless the directory was synced. `kill` is a process that
ends with the machine still up: everything stays.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random as random_module
from collections.abc import Callable
from typing import NamedTuple

from levada.log.disk import Disk, File

SECTOR = 64


class PowerCut(BaseException):
    """The machine lost power. Nothing that catches errors may catch this."""


class Node:
    """A file's content: as it is, and as the disk is known to have it."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = bytes(data)
        self.modified_ms = 0


class Change(NamedTuple):
    """A change of names in a directory that is not durable yet."""

    directory: str
    remove: str | None
    add: str | None
    node: Node | None


class SimulatedFile(File):
    """An open file of a SimulatedDisk."""

    __slots__ = ("_disk", "_node", "_open")

    def __init__(self, disk: SimulatedDisk, path: str, node: Node) -> None:
        self.path = path
        self.size = len(node.data)
        self._disk = disk
        self._node = node
        self._open = True

    def append(self, data: bytes | bytearray | memoryview) -> int:
        position = self.size
        self._disk.write(self._node, position, bytes(data), self.path)
        self.size = position + len(data)
        return position

    def pread(self, position: int, size: int, *, nowait: bool = False) -> bytes | bytearray:
        self._disk.check("read", self.path)
        return bytes(self._node.data[position : position + size])

    def sync(self) -> None:
        self._disk.check("sync", self.path)
        self._node.synced = bytes(self._node.data)
        self._disk.step()

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self.path)
        del self._node.data[size:]
        self.size = size
        self._disk.step()

    def close(self) -> None:
        self._open = False


class SimulatedDisk(Disk):
    """Directories and files by path; `fault` may raise before anything is done: (what, path)."""

    def __init__(self, *, room: int | None = None) -> None:
        self.room = room  #: bytes all files together may have
        self.crash_at: int | None = None
        #: With this, a write during which the power goes is done in part.
        self.tear: random_module.Random | None = None
        self.steps = 0
        self.fault: Callable[[str, str], None] | None = None
        self._names: dict[str, Node] = {}
        self._durable_names: dict[str, Node] = {}
        self._directories: set[str] = {"/"}
        self._changes: list[Change] = []

    # What the tests do to it

    def fail(self, what: str, code: int, *, times: int = 1 << 30, path_ends: str = "") -> None:
        """Let the next calls of this kind (create, write, sync, …) fail with this errno."""
        left = times

        def fault(kind: str, path: str) -> None:
            nonlocal left
            if kind == what and left > 0 and path.endswith(path_ends):
                left -= 1
                raise OSError(code, os.strerror(code), path)

        self.fault = fault

    def crash(self, random: random_module.Random) -> None:
        """Lose power: keep what was synced, and any part of what was not."""
        survived = dict(self._durable_names)
        for change in self._changes:
            if random.random() < 0.5:
                _apply(survived, change)
        for node in dict.fromkeys(survived.values()):
            node.synced = self._survivor(node, random)
            node.data = bytearray(node.synced)
        self._names, self._durable_names = survived, dict(survived)
        self._changes.clear()
        self.kill()

    def kill(self) -> None:
        """The process ends; the page cache stays."""
        self.crash_at, self.tear, self.fault, self.room = None, None, None, None

    @staticmethod
    def _survivor(node: Node, random: random_module.Random) -> bytes:
        now, before = bytes(node.data), node.synced
        if now == before:
            return now
        low, high = sorted((len(now), len(before)))
        size = random.choice((low, high, random.randint(low, high)))
        result = bytearray(size)
        for start in range(0, size, SECTOR):
            end = min(start + SECTOR, size)
            source = random.choice((now, before))[start:end]
            # Beyond the end of what reached the disk there are zeros, as file systems give for blocks never written.
            result[start : start + len(source)] = source
        return bytes(result)

    def flip(self, path: str, position: int, mask: int) -> None:
        """Change a byte behind everyone's back."""
        node = self._names[path]
        node.data[position] ^= mask
        node.synced = bytes(node.data)

    def cut(self, path: str, size: int) -> None:
        node = self._names[path]
        del node.data[size:]
        node.synced = bytes(node.data)

    def paths(self) -> list[str]:
        return sorted(self._names)

    def step(self) -> None:
        """Something was changed; perhaps it was the last thing."""
        self.steps += 1
        if self.crash_at is not None and self.steps >= self.crash_at:
            raise PowerCut

    def check(self, what: str, path: str) -> None:
        if self.fault is not None:
            self.fault(what, path)

    def write(self, node: Node, position: int, data: bytes, path: str) -> None:
        self.check("write", path)
        fits = len(data)
        if self.room is not None:
            used = sum(len(each.data) for each in set(self._names.values()))
            fits = max(0, min(fits, self.room - used + max(0, len(node.data) - position)))
        if self.tear is not None and self.crash_at == self.steps + 1:
            fits = self.tear.randint(0, fits)
        node.data[position : position + fits] = data[:fits]
        self.step()
        if fits < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    # What the log does with it

    def create(self, path: str) -> File:
        self.check("create", path)
        if path in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return SimulatedFile(self, path, self._add(path))

    def open(self, path: str) -> File:
        self.check("open", path)
        return SimulatedFile(self, path, self._node(path))

    def open_append(self, path: str) -> File:
        return self.open(path)

    def read(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._node(path).data)

    def replace(self, path: str, data: bytes | bytearray | memoryview) -> None:
        self._replace(path, data, sync=True)

    def replace_unsynced(self, path: str, data: bytes | bytearray | memoryview) -> None:
        self._replace(path, data, sync=False)

    def _replace(self, path: str, data: bytes | bytearray | memoryview, *, sync: bool) -> None:
        self.check("replace", path)
        temporary = path + ".tmp"
        node = self._add(temporary)
        self.write(node, 0, bytes(data), temporary)
        if sync:
            node.synced = bytes(node.data)
            self.step()
        self.rename(temporary, path)

    def atomic_write(self, path: str, data: bytes | bytearray | memoryview) -> None:
        self.replace(path, data)
        self.fsync_dir(posixpath.dirname(path))

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        node = self._node(source)
        self._change(Change(posixpath.dirname(target), source, target, node))

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        if path in self._names:
            self._change(Change(posixpath.dirname(path), path, None, self._names[path]))

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def size(self, path: str) -> int:
        return len(self._node(path).data)

    def modified_ms(self, path: str) -> int:
        return self._node(path).modified_ms

    def listdir(self, path: str) -> list[str]:
        return [posixpath.basename(name) for name in self._names if posixpath.dirname(name) == path]

    def mkdir(self, path: str) -> bool:
        if path in self._directories:
            return False
        self._directories.add(path)
        return True

    def fsync_dir(self, path: str) -> None:
        self.check("fsync_dir", path)
        for change in self._changes:
            if change.directory == path:
                _apply(self._durable_names, change)
        self._changes = [change for change in self._changes if change.directory != path]
        self.step()

    def remove_tree(self, path: str) -> None:
        for name in list(self._names):
            if name.startswith(path + "/"):
                self.unlink(name)
        self._directories.discard(path)

    def free_bytes(self, path: str) -> int:
        used = sum(len(node.data) for node in set(self._names.values()))
        return 1 << 40 if self.room is None else max(0, self.room - used)

    def _add(self, path: str) -> Node:
        node = Node()
        self._change(Change(posixpath.dirname(path), None, path, node))
        return node

    def _change(self, change: Change) -> None:
        _apply(self._names, change)
        self._changes.append(change)
        self.step()

    def _node(self, path: str) -> Node:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None


def _apply(names: dict[str, Node], change: Change) -> None:
    if change.remove is not None and names.get(change.remove) is change.node:
        del names[change.remove]
    if change.add is not None and change.node is not None:
        names[change.add] = change.node
