"""Frames out of a byte stream: int32 size, then that many bytes. No I/O here: bytes in, frames out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from levada.errors import MalformedFrame
from levada.wire.primitives import Buffer

_SIZE: Final = Struct(">i")


class Framer:
    """Cuts a stream into frames, however the network cut it before.

    A size below 0 or above the limit is MalformedFrame at once, before anything of the frame is kept; the stream is then of no
    further use. A frame is a view of bytes that are never written to again, provided the caller feeds such bytes; it may be kept.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._held = bytearray()
        #: Bytes of the frame under way that are still to come; what `_held` needs before it is worth a look.
        self._missing = 4

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
        return len(self._held)


def frame(parts: Iterable[Buffer]) -> list[Buffer]:
    """These parts as one frame: its size, then they themselves, uncopied."""
    held = list(parts)
    return [_SIZE.pack(sum(map(len, held))), *held]
