"""Where batches lie in their file, for whoever sends them from there (sendfile) instead of reading them.

Only what needs no look: bytes that this process wrote or has verified, and that are all in the page cache, so that sending
them does not wait for the disk. Everything else is for `Log.read`. Called on the thread that appends.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

from levada.config import KiB
from levada.log.disk import File, WouldBlock, _Handle
from levada.log.scan import Unreadable, heads
from levada.log.segment import Retired
from levada.records.batch import HEADER_SIZE

if TYPE_CHECKING:
    from levada.log.files import Opened
    from levada.log.log import Log
    from levada.log.segment import Segment

#: Below this reading costs less than finding out.
STRETCH_BYTES_MIN: Final = 128 * KiB
#: The same number on every architecture; Linux 6.5 and later.
_CACHESTAT: Final = 451
_PAGE: Final = mmap.PAGESIZE


class Stretch:
    """Bytes of a file. Keeps the file open for as long as it lives, whatever happens to its name."""

    __slots__ = ("_handle", "_size", "end_offset", "position")

    def __init__(self, handle: _Handle, position: int, size: int, end_offset: int) -> None:
        self._handle = handle
        self._size = size
        self.position = position
        #: The offset after the last record.
        self.end_offset = end_offset

    def __len__(self) -> int:
        return self._size

    def fileno(self) -> int:
        return self._handle.fd

    def rest(self, sent: int) -> Stretch:
        """What is left when so many bytes are sent."""
        return Stretch(self._handle, self.position + sent, self._size - sent, self.end_offset)


def find(log: Log, offset: int, max_bytes: int, end_offset: int) -> Stretch | None:
    """Where the batches lie that `log.read` would give, or as many of them; None when they have to be read."""
    if max_bytes < STRETCH_BYTES_MIN or not log.start_offset <= offset < end_offset or log.damage is not None:
        return None
    segments = log.segments
    number = max(0, bisect_right(segments, offset, key=_base_offset) - 1)
    segment = segments[number]
    following = segments[number + 1].base_offset if number + 1 < len(segments) else log.end_offset
    try:
        position = segment.locate(offset, nowait=True)
        limit = segment.size if end_offset >= following else segment.locate(end_offset, nowait=True)
        return _within(segment, position, limit, max_bytes, min(following, end_offset))
    except (WouldBlock, Unreadable, Retired, OSError):
        # Reading it will say what is wrong.
        return None


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _within(segment: Segment, position: int, limit: int, max_bytes: int, end_offset: int) -> Stretch | None:
    if limit - position < STRETCH_BYTES_MIN:
        return None
    opened = segment.opened(nowait=True)
    end = limit
    if end - position > max_bytes:
        end, end_offset = _last_end(segment, opened, position, position + max_bytes)
    size = end - position
    if size < STRETCH_BYTES_MIN or type(opened.file) is not File:
        return None
    if not segment.is_verified(position, end):
        return None
    handle = opened.file._handle
    return Stretch(handle, position, size, end_offset) if _is_cached(handle.fd, position, size) else None


def _last_end(segment: Segment, opened: Opened, position: int, stop: int) -> tuple[int, int]:
    """Where the last batch ends that is whole before `stop`, and its end offset; `position` when there is none, or the
    index does not fit."""
    known, start = opened.indexes.offsets.boundary(stop - HEADER_SIZE)
    end, end_offset = position, -1
    for head in heads(opened.file, max(start, position), segment.size, segment.base_offset, nowait=True):
        if head.position + head.size > stop or (head.position == start > position and head.last_offset != known):
            break
        end, end_offset = head.position + head.size, head.last_offset + 1
    if end > position:
        segment.remember(end_offset, end)
    return end, end_offset


@cache
def _cachestat() -> Callable[..., int] | None:
    """The system call that counts cached pages; None where there is none."""
    try:
        call: Callable[..., int] = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    is_there = call(_CACHESTAT, -1, None, None, 0) == -1 and ctypes.get_errno() != errno.ENOSYS
    return call if is_there else None


def _is_cached(fd: int, position: int, size: int) -> bool:
    """Is every page of the range in the page cache? False where the kernel does not tell."""
    call = _cachestat()
    if call is None:
        return False
    first = position // _PAGE
    pages = (position + size - 1) // _PAGE - first + 1
    span = (ctypes.c_uint64 * 2)(first * _PAGE, pages * _PAGE)
    found = (ctypes.c_uint64 * 5)()
    return call(_CACHESTAT, fd, ctypes.byref(span), ctypes.byref(found), 0) == 0 and found[0] >= pages
