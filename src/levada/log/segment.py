"""One segment of a log: a file of batches, and its indexes.

    <base offset, 20 digits>.log         record batches v2, one after the other
    <base offset>.index  .timeindex      see index.py
    <base offset>.txnindex               aborted transactions whose marker lies here, see aborted.py; absent when there are none

The last segment of a log is active: its file is open and its indexes are in memory. When it is closed it stays that way
until `settle` has made file and indexes durable; from then on it is opened when it is read.
"""

from __future__ import annotations

import errno
import os.path
import random
from struct import Struct
from typing import Final

from levada.config import TopicConfig
from levada.errors import DamagedIndex
from levada.log.aborted import AbortedIndex
from levada.log.disk import Disk, File, WouldBlock
from levada.log.files import Files, Opened
from levada.log.index import RELATIVE_OFFSET_MAX, Indexes
from levada.log.limits import Limits
from levada.log.ranges import Ranges
from levada.log.rebuild import Indexed, build, load
from levada.log.scan import Unreadable, check, heads, last_offset_in, whole_batches
from levada.records.batch import HEADER_SIZE, LENGTH_END, Batch, batches

#: How many offsets a segment remembers the position of, for readers that come back for what follows.
PLACES_MAX: Final = 128
#: What a full disk answers.
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_LENGTH: Final = Struct(">8xi")

Data = bytes | bytearray | memoryview


class Retired(Exception):
    """Another segment, or nothing, has taken this one's place."""


class Segment:
    """Batches from `base_offset` on. Appended to by one thread, read by any."""

    __slots__ = (
        "_aborted",
        "_disk",
        "_files",
        "_first_timestamp",
        "_held",
        "_largest",
        "_limits",
        "_places",
        "_verified",
        "base_offset",
        "created_ms",
        "dense",
        "interval_bytes",
        "jitter_ms",
        "retired",
        "size",
        "stem",
        "trusted_from",
    )

    def __init__(
        self, disk: Disk, files: Files, stem: str, base_offset: int, *, size: int, created_ms: int, config: TopicConfig
    ) -> None:
        self._disk = disk
        self._files = files
        #: The path without its ending.
        self.stem = stem
        self.base_offset = base_offset
        #: Bytes of whole batches. The log moves it on, after everything else about an append is done.
        self.size = size
        self.created_ms = created_ms
        self.jitter_ms = random.randrange(config.segment_jitter_ms) if config.segment_jitter_ms > 0 else 0
        self.interval_bytes = config.index_interval_bytes
        #: No offset is missing between its batches; only compaction leaves gaps.
        self.dense = True
        #: Bytes from here on were written by this process.
        self.trusted_from = size
        #: True once something else may lie under this segment's path.
        self.retired = False
        self._held: Opened | None = None
        self._verified = Ranges()
        self._places: dict[int, int] = {}
        self._largest: tuple[int, int] | None = None
        self._first_timestamp: int | None = None
        self._aborted: AbortedIndex | None = None
        self._limits: Limits | None = None

    def __repr__(self) -> str:
        return f"<Segment {self.path}, {self.size} bytes>"

    @property
    def path(self) -> str:
        return self.stem + ".log"

    # Writing

    def create(self) -> None:
        """Make the file, to append to."""
        self._held = Opened(self._disk.create(self.path), Indexes.empty(self.base_offset, self.interval_bytes))
        self._aborted = AbortedIndex()

    def hold(self, file: File, indexes: Indexes) -> None:
        """Append to this file from now on, with indexes that are known to fit it."""
        self._held = Opened(file, indexes)

    def wants_roll(self, config: TopicConfig, batch: Batch, last_offset: int, now_ms: int) -> bool:
        """True when the batch belongs into a new segment: by size, by age, by what the indexes can hold. As Kafka has it."""
        size = self.size
        if size == 0:
            return False
        limits = self._limits
        if limits is None or limits.config is not config:
            limits = self._limits = Limits(config, self.jitter_ms)
        if size > limits.bytes_max - batch.size or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp()
        age_ms = batch.max_timestamp - first if first >= 0 else now_ms - self.created_ms
        if age_ms > limits.age_max_ms:
            return True
        indexes = self.held.indexes
        return (
            len(indexes.offsets.offsets) >= limits.offset_entries_max
            or len(indexes.times.offsets) >= limits.time_entries_max
        )

    @property
    def held(self) -> Opened:
        """File and indexes of a segment that is active, or closed and not yet settled."""
        assert self._held is not None, f"{self!r} is not held open"
        return self._held

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def append(self, batch: Batch, last_offset: int) -> int:
        """Write the batch and index it; return what `size` is to become. OSError: nothing has changed but the file's tail."""
        held = self.held
        position = held.file.append(batch.view)
        size = batch.size
        held.indexes.add(position, size, last_offset, batch.max_timestamp)
        self.remember(batch.base_offset, position)
        return position + size

    def cut_back(self) -> None:
        """Cut what a failed append may have left in the file."""
        file = self.held.file
        file.truncate(self.size)

    def sync(self) -> None:
        """Wait until what is written is on the disk."""
        held = self._held
        if held is not None:
            held.file.sync()

    def settle(self) -> bool:
        """Make a closed segment durable with all its files, and hold it open no longer. The directory is not synced.

        False when the disk has no room for the indexes; it stays open then, and can be settled later.
        """
        held = self._held
        if held is None:
            return True
        held.file.sync()
        if not self.write_companions():
            return False
        self._largest = held.indexes.max_timestamp, held.indexes.max_timestamp_offset
        self._files.put(self, held)
        self._held = None
        return True

    def write_companions(self) -> bool:
        """Write the index files, complete, as they are now; False when there is no room.

        `.index` comes last: where it is missing, nothing beside the segment is believed.
        """
        indexes = self.held.indexes
        indexes.seal()
        try:
            if self._write_aborted():
                # Its name must be on disk before that of `.index`, which vouches for it.
                self._disk.fsync_dir(os.path.dirname(self.stem))
            self._disk.replace(self.stem + ".timeindex", indexes.times.pack())
            self._disk.replace(self.stem + ".index", indexes.offsets.pack())
        except OSError as reason:
            if reason.errno not in NO_ROOM:
                raise
            self.disown_companions()
            return False
        return True

    def _write_aborted(self) -> bool:
        """Write the `.txnindex`, or remove a stale one; True where that changed a name."""
        path, aborted = self.stem + ".txnindex", self.aborted().encode()
        if aborted:
            self._disk.replace(path, aborted)
        elif self._disk.exists(path):
            self._disk.unlink(path)
        else:
            return False
        return True

    def disown_companions(self) -> None:
        """The index files are not those of the segment any more."""
        self._disk.unlink(self.stem + ".index")

    # Reading

    def opened(self, *, nowait: bool = False) -> Opened:
        """File and indexes. Retired; WouldBlock with `nowait` when they are not at hand."""
        held = self._held
        if held is not None:
            return held
        opened = self._files.get(self)
        if opened is None:
            if nowait:
                raise WouldBlock
            opened = self._open()
            self._files.put(self, opened)
            if self.retired:
                self._files.drop(self)
        return opened

    def _open(self) -> Opened:
        try:
            file = self._disk.open(self.path)
            indexed = self._indexed(file)
        except FileNotFoundError:
            if self.retired:
                raise Retired from None
            raise
        # What was opened before the segment retired is its own; after that, nobody knows.
        if self.retired:
            raise Retired
        return Opened(file, indexed.indexes)

    def load(self) -> Indexed:
        """Read the indexes of the last segment of a log that was closed properly, and hold it open."""
        file = self._disk.open_append(self.path)
        indexed = self._indexed(file)
        self.hold(file, indexed.indexes)
        return indexed

    def _indexed(self, file: File) -> Indexed:
        return load(self._disk, self.stem, self.base_offset, file, self.size, self.interval_bytes, dense=self.dense)

    def locate(self, offset: int, *, nowait: bool = False) -> int:
        """The position of the first batch that ends at or after this offset; the segment's size if none does.

        Unreadable where the way there is broken.
        """
        if offset <= self.base_offset:
            return 0
        place = self._places.get(offset)
        if place is not None:
            return place
        size = self.size
        opened = self.opened(nowait=nowait)
        known, start = opened.indexes.offsets.floor(offset)
        try:
            for head in heads(opened.file, start, size, self.base_offset, dense=self.dense, nowait=nowait):
                if head.position == start and known not in (-1, head.last_offset):
                    break
                if head.last_offset >= offset:
                    self.remember(offset, head.position)
                    return head.position
            else:
                if start < size or size == 0:
                    return size
        except Unreadable as broken:
            if start == 0 or broken.position != start:
                raise
        if nowait:
            raise WouldBlock
        self._distrust(opened, size)
        for head in heads(opened.file, 0, size, self.base_offset, dense=self.dense):
            if head.last_offset >= offset:
                self.remember(offset, head.position)
                return head.position
        return size

    def _distrust(self, opened: Opened, size: int) -> None:
        """An index entry does not name a batch: the index is wrong, or the file is. Build it again where nobody adds to it."""
        if opened is not self._held:
            opened.indexes = build(self.base_offset, opened.file, size, self.interval_bytes, dense=self.dense).indexes

    def remember(self, offset: int, position: int) -> None:
        """The first batch that ends at or after this offset begins at this position."""
        if len(self._places) >= PLACES_MAX:
            self._places.clear()
        self._places[offset] = position

    def read(self, offset: int, position: int, limit: int, max_bytes: int, *, nowait: bool = False) -> Data:
        """Whole batches from `position`, where one begins, up to `limit`, where one ends: as many as fit, at least one.

        `offset` is the one that is looked for, in the first batch. What this process has neither written nor read before
        is verified. Unreadable where it is broken; WouldBlock.
        """
        opened = self.opened(nowait=nowait)
        room = limit - position
        data: Data = opened.file.pread(
            position, room if room <= max_bytes else max(max_bytes, HEADER_SIZE), nowait=nowait
        )
        if len(data) < room:
            data = self._whole(opened, data, offset, position, limit, nowait)
        end = position + len(data)
        if not self.is_verified(position, end):
            self._verify(data, offset, position)
            self._verified.add(position, end)
        return data

    def _whole(self, opened: Opened, data: Data, offset: int, position: int, limit: int, nowait: bool) -> Data:
        """Cut the data after its last whole batch; read on if there is not even one."""
        if len(data) >= LENGTH_END:
            size = LENGTH_END + _LENGTH.unpack_from(data)[0]
            if not HEADER_SIZE <= size <= limit - position:
                raise Unreadable(position, offset, f"a batch of {size} bytes where {limit - position} are left")
            if size <= len(data):
                return self._cut(opened, memoryview(data), position)
            data = opened.file.pread(position, size, nowait=nowait)
            if len(data) == size:
                return data
        if nowait:
            raise WouldBlock
        raise Unreadable(position, offset, f"the file ends after {len(data)} bytes of a batch")

    def _cut(self, opened: Opened, view: memoryview, position: int) -> memoryview:
        """Up to the end of the last whole batch, found from the index entry nearest to the end. There is at least one."""
        known, start = opened.indexes.offsets.boundary(position + len(view) - HEADER_SIZE)
        at, last = start - position, 0
        if not 0 < at <= len(view) - HEADER_SIZE or known != last_offset_in(view, at):
            at = 0
        while at + HEADER_SIZE <= len(view):
            size = LENGTH_END + _LENGTH.unpack_from(view, at)[0]
            if size < HEADER_SIZE or at + size > len(view):
                break
            at, last = at + size, at
        self.remember(Batch(view[last:at]).next_offset, position + at)
        return view[:at]

    def is_verified(self, position: int, end: int) -> bool:
        """True when this process has written these bytes, or read and verified them."""
        return position >= self.trusted_from or self._verified.cover(position, end)

    def _verify(self, data: Data, offset: int, position: int) -> None:
        """Unreadable unless every batch is whole and follows the one before. `offset` lies in the first."""
        expected = -1
        for batch in batches(data):
            if expected < 0:
                expected = max(self.base_offset, min(offset, batch.base_offset))
                if not self.dense:
                    offset = max(offset, batch.base_offset)
                if not batch.base_offset <= offset <= batch.last_offset:
                    raise Unreadable(position, expected, f"{batch!r} where offset {offset} should be")
            check(batch, position, expected, dense=self.dense)
            expected = batch.next_offset
            position += batch.size

    def scrub(self) -> None:
        """Verify all that this process has not written. Unreadable at the first broken batch."""
        end = self.trusted_from
        if end and not self._verified.cover(0, end):
            file = self.opened().file
            for position, batch in whole_batches(file, 0, end, self.base_offset, dense=self.dense):
                self._verified.add(position, position + batch.size)

    # What it knows of itself

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch: what the segment's age counts from. −1 when there is none."""
        if self._first_timestamp is None:
            head = next(heads(self.opened().file, 0, self.size, self.base_offset), None)
            if head is None:
                return -1
            self._first_timestamp = head.max_timestamp
        return self._first_timestamp

    def largest_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of the first batch that has it; (−1, base offset) when none has one."""
        if self._held is not None or self._largest is None:
            indexes = self.opened().indexes
            self._largest = indexes.max_timestamp, indexes.max_timestamp_offset
        return self._largest

    def seek_time(self, timestamp_ms: int) -> int:
        """No record before the batch that holds this offset has the timestamp or a later one."""
        opened = self.opened()
        known_ms, offset = opened.indexes.times.floor(timestamp_ms)
        if offset == self.base_offset:
            return offset
        head = next(heads(opened.file, self.locate(offset), self.size, self.base_offset), None)
        if head is not None and (head.max_timestamp, head.last_offset) == (known_ms, offset):
            return offset
        self._distrust(opened, self.size)
        return self.base_offset

    def modified_ms(self) -> int:
        return self._disk.modified_ms(self.path)

    def aborted(self, *, nowait: bool = False) -> AbortedIndex:
        """The aborted transactions whose markers lie here. Retired; WouldBlock with `nowait` when they are not at hand.

        DamagedIndex when their file cannot be believed.
        """
        if self._aborted is None:
            if nowait:
                raise WouldBlock
            found = self._read_aborted()
            # What was read before the segment retired is its own; after that, nobody knows.
            if self.retired:
                raise Retired
            self._aborted = found
        return self._aborted

    def _read_aborted(self) -> AbortedIndex:
        if not self._disk.exists(self.stem + ".index"):
            if self.retired:
                raise Retired
            raise DamagedIndex(f"{self.path} was not closed properly, and has no index of aborted transactions")
        try:
            return AbortedIndex.decode(self._disk.read(self.stem + ".txnindex"))
        except FileNotFoundError:
            return AbortedIndex()

    def set_aborted(self, aborted: AbortedIndex) -> None:
        self._aborted = aborted

    # Going away

    def cut(self, position: int) -> int:
        """Cut the segment where a batch begins, and append to it from now on; returns its end offset."""
        aborted = self.aborted()
        file = self._disk.open_append(self.path)
        self.release()
        self.disown_companions()
        file.truncate(position)
        self.size, self.trusted_from = position, min(position, self.trusted_from)
        self._verified.cut(position)
        self._places.clear()
        self._first_timestamp = None
        indexed = build(self.base_offset, file, position, self.interval_bytes, dense=self.dense)
        self.hold(file, indexed.indexes)
        self._aborted = AbortedIndex(entry for entry in aborted if entry.last_offset < indexed.end_offset)
        return indexed.end_offset

    def release(self) -> None:
        """Let go of the file."""
        self._held = None
        self._files.drop(self)

    def retire(self) -> None:
        self.retired = True
        self.release()
