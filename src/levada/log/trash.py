"""Files that a log has no use for any more, and that somebody may still be reading."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from levada.log.disk import Disk

DELETED = ".deleted"


class Trash:
    """Deletion is a rename first; the file itself goes later. After a stop, `directory.tidy` finds what is left of it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: deque[tuple[int, list[str]]] = deque()

    def put(self, paths: Iterable[str], remove_ms: int) -> None:
        """Rename the files that are there; the first of `paths` first."""
        aside = []
        for path in paths:
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED)
                aside.append(path + DELETED)
        if aside:
            self._due.append((remove_ms, aside))

    def empty(self, now_ms: int) -> None:
        """Remove those whose time has come."""
        while self._due and self._due[0][0] <= now_ms:
            for path in self._due.popleft()[1]:
                self._disk.unlink(path)
