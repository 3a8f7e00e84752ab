"""Where pipelines come from: a directory of files that the operator keeps, and pipelines that Levada itself has reason to run.

Code is read from the operator's directory only, never from a broker.
"""

from __future__ import annotations

import ast
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from levada.errors import InvalidConfig
from levada.spark.pipelines.errors import NoPipelines
from levada.spark.pipelines.loading import declared
from levada.spark.runner.runnable import Declared, Runnable


class Shelf(Protocol):
    """Somewhere that pipelines are declared, in units that have versions."""

    def look(self) -> Mapping[str, str]:
        """The units there are now, with the version of each. An error means that nobody knows: all stays as it was."""
        ...

    def load(self, unit: str) -> Sequence[Runnable]:
        """What the unit declares."""
        ...

    def label(self, unit: str) -> str:
        """What a unit is called of which no pipeline is known."""
        ...


class Directory:
    """The Python files of a directory, but for those whose names begin with _ or a dot.

    A file's version is its content, and that of what it imports of this directory: modules and packages, and theirs. A change is
    seen once it has been the same for two looks, and a file is gone when two looks did not find it: editors write in pieces, and
    move files about.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise InvalidConfig(
                f"--pipelines {path}: {'is not a directory' if path.exists() else 'there is no such directory'}"
            )
        self.path = path.absolute()
        self._sources: dict[Path, _Source] = {}
        self._before: dict[str, str] | None = None
        self._held: dict[str, str] = {}

    def look(self) -> Mapping[str, str]:
        found = self._versions()
        before = found if self._before is None else self._before
        steady = {unit: version for unit, version in found.items() if before.get(unit) == version}
        waiting = {unit: held for unit, held in self._held.items() if unit in found or unit in before}
        self._before, self._held = found, {**waiting, **steady}
        return self._held

    def _versions(self) -> dict[str, str]:
        before, self._sources = self._sources, {}
        for path in self._files():
            source = _read(path, before.get(path))
            if source is not None:
                self._sources[path] = source
        units = [path for path in self._sources if path.parent == self.path and not path.name.startswith("_")]
        return {str(path): self._version(path) for path in units}

    def _files(self) -> Iterator[Path]:
        """Of the directory and its packages."""
        for directory, below, names in os.walk(self.path, onerror=_raise):
            below[:] = [name for name in below if Path(directory, name, "__init__.py").is_file()]
            yield from (Path(directory, name) for name in names if name.endswith(".py") and not name.startswith("."))

    def _version(self, path: Path) -> str:
        digest = hashlib.sha256()
        for part in sorted(self._parts(path)):
            digest.update(str(part).encode() + b"\0" + self._sources[part].content + b"\0")
        return digest.hexdigest()[:12]

    def _parts(self, path: Path) -> set[Path]:
        """The file, and what it imports of this directory; a package as a whole."""
        found, open_ends = {path}, [path]
        while open_ends:
            for name in self._sources[open_ends.pop()].imports:
                package = self.path / name
                more = {one for one in self._sources if one == package.with_suffix(".py") or package in one.parents}
                open_ends += more - found
                found |= more
        return found

    def load(self, unit: str) -> Sequence[Runnable]:
        try:
            return [Declared(one) for one in declared(Path(unit))]
        except NoPipelines:
            return []  # there for others to import

    def label(self, unit: str) -> str:
        return Path(unit).stem


class Versioned(Runnable, Protocol):
    """Something to keep that says itself when it has become another."""

    @property
    def version(self) -> str: ...


class Managed:
    """What a part of Levada wants to have kept, polled: each is a unit of its own."""

    def __init__(self, poll: Callable[[], Iterable[Versioned]]) -> None:
        self._poll = poll
        self._found: dict[str, Versioned] = {}

    def look(self) -> Mapping[str, str]:
        self._found = {one.name: one for one in self._poll()}
        return {name: one.version for name, one in self._found.items()}

    def load(self, unit: str) -> Sequence[Runnable]:
        found = self._found.get(unit)
        return [] if found is None else [found]

    def label(self, unit: str) -> str:
        return unit


class Lookout:
    """Looks at a shelf again and again, in a thread of its own: neither a slow disk nor a broker that is away holds up anybody."""

    def __init__(self, shelf: Shelf, every_s: float) -> None:
        self.shelf = shelf
        #: What was there the last time anybody could tell, and why nobody can tell now.
        self.seen: Mapping[str, str] = {}
        self.error: Exception | None = None
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name=f"lookout of {type(shelf).__name__}")

    def start(self) -> None:
        """The first look is done when this returns."""
        self._look()
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        try:
            self.seen, self.error = dict(self.shelf.look()), None
        except Exception as error:  # a directory that is not mounted, a broker that is away: the next look may tell
            self.error = error


class _Source(NamedTuple):
    """A file as it was last read."""

    mark: tuple[int, ...]
    content: bytes
    #: First parts of the names of the modules it imports.
    imports: frozenset[str]


def _read(path: Path, known: _Source | None) -> _Source | None:
    """Read again only where it may be another; None where it has just gone."""
    try:
        facts = path.stat()
        mark = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        if known is not None and known.mark == mark:
            return known
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return _Source(mark, content, _imports(content))


def _imports(content: bytes) -> frozenset[str]:
    """None of what is no Python: loading it will say so."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return frozenset()
    names = [one.name for each in ast.walk(tree) if isinstance(each, ast.Import) for one in each.names]
    names += [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and not each.level]
    return frozenset(name.partition(".")[0] for name in names if name)


def _raise(error: OSError) -> None:
    raise error
