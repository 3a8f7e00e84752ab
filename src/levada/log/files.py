"""The open files of closed segments, shared by all logs, so that ten thousand partitions fit into one process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from levada.log.disk import File
from levada.log.index import Indexes

OPEN_FILES_MAX: Final = 512


class Opened:
    """A segment's file, open, and its indexes, in memory."""

    __slots__ = ("file", "indexes")

    def __init__(self, file: File, indexes: Indexes) -> None:
        self.file = file
        self.indexes = indexes


class Files:
    """Keeps open what was used last. Safe to use from several threads.

    Forgetting a file does not close it under a thread that is about to read it: it closes when nobody has it any more.
    The key is whoever owns the file, not its path: compaction puts another file under the same path.
    """

    def __init__(self, open_max: int = OPEN_FILES_MAX) -> None:
        self._open_max = open_max
        self._open: OrderedDict[object, Opened] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, owner: object) -> Opened | None:
        with self._lock:
            opened = self._open.get(owner)
            if opened is not None:
                self._open.move_to_end(owner)
            return opened

    def put(self, owner: object, opened: Opened) -> None:
        with self._lock:
            self._open[owner] = opened
            self._open.move_to_end(owner)
            while len(self._open) > self._open_max:
                self._open.popitem(last=False)

    def drop(self, owner: object) -> None:
        with self._lock:
            self._open.pop(owner, None)


#: For logs that are opened on their own, without an engine that shares one among all of them.
SHARED: Final = Files()
