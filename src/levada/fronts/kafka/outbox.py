"""What leaves on one connection: buffers, and stretches of files that go from the page cache to the socket uncopied.

Plain answers are written through the transport. One with a stretch goes to the socket directly, once the transport holds
nothing any more: buffers with MSG_MORE, so that header and records share packets, stretches with sendfile. A reader who
does not keep up so costs no memory: what is not sent yet is a position in a file.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from levada.config import KiB
from levada.fronts.kafka.reply import Buffer, Frame
from levada.log.stretch import Stretch

#: Below this it is cheaper to join buffers than to have the kernel gather them.
JOIN_BYTES_MAX: Final = 32 * KiB
_MORE: Final = getattr(socket, "MSG_MORE", 0)


class Outbox:
    """Sends parts in order. While `busy`, something could not be sent; `drained` is called when it has been."""

    __slots__ = ("_drained", "_has_stretch", "_loop", "_parts", "_socket", "_transport", "busy")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, drained: Callable[[], None]
    ) -> None:
        # With no room at all the transport says at once when it could not send everything, and when it has.
        transport.set_write_buffer_limits(high=0, low=0)
        self._transport = transport
        self._loop = loop
        self._drained = drained
        self._parts: deque[Buffer | Stretch] = deque()
        self._has_stretch = False
        self._socket: socket.socket | None = None
        self.busy = False

    @property
    def held_bytes(self) -> int:
        """Memory of what could not be sent yet."""
        waiting = sum(len(part) for part in self._parts if isinstance(part, bytes | bytearray | memoryview))
        return waiting + self._transport.get_write_buffer_size()

    def put(self, frame: Frame) -> None:
        """Add an answer, to leave with the next `flush`."""
        if isinstance(frame, bytes):
            self._parts.append(frame)
            return
        self._parts.extend(frame)
        if not self._has_stretch:
            self._has_stretch = any(isinstance(part, Stretch) for part in frame)

    def flush(self) -> None:
        """Send what there is, as far as the client takes it."""
        if self.busy or not self._parts:
            return
        if self._has_stretch:
            self._send_directly()
        else:
            self._write()

    def _write(self) -> None:
        parts: list[Buffer] = list(self._parts)  # type: ignore[arg-type]  # there is no stretch
        self._parts.clear()
        if len(parts) == 1:
            self._transport.write(parts[0])
        elif sum(map(len, parts)) <= JOIN_BYTES_MAX:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def choke(self) -> None:
        """The transport could not send everything."""
        self.busy = True

    def clear(self) -> None:
        """The transport has sent everything."""
        self.busy = False
        self._drained()

    # Past the transport

    def _send_directly(self) -> None:
        if self._socket is None:
            self._socket = self._own_socket()
        try:
            while self._parts and self._send_part(self._socket, self._parts[0]):
                pass
        except BlockingIOError:
            pass
        except OSError:
            self._transport.abort()
            return
        if not self._parts:
            self._has_stretch = False
        elif not self.busy:
            self.busy = True
            self._loop.add_writer(self._socket.fileno(), self._go_on)

    def _own_socket(self) -> socket.socket:
        """Another handle on the connection's socket: the loop lets nobody else wait for a transport's own."""
        return socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno()))

    def _send_part(self, own: socket.socket, part: Buffer | Stretch) -> bool:
        """Send what the socket takes now; False when that is not all of it, so that asking again would be in vain."""
        size = len(part)
        if isinstance(part, Stretch):
            sent = os.sendfile(own.fileno(), part.fileno(), part.position, size)
            if sent == 0:
                raise OSError("the file is shorter than it was")
        else:
            sent = own.send(part, _MORE if len(self._parts) > 1 else 0)
        if sent == size:
            self._parts.popleft()
            return True
        self._parts[0] = part.rest(sent) if isinstance(part, Stretch) else memoryview(part)[sent:]
        return False

    def _go_on(self) -> None:
        """The client has taken some of it."""
        self._send_directly()
        if not self._parts and self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
            self.clear()

    def close(self) -> None:
        """The connection is gone."""
        self._parts.clear()
        if self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None
