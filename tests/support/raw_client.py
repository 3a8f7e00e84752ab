"""A Kafka client that says exactly what a test tells it to: one connection, one request after the other or many at once."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from levada.server import Server
from levada.wire.codec import (
    Message,
    read_response,
    read_response_header,
    write_request,
    write_request_header,
)

Buffer = bytes | bytearray | memoryview


class RawClient:
    """Requests are numbered from 1; `expect` reads the next answer and checks its number."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._sent = 0
        self._asked: list[tuple[int, int, int]] = []

    async def call(self, api_key: int, version: int, **fields: Any) -> Message:
        """Send a request and wait for its answer."""
        self.send(api_key, version, **fields)
        return await self.expect()

    def send(self, api_key: int, version: int, **fields: Any) -> int:
        return self.send_body(api_key, version, write_request(api_key, version, fields))

    def send_body(self, api_key: int, version: int, body: Buffer, *, answered: bool = True) -> int:
        """Send a request whose body is given as bytes; gives its number."""
        self._sent += 1
        header = write_request_header(api_key, version, self._sent, "raw")
        self.writer.write(struct.pack(">i", len(header) + len(body)) + header + bytes(body))
        if answered:
            self._asked.append((api_key, version, self._sent))
        return self._sent

    def send_frame(self, frame: Buffer) -> None:
        """Send bytes as one frame, whatever they are."""
        self.writer.write(struct.pack(">i", len(frame)) + bytes(frame))

    async def expect(self, timeout_s: float = 10.0) -> Message:
        """The answer to the oldest request that has none yet."""
        api_key, version, number = self._asked.pop(0)
        async with asyncio.timeout(timeout_s):
            frame = await self.receive()
        correlation_id, start = read_response_header(api_key, version, frame)
        assert correlation_id == number, f"answer to request {correlation_id}, expected that to {number}"
        return read_response(api_key, version, frame[start:])

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def nothing_comes(self, wait_s: float = 0.05) -> bool:
        try:
            async with asyncio.timeout(wait_s):
                await self.reader.readexactly(1)
        except TimeoutError:
            return True
        return False

    async def is_closed(self, timeout_s: float = 10.0) -> bool:
        """Wait until the broker closes the connection; False if something else comes."""
        async with asyncio.timeout(timeout_s):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[RawClient]:
    """A connection to this broker."""
    host, port = server.addresses["kafka"]
    client = RawClient(*await asyncio.open_connection(host, port))
    try:
        yield client
    finally:
        client.close()
