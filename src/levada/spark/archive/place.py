"""Where a table lies: a directory that driver and executors share, or a URI of an object store.

Credentials of object stores are taken from the environment of whoever reads or writes, as `deltalake` does.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from levada.errors import LevadaError


class ArchiveError(LevadaError):
    """An archive cannot be written or read."""


class NotShared(ArchiveError):
    """A file of the table is not to be seen from here, though the table names it."""


def local_path(place: str) -> Path | None:
    """The directory, where it is one of a file system; None for what lies in an object store."""
    if "://" not in place:
        return Path(place)
    parsed = urlparse(place)
    return Path(unquote(parsed.path)) if parsed.scheme == "file" else None


def filesystem(place: str) -> Any:
    """A pyarrow filesystem whose root is the table."""
    from pyarrow import fs

    path = local_path(place)
    if path is not None:
        return fs.SubTreeFileSystem(str(path), fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return fs.PyFileSystem(DeltaStorageHandler(place))


def make_directory(place: str, relative: str) -> None:
    """Have a directory under the table, durably. Object stores have none."""
    root = local_path(place)
    if root is None:
        return
    made = root / relative
    if not made.is_dir():
        made.mkdir(parents=True, exist_ok=True)
        for directory in (made.parent, root, root.parent):
            sync(directory)


def settle(place: str, relative: str) -> None:
    """Make a written file durable, with its name. An object store has done so when the write returned."""
    root = local_path(place)
    if root is not None:
        sync(root / relative)
        sync((root / relative).parent)


def sync(path: Path) -> None:
    """fsync a file or a directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def missing(place: str, path: str, whose: str) -> NotShared:
    """What to say of a file that should be there. `whose`: who looks for it, or who wrote it."""
    return NotShared(
        f"{path} of the archive {place} is not to be seen on {socket.gethostname()}, {whose}: levada.archive must be a place "
        "that the driver and all executors share"
    )
