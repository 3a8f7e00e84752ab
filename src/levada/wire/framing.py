"""Frames out of a byte stream: int32 size, then that many bytes. No I/O here: bytes in, frames out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from levada.errors import MalformedFrame
from levada.wire.primitives import Buffer

_SIZE: Final = Struct(">i")
#: Less is copied as fast as it is received in place; more is not set aside on a peer's word alone.
_ROOM_BYTES: Final = 64 << 10
_ROOM_BYTES_MAX: Final = 64 << 20


class Framer:
    """Cuts a stream into frames, however the network cut it before.

    A size below 0 or above the limit is MalformedFrame at once, before anything of the frame is kept; the stream is then of no
    further use. A frame is a view of bytes that are never written to again, provided the caller feeds such bytes; it may be kept.

    What is still to come of a large frame may be received in place, which saves copying it: into `room()`, told by `filled`.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._held = bytearray()
        #: Bytes of the frame under way that are still to come; what `_held` needs before it is worth a look.
        self._missing = 4
        #: A large frame under way, with its size before it, and how much of it is there.
        self._large: bytearray | None = None
        self._filled = 0

    def room(self) -> memoryview | None:
        """Where the rest of the frame under way belongs, if it is large; then nothing is fed before all of it is filled."""
        if self._large is None:
            if not _ROOM_BYTES <= self._missing - len(self._held) <= _ROOM_BYTES_MAX:
                return None
            self._large, self._filled = bytearray(self._missing), len(self._held)
            self._large[: self._filled] = self._held
            self._held, self._missing = bytearray(), 4
        return memoryview(self._large)[self._filled :]

    def filled(self, count: int) -> Iterator[memoryview]:
        """So many bytes were put into the room: the frame, if it is whole now."""
        assert self._large is not None
        self._filled += count
        if self._filled == len(self._large):
            whole, self._large = self._large, None
            yield memoryview(whole)[4:]

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """The frames that are whole now. Must be run to its end before the next feed."""
        if self._held:
            self._held += data
            if len(self._held) < self._missing:
                return
            data, self._held = self._held, bytearray()
        view, position, end = memoryview(data), 0, len(data)
        while end - position >= 4:
            size = self._checked(_SIZE.unpack_from(view, position)[0])
            if end - position - 4 < size:
                self._missing = size + 4
                break
            yield view[position + 4 : position + 4 + size]
            position += 4 + size
        else:
            self._missing = 4
        self._held += view[position:]

    def _checked(self, size: int) -> int:
        if not 0 <= size <= self.frame_bytes_max:
            raise MalformedFrame(f"a frame says it has {size} bytes; 0 to {self.frame_bytes_max} are allowed")
        return size

    @property
    def pending_bytes(self) -> int:
        """Bytes of an unfinished frame: not 0 at the end of a stream means it was cut."""
        return len(self._held) if self._large is None else self._filled


def frame(parts: Iterable[Buffer]) -> list[Buffer]:
    """These parts as one frame: its size, then they themselves, uncopied."""
    held = list(parts)
    return [_SIZE.pack(sum(map(len, held))), *held]
