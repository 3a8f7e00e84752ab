"""A TCP proxy between clients and a broker that cuts connections in the middle of an answer.

The worst moment for a producer is after the broker has stored its records and before it knows: it must send them again
and the broker must not store them twice. So the proxy follows the frames (int32 length, then int16 API key in requests,
int32 correlation id in both), lets chosen Produce requests through, forwards half of the answer, and resets both sides.
The broker has to advertise the proxy's address, or clients walk around it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

PRODUCE = 0


class Proxy:
    """Listens from the start, so its address can be advertised; forwards once `target` is set."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self.listener.getsockname()[1]
        self.target: tuple[str, int] | None = None
        self.cuts = 0
        self.lock = threading.Lock()
        self.to_cut = 0
        self.spare = 0
        self.links: set[Link] = set()
        self.closed = False
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut_produce_answers(self, times: int, *, every: int = 1) -> None:
        """From now on cut every n-th answer to a Produce request, so many times."""
        with self.lock:
            self.to_cut, self.every, self.spare, self.cuts = times, every, every - 1, 0

    def should_cut(self) -> bool:
        with self.lock:
            if not self.to_cut:
                return False
            if self.spare:
                self.spare -= 1
                return False
            self.to_cut, self.spare, self.cuts = self.to_cut - 1, self.every - 1, self.cuts + 1
            return True

    def accept(self) -> None:
        while not self.closed:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            target = self.target
            try:
                if target is None:
                    raise ConnectionRefusedError
                broker = socket.create_connection(target)
            except OSError:
                reset(client)
                continue
            link = self.link(client, broker)
            self.links.add(link)
            link.start()

    def link(self, client: socket.socket, broker: socket.socket) -> Link:
        return Link(self, client, broker)

    def cut_all(self) -> None:
        """Reset every connection there is now."""
        for link in list(self.links):
            link.cut()

    def close(self) -> None:
        self.closed = True
        # shutdown wakes the thread that waits in accept; close alone does not.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut_all()


class Link:
    """One client connection and its counterpart to the broker."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self.proxy, self.client, self.broker = proxy, client, broker
        self.produces: set[int] = set()
        for side in (client, broker):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        threading.Thread(target=self.pump, args=(self.requests,), daemon=True).start()
        threading.Thread(target=self.pump, args=(self.answers,), daemon=True).start()

    def pump(self, direction: object) -> None:
        assert callable(direction)
        with contextlib.suppress(OSError):
            direction()
        self.cut()

    def requests(self) -> None:
        while (frame := read_frame(self.client)) is not None:
            api_key, _version, correlation = struct.unpack_from(">hhi", frame, 4)
            if api_key == PRODUCE:
                self.produces.add(correlation)
            self.broker.sendall(frame)

    def answers(self) -> None:
        while (frame := read_frame(self.broker)) is not None:
            (correlation,) = struct.unpack_from(">i", frame, 4)
            if correlation in self.produces:
                self.produces.discard(correlation)
                if self.proxy.should_cut():
                    self.client.sendall(frame[: len(frame) // 2])
                    return
            self.client.sendall(frame)

    def cut(self) -> None:
        self.proxy.links.discard(self)
        reset(self.client)
        reset(self.broker)


def read_frame(source: socket.socket) -> bytes | None:
    """A whole frame with its length; None when the other side has gone."""
    head = read_exactly(source, 4)
    if head is None:
        return None
    body = read_exactly(source, struct.unpack(">i", head)[0])
    return None if body is None else head + body


def read_exactly(source: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = source.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def reset(side: socket.socket) -> None:
    """Close with RST, as a machine that vanished would be noticed. Wakes a thread that waits in recv."""
    with contextlib.suppress(OSError):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        side.shutdown(socket.SHUT_RDWR)
    side.close()
