"""A simulated disk for a whole data directory: with directories in directories, used from several threads, and forked.

    tree = SimulatedTree()
    tree.fork_at = 17                 # at the 17th change from now on, `tree.forked` becomes a copy
    …                                 # whoever uses the tree goes on and notices nothing
    tree.forked.crash(random)         # what a power failure at that moment left

So an engine with its threads can be stopped at any change it makes to the disk, without being stopped.
"""

from __future__ import annotations

import functools
import posixpath
import threading
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple, TypeVar

from levada.log.disk import File
from support.simulated_disk import Node, SimulatedDisk, SimulatedFile

F = TypeVar("F", bound=Callable[..., Any])


def _locked(method: F) -> F:
    @functools.wraps(method)
    def call(self: SimulatedTree, *args: Any, **keywords: Any) -> Any:
        with self.lock:
            return method(self, *args, **keywords)

    return call  # type: ignore[return-value]


class _DirectoryChange(NamedTuple):
    """A directory made, moved or removed, in a parent that was not synced since."""

    parent: str
    source: str | None
    target: str | None


class _TreeFile(SimulatedFile):
    __slots__ = ()

    def pread(self, position: int, size: int, *, nowait: bool = False) -> bytes | bytearray:
        with self._disk.lock:  # type: ignore[attr-defined]
            return super().pread(position, size, nowait=nowait)

    def sync(self) -> None:
        with self._disk.lock:  # type: ignore[attr-defined]
            super().sync()

    def truncate(self, size: int) -> None:
        with self._disk.lock:  # type: ignore[attr-defined]
            super().truncate(size)


class SimulatedTree(SimulatedDisk):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.fork_at: int | None = None
        self.forked: SimulatedTree | None = None
        #: Called when the fork is made, before anything else happens.
        self.on_fork: Callable[[], None] = lambda: None
        self._durable_directories: set[str] = {"/"}
        self._directory_changes: list[_DirectoryChange] = []

    # Forking and losing power

    def step(self) -> None:
        super().step()
        if self.fork_at is not None and self.steps >= self.fork_at and self.forked is None:
            self.forked = self.fork()
            self.on_fork()

    @_locked
    def fork(self) -> SimulatedTree:
        copy = SimulatedTree()
        nodes: dict[Node, Node] = {}

        def same(node: Node) -> Node:
            if node not in nodes:
                nodes[node] = Node(bytes(node.synced))
                nodes[node].data = bytearray(node.data)
            return nodes[node]

        copy._names = {path: same(node) for path, node in self._names.items()}
        copy._durable_names = {path: same(node) for path, node in self._durable_names.items()}
        copy._changes = [
            change._replace(node=None if change.node is None else same(change.node)) for change in self._changes
        ]
        copy._directories = set(self._directories)
        copy._durable_directories = set(self._durable_directories)
        copy._directory_changes = list(self._directory_changes)
        return copy

    @_locked
    def crash(self, random: Random) -> None:
        """Directories may come back or be gone, each with all that is in it; then what `SimulatedDisk` does to files."""
        survived = set(self._durable_directories)
        for change in self._directory_changes:
            if random.random() < 0.5:
                _change_directory(survived, change)
                _move(self._durable_names, change)
        self._directories, self._durable_directories = survived, set(survived)
        self._directory_changes.clear()
        super().crash(random)
        for names in (self._names, self._durable_names):
            for path in [path for path in names if posixpath.dirname(path) not in survived]:
                del names[path]

    # Directories

    @_locked
    def mkdir(self, path: str) -> bool:
        if path in self._directories:
            return False
        parent = posixpath.dirname(path)
        if parent not in self._directories:
            self.mkdir(parent)
        self._apply(_DirectoryChange(parent, None, path))
        return True

    @_locked
    def rename(self, source: str, target: str) -> None:
        if source not in self._directories:
            super().rename(source, target)
            return
        for directory in sorted(self._directories):
            assert not directory.startswith(source + "/"), "partitions have no directories in them"
        self._apply(_DirectoryChange(posixpath.dirname(target), source, target))

    @_locked
    def remove_tree(self, path: str) -> None:
        super().remove_tree(path)
        self._apply(_DirectoryChange(posixpath.dirname(path), path, None))

    @_locked
    def fsync_dir(self, path: str) -> None:
        for change in self._directory_changes:
            if change.parent == path:
                _change_directory(self._durable_directories, change)
                _move(self._durable_names, change)
        self._directory_changes = [change for change in self._directory_changes if change.parent != path]
        super().fsync_dir(path)

    @_locked
    def listdir(self, path: str) -> list[str]:
        if path not in self._directories:
            raise FileNotFoundError(path)
        within = [name for name in self._directories if posixpath.dirname(name) == path and name != path]
        return super().listdir(path) + [posixpath.basename(name) for name in within]

    def _apply(self, change: _DirectoryChange) -> None:
        _change_directory(self._directories, change)
        _move(self._names, change)
        if change.source is not None and change.target is not None:
            # Changes within a directory go with it, wherever it is.
            self._changes = [
                each._replace(
                    directory=_moved(each.directory, change) or "",
                    remove=_moved(each.remove, change),
                    add=_moved(each.add, change),
                )
                for each in self._changes
            ]
        self._directory_changes.append(change)
        self.step()

    # Files, one thread at a time

    @_locked
    def create(self, path: str) -> File:
        assert posixpath.dirname(path) in self._directories, f"no directory for {path}"
        return self._tree_file(super().create(path))

    @_locked
    def open(self, path: str) -> File:
        return self._tree_file(super().open(path))

    def _tree_file(self, file: File) -> File:
        assert isinstance(file, SimulatedFile)
        return _TreeFile(self, file.path, file._node)

    write = _locked(SimulatedDisk.write)
    read = _locked(SimulatedDisk.read)
    replace = _locked(SimulatedDisk.replace)
    unlink = _locked(SimulatedDisk.unlink)
    exists = _locked(SimulatedDisk.exists)
    size = _locked(SimulatedDisk.size)


def _change_directory(directories: set[str], change: _DirectoryChange) -> None:
    if change.source is not None:
        if change.source not in directories:
            return
        directories.discard(change.source)
    if change.target is not None:
        directories.add(change.target)


def _move(names: dict[str, Node], change: _DirectoryChange) -> None:
    if change.source is None or change.target is None:
        return
    for path in [path for path in names if path.startswith(change.source + "/")]:
        names[change.target + path[len(change.source) :]] = names.pop(path)


def _moved(path: str | None, change: _DirectoryChange) -> str | None:
    if path is None or change.source is None or change.target is None:
        return path
    if path == change.source or path.startswith(change.source + "/"):
        return change.target + path[len(change.source) :]
    return path
