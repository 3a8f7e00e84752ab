"""What a log has written and the disk may not have yet."""

from __future__ import annotations

import os.path
import threading
from collections.abc import Iterable, Sequence

from levada.log.disk import Disk
from levada.log.segment import NO_ROOM, Segment


class Unsynced:
    """Segments, small files and names of one log on their way to the disk.

    Everything is noted here by the thread that writes the log; `sync` runs in a worker thread, one at a time under `lock`.
    What is noted while it runs is left for the next.
    """

    def __init__(self, disk: Disk, path: str, segments: Sequence[Segment], durable_to: int) -> None:
        self.lock = threading.Lock()
        #: Closed segments that are not settled yet, then the active one. Replaced as a whole.
        self.segments = tuple(segments)
        #: The end offset of what has been synced.
        self.durable_to = durable_to
        self._disk = disk
        self._path = path
        self._files: dict[str, bytes] = {}
        self._names = 0
        self._names_synced = 0

    def add(self, segment: Segment) -> None:
        """A new segment is written to from now on; those before it are closed."""
        self.segments = (*self.segments, segment)
        self.renamed()

    def forget(self, segments: Iterable[Segment]) -> None:
        gone = set(segments)
        self.segments = tuple(segment for segment in self.segments if segment not in gone)

    def forget_settled(self) -> None:
        if len(self.segments) > 1:
            *closed, active = self.segments
            self.segments = (*(segment for segment in closed if segment.is_held), active)

    def write(self, name: str, data: bytes) -> None:
        """Have the next sync write this small file."""
        self._files[name] = data

    def discard(self, name: str) -> None:
        """Do not write it after all."""
        self._files.pop(name, None)

    def renamed(self) -> None:
        """A name in the directory was added, changed or removed."""
        self._names += 1

    def sync(self, end_offset: int) -> None:
        """Everything below `end_offset`, which was written before this call, is durable when it returns. OSError."""
        segments, names = self.segments, self._names
        if end_offset != self.durable_to:
            for segment in segments:
                segment.sync()
        settled = [segment for segment in segments[:-1] if segment.is_held and segment.settle()]
        written = self._write_files()
        if settled or written or names != self._names_synced:
            self._disk.fsync_dir(self._path)
            self._names_synced = names
        self.durable_to = end_offset

    def _write_files(self) -> bool:
        """Those that find no room go on waiting: without them the log is as good, only slower to open."""
        refused: dict[str, bytes] = {}
        written = False
        while self._files:
            name, data = self._files.popitem()
            try:
                self._disk.replace(os.path.join(self._path, name), data)
                written = True
            except OSError as reason:
                if reason.errno not in NO_ROOM:
                    raise
                refused[name] = data
        for name, data in refused.items():
            self._files.setdefault(name, data)
        return written
