"""The files of one log: its segments, the snapshots beside them, what has yet to be synced and what was thrown away."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from levada.config import TopicConfig
from levada.log import directory
from levada.log.disk import Disk
from levada.log.files import Files
from levada.log.layout import Layout
from levada.log.producers import Producers
from levada.log.recovery import Recovered, remove_segment
from levada.log.scan import Unreadable
from levada.log.segment import NO_ROOM, Segment
from levada.log.snapshots import BrokenSegment
from levada.log.successor import Rewritten
from levada.log.swap import SWAP
from levada.log.trash import Trash
from levada.log.unsynced import Unsynced


class Aside(NamedTuple):
    """What is out of use, and still under its name."""

    segments: Sequence[Segment]
    #: Names of files.
    snapshots: Sequence[str]


class Store:
    """Makes, puts aside, cuts and replaces segments so that a stop at any moment leaves a whole log. Everything: OSError.

    Changed by one thread; `layout` is replaced as a whole, so readers in other threads keep the one they began with.
    """

    def __init__(self, path: str, disk: Disk, files: Files, found: Recovered) -> None:
        self.path = path
        self.layout = Layout(found.segments)
        self.snapshots = found.snapshots
        durable_to = -1 if found.unsynced else found.end_offset
        self.unsynced = Unsynced(disk, path, found.unsynced or found.segments[-1:], durable_to)
        self._disk = disk
        self._files = files
        self._trash = Trash(disk)
        #: False while the active segment's index files are as it is: until the first append.
        self._appended = bool(found.unsynced)

    # Growing

    def add_segment(self, base_offset: int, now_ms: int, config: TopicConfig) -> Segment:
        """Go on in a new segment."""
        segment = self._segment(base_offset, 0, now_ms, config)
        segment.create()
        self._appended = True
        self.layout = self.layout.with_segments([segment])
        self.unsynced.add(segment)
        return segment

    def _segment(self, base_offset: int, size: int, now_ms: int, config: TopicConfig) -> Segment:
        stem = directory.stem(self.path, base_offset)
        return Segment(self._disk, self._files, stem, base_offset, size=size, created_ms=now_ms, config=config)

    def before_append(self) -> None:
        """The active segment grows: from the first time on, the index files it may have are not its own any more."""
        if not self._appended:
            self.layout.segments[-1].disown_companions()
            self.unsynced.renamed()
            self._appended = True

    # Getting shorter

    def drop_first(self, count: int) -> Aside:
        """Let go of the first segments, and of the snapshots that only they need; to be put aside."""
        doomed, kept = self.layout.segments[:count], self.layout.segments[count:]
        self.unsynced.forget(doomed)
        self.layout = Layout(kept)
        # One that could not be settled for want of room may be in a sync right now.
        with self.unsynced.lock if any(segment.is_held for segment in doomed) else nullcontext():
            for segment in doomed:
                segment.retire()
        snapshots = self.snapshots.drop(lambda offset: offset < kept[0].base_offset)
        for file in snapshots:
            self.unsynced.discard(file)
        return Aside(doomed, snapshots)

    def put_aside(self, aside: Aside, remove_ms: int) -> None:
        """Rename their files; for a worker thread. A name has changed then."""
        paths = [segment.stem + ending for segment in aside.segments for ending in directory.SEGMENT_ENDINGS]
        self._trash.put([*paths, *(os.path.join(self.path, file) for file in aside.snapshots)], remove_ms)

    def purge(self, now_ms: int) -> None:
        """Remove what was put aside, if its time has come."""
        self._trash.empty(now_ms)

    def cut(self, to: int) -> int:
        """Cut the log before the batch that holds this offset, and go on in its segment; returns the end offset.

        Under the lock of `unsynced`, until the log knows the new end too: a sync must not tell of the old one. BrokenSegment,
        before anything has changed.
        """
        number = self.layout.find(to)
        segment, later = self.layout.segments[number], self.layout.segments[number + 1 :]
        try:
            position = segment.locate(to)
        except Unreadable as where:
            raise BrokenSegment(segment, where) from None
        self.unsynced.forget([segment, *later])
        self.layout = Layout(self.layout.segments[: number + 1])
        # The latest first: stopped half-way, what is left is still the beginning of the log.
        for each in reversed(later):
            remove_segment(self._disk, each)
        end_offset = segment.cut(position)
        self.unsynced.add(segment)
        self.unsynced.durable_to = -1
        self._appended = True
        for file in self.snapshots.drop(lambda offset: offset > end_offset):
            self.unsynced.discard(file)
            self._disk.unlink(os.path.join(self.path, file))
        return end_offset

    # Compaction

    def replace_files(self, replaced: Sequence[Segment], added: Sequence[Segment], remove_ms: int) -> None:
        """Give compacted segments the names of those they were made from (step 4 of swap.py). For a worker thread.

        Waits for the disk: the old names must be gone for good before the new ones come.
        """
        self.put_aside(Aside(replaced, []), remove_ms)
        self._disk.fsync_dir(self.path)
        for segment in added:
            # The segment itself last: until then all this can be done again.
            for ending in reversed(directory.SEGMENT_ENDINGS):
                path = segment.stem + ending
                if self._disk.exists(path + SWAP):
                    self._disk.rename(path + SWAP, path)

    def replaced(self, replaced: Sequence[Segment], added: Sequence[Segment]) -> None:
        """Their files have their names."""
        self.layout = self.layout.with_segments(added, removed=replaced)
        self.unsynced.renamed()

    def successor(self, rewritten: Rewritten, now_ms: int, config: TopicConfig) -> Segment:
        segment = self._segment(rewritten.base_offset, rewritten.size, now_ms, config)
        segment.dense = False
        segment.trusted_from = 0
        segment.set_aborted(rewritten.aborted)
        return segment

    # Closing

    def write_tail(self, end_offset: int, producers: Producers) -> bool:
        """What lets the next start trust the log: a snapshot of the producers, and the indexes of the last segment.

        To be synced. False when there is no room for it.
        """
        if not self._appended:
            return True
        snapshot = os.path.join(self.path, self.snapshots.add(end_offset))
        try:
            # One that knows of nobody is soon made again, and has a checksum to tell that it has to be.
            replace = self._disk.replace if len(producers) else self._disk.replace_unsynced
            replace(snapshot, producers.snapshot())
        except OSError as reason:
            if reason.errno not in NO_ROOM:
                raise
            return False
        wanted = {*self.layout.bases, end_offset}
        for file in self.snapshots.drop(lambda offset: offset not in wanted):
            self._disk.unlink(os.path.join(self.path, file))
        self.unsynced.renamed()
        return self.layout.segments[-1].write_companions()

    def release(self) -> None:
        """Let go of the files as they are."""
        for segment in self.layout.segments:
            segment.release()
