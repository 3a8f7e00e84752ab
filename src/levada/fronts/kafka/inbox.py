"""Where a connection's bytes land, and the frames in them.

A frame is `int32 size | size bytes`. The bytes of a read land in a scratch buffer that all connections share, because a
read and the handling of what it brought happen in one go. Only what is left over, a frame that is not complete or not
yet taken, moves to a buffer of the connection's own; an idle connection holds none. A large frame is received straight
into its own buffer, so its records are copied once, socket to buffer. It gets room step by step: what has been promised
costs nothing, only what came.

No sockets and no clock here: `room()` says where the next bytes go, `received(n)` that they came, `take()` gives whole
frames, `settle()` closes the round. A frame is valid until `settle()`; after that its memory may be used again.
"""

from __future__ import annotations

from mmap import mmap
from struct import Struct
from typing import Final

from levada.config import KiB, MiB
from levada.errors import MalformedFrame

SIZE: Final = Struct(">i")
SCRATCH_BYTES: Final = 128 * KiB
#: Room for the first bytes of a large frame; from then on there is room for some times what has come.
_FIRST_BYTES: Final = 256 * KiB
_GROWTH: Final = 4
_unpack_size = SIZE.unpack_from


class Buffers:
    """Memory for frames, used again where it can be: fresh memory for each large frame costs more than reading it.

    Large ones are mapped, in sizes of powers of two: what a client only promises to send takes no memory yet. At most
    `kept_bytes_max` are kept for the next frame.
    """

    _smallest: Final = 128 * KiB
    _largest: Final = 4 * MiB

    def __init__(self, kept_bytes_max: int = 16 * MiB) -> None:
        self._free: dict[int, list[mmap]] = {}
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes_max

    def get(self, size: int) -> bytearray | mmap:
        """At least `size` bytes."""
        if size <= self._smallest // 2:
            return bytearray(size)
        if size > self._largest:
            return mmap(-1, size)
        size = max(self._smallest, 1 << (size - 1).bit_length())
        free = self._free.get(size)
        if free:
            self._kept_bytes -= size
            return free.pop()
        return mmap(-1, size)

    def put(self, buffer: bytearray | mmap) -> None:
        """Take memory back that nobody looks at any more."""
        size = len(buffer)
        if isinstance(buffer, mmap) and size <= self._largest and self._kept_bytes + size <= self._kept_bytes_max:
            self._kept_bytes += size
            self._free.setdefault(size, []).append(buffer)

    def clear(self) -> None:
        """Give the memory back."""
        self._free.clear()
        self._kept_bytes = 0


class Inbox:
    """The received bytes of one connection that were not taken yet: `data[begin:end]`."""

    __slots__ = (
        "_begin",
        "_buffers",
        "_data",
        "_end",
        "_own",
        "_prefix",
        "_reach",
        "_scratch",
        "frame_bytes_max",
        "frames_begun",
    )

    def __init__(self, scratch: memoryview, buffers: Buffers, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._buffers = buffers
        self.frame_bytes_max = frame_bytes_max
        self._data = scratch
        #: The buffer behind `_data` where it is the connection's own.
        self._own: bytearray | mmap | None = None
        #: Up to three bytes of a size; the rest comes with the next read.
        self._prefix = b""
        self._begin = 0
        self._end = 0
        #: Up to where the connection's own buffer may be filled now.
        self._reach = 0
        #: How many frames got a buffer of their own.
        self.frames_begun = 0

    @property
    def held_bytes(self) -> int:
        """Memory that belongs to this connection alone, as far as it can have been filled."""
        return self._reach

    @property
    def kept_bytes(self) -> int:
        """What of it has been filled."""
        return 0 if self._own is None else self._end

    @property
    def frame_bytes(self) -> int:
        """The size of what is being received into it."""
        return 0 if self._own is None else len(self._data)

    @property
    def unread(self) -> bool:
        """True while bytes are here that no frame has been taken of."""
        return self._begin < self._end

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if self._own is None:
            self._end = len(self._prefix)
            if self._end:
                self._scratch[: self._end] = self._prefix
                self._prefix = b""
            return self._data[self._end :]
        return self._data[self._end : self._reach]

    def received(self, count: int) -> None:
        self._end += count

    def take(self) -> memoryview | None:
        """The next whole frame, without its size; None until more bytes came. MalformedFrame for an impossible size."""
        begin = self._begin
        body = begin + 4
        if body > self._end:
            return None
        size: int = _unpack_size(self._data, begin)[0]
        if size < 0 or size > self.frame_bytes_max:
            raise MalformedFrame(f"frame of {size} bytes: socket.request.max.bytes is {self.frame_bytes_max}")
        after = body + size
        if after > self._end:
            return None
        self._begin = after
        return self._data[body:after]

    def settle(self) -> None:
        """Close the round: what was not taken moves to memory of the connection's own, with room for its frame."""
        unread = self._end - self._begin
        if unread >= 4:
            self._keep(unread)
            return
        if unread:
            self._prefix = bytes(self._data[self._begin : self._end])
        self._release()

    def close(self) -> None:
        """Give the memory back; nothing more is received."""
        self._release()

    def _keep(self, unread: int) -> None:
        size = _unpack_size(self._data, self._begin)[0]
        # A size that take() will refuse makes no room.
        needed = max(unread, 4 + size) if size <= self.frame_bytes_max else unread
        if self._own is not None and self._begin + needed <= len(self._data):
            if self._end >= self._reach:
                self._reach = min(len(self._data), _GROWTH * self._end)
            return
        own = self._buffers.get(needed)
        data = memoryview(own)
        data[:unread] = self._data[self._begin : self._end]
        self._release()
        self._own = own
        # No more than this frame: the bytes after it belong in the scratch buffer.
        self._data = data[:needed]
        self._end = unread
        self._reach = min(needed, max(_FIRST_BYTES, _GROWTH * unread))
        self.frames_begun += 1

    def _release(self) -> None:
        if self._own is not None:
            self._buffers.put(self._own)
            self._own = None
            self._data = self._scratch
            self._reach = 0
        self._begin = self._end = 0
