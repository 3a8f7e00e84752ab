"""A partition's directory: what the files in it are called, and putting it in order after a stop at any moment.

<base offset>.log .index .timeindex .txnindex     a segment
<offset>.snapshot                                 producers as they were at this offset, see producers.py
leader-epoch-checkpoint                           see epochs.py
log-start-offset-checkpoint                       below this offset nothing is read any more (text: version 0, count, entry)
cleaner-offset-checkpoint                         up to this offset segments have been compacted, and have gaps
partition.metadata                                whose partition this is (text: version and topic id)
damaged                                           the log is broken at this offset, and takes no writes until it is not

*.deleted                                         out of use, to be removed
*.cleaned                                         compaction was writing it
*.swap                                            compaction had finished writing, and was putting it in place
*.tmp                                             a small file was being replaced
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from levada.errors import DamagedIndex
from levada.log.disk import Disk
from levada.log.scan import Unreadable, heads

START_FILE: Final = "log-start-offset-checkpoint"
CLEANED_FILE: Final = "cleaner-offset-checkpoint"
DAMAGED_FILE: Final = "damaged"
SEGMENT_ENDINGS: Final = (".log", ".index", ".timeindex", ".txnindex")
_NUMBERED: Final = re.compile(r"(\d{20})(\.(?:log|index|timeindex|txnindex|snapshot))")


class Contents(NamedTuple):
    """The numbered files of a directory in order."""

    #: Base offset → bytes, ascending.
    segments: dict[int, int]
    #: Base offsets of segments with an `.index` file.
    indexed: set[int]
    #: Offsets, ascending.
    snapshots: list[int]


def name(offset: int, ending: str) -> str:
    return f"{offset:020d}{ending}"


def stem(path: str, offset: int) -> str:
    """The path of a segment's files without their ending."""
    return os.path.join(path, name(offset, ""))


def tidy(disk: Disk, path: str) -> Contents:
    """Finish or undo what was under way when the broker stopped, and list what is there."""
    names = sorted(disk.listdir(path))
    swaps = {file for file in names if file.endswith(".swap")}
    # While a .cleaned file is there, compaction was not done writing: what it had put aside to swap in at or after
    # that offset may be half of it. Kafka reads these directories the same way.
    cleaned = [_offset(file) for file in names if file.endswith(".cleaned")]
    first_cleaned = min(cleaned, default=None)
    whole = {file for file in swaps if first_cleaned is None or _offset(file) < first_cleaned}
    for file in names:
        if file.endswith((".deleted", ".cleaned", ".tmp")) or file in swaps - whole:
            disk.unlink(os.path.join(path, file))
    if whole:
        _swap_in(disk, path, whole)
    return _list(disk, path)


def _offset(file: str) -> int:
    digits = file[:20]
    return int(digits) if digits.isdecimal() else -1


def _swap_in(disk: Disk, path: str, swaps: Iterable[str]) -> None:
    """Put compacted segments in the place of those they were made from."""
    cleaned_to = before = _cleaned_to(disk, path)
    for file in sorted(file for file in swaps if file.endswith(".log.swap")):
        base_offset = _offset(file)
        end_offset = _end_offset(disk, os.path.join(path, file), base_offset)
        cleaned_to = max(cleaned_to, end_offset, base_offset + 1)
        for old, ending in _numbered(disk.listdir(path)):
            if ending in SEGMENT_ENDINGS and (old == base_offset or base_offset < old < end_offset):
                disk.unlink(stem(path, old) + ending)
    if cleaned_to > before:
        write_checkpoint(disk, path, CLEANED_FILE, cleaned_to)
    # Nothing old may come back beside the new. The segment itself is named last: until then all this can be done again.
    disk.fsync_dir(path)
    for file in sorted(swaps, key=lambda file: file.endswith(".log.swap")):
        disk.rename(os.path.join(path, file), os.path.join(path, file.removesuffix(".swap")))
    disk.fsync_dir(path)


def _cleaned_to(disk: Disk, path: str) -> int:
    try:
        return read_checkpoint(disk, path, CLEANED_FILE) or 0
    except DamagedIndex:
        return 0


def _end_offset(disk: Disk, path: str, base_offset: int) -> int:
    file = disk.open(path)
    end_offset = base_offset
    try:
        for head in heads(file, 0, file.size, base_offset):
            end_offset = head.last_offset + 1
    except Unreadable:
        return end_offset
    return end_offset


def _numbered(files: Iterable[str]) -> list[tuple[int, str]]:
    found = filter(None, map(_NUMBERED.fullmatch, files))
    return sorted((int(match[1]), match[2]) for match in found)


def _list(disk: Disk, path: str) -> Contents:
    contents = Contents({}, set(), [])
    for offset, ending in _numbered(disk.listdir(path)):
        if ending == ".log":
            contents.segments[offset] = disk.size(stem(path, offset) + ending)
        elif ending == ".index":
            contents.indexed.add(offset)
        elif ending == ".snapshot":
            contents.snapshots.append(offset)
    return contents


def read_checkpoint(disk: Disk, path: str, name: str) -> int | None:
    """The offset in a checkpoint file, None when there is no file. DamagedIndex."""
    try:
        data = disk.read(os.path.join(path, name))
    except FileNotFoundError:
        return None
    try:
        version, count, entry = data.decode("ascii").splitlines()
        if (version, count) == ("0", "1"):
            return int(entry.split(" ")[-1])
    except ValueError:
        pass
    raise DamagedIndex(f"{os.path.join(path, name)} is not a checkpoint")


def checkpoint(path: str, name: str, offset: int) -> tuple[str, bytes]:
    """A checkpoint's name and content: Kafka's form, with one entry, topic, partition and offset."""
    topic, _, partition = os.path.basename(path).rpartition("-")
    return name, f"0\n1\n{topic} {partition} {offset}\n".encode()


def write_checkpoint(disk: Disk, path: str, name: str, offset: int) -> None:
    """Durable when it returns."""
    disk.atomic_write(os.path.join(path, name), checkpoint(path, name, offset)[1])
