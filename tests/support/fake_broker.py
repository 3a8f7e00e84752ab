"""A broker of a few lines on a real socket, for what no real broker does on demand: to stall, to babble, to hang up.

Each connection is served by a thread. `replies` maps a call to a function (fields → fields of the answer, or one of STALL, BABBLE,
HANG_UP, CUT); ApiVersions and Metadata have answers of their own.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from levada.wire import codec
from levada.wire.apis import APIS, ApiKey
from support.proxy import read_frame

STALL, BABBLE, HANG_UP, CUT, WRONG_TURN = "stall", "babble", "hang up", "cut", "wrong turn"

Reply = Callable[[Any], Any]


class FakeBroker:
    def __init__(self, **versions: tuple[int, int]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.replies: dict[int, Reply] = {ApiKey.API_VERSIONS: self.versions, ApiKey.METADATA: self.metadata}
        #: (call, version) of everything asked.
        self.asked: list[tuple[int, int]] = []
        self.connections: list[socket.socket] = []
        self.offered = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
        self.offered |= {ApiKey[name.upper()]: span for name, span in versions.items()}
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def versions(self, _request: Any) -> Mapping[str, Any]:
        rows = [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in sorted(self.offered.items())
        ]
        return {"api_keys": rows}

    def metadata(self, request: Any) -> Mapping[str, Any]:
        partitions = [{"partition_index": 0, "leader_id": 1, "leader_epoch": 0}]
        return {
            "brokers": [{"node_id": 1, "host": "127.0.0.1", "port": self.port}],
            "controller_id": 1,
            "topics": [{"name": topic.name, "partitions": partitions} for topic in request.topics or ()],
        }

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (frame := read_frame(connection)) is not None:
                if not self.reply(connection, memoryview(frame)[4:]):
                    connection.shutdown(socket.SHUT_RDWR)
                    return

    def reply(self, connection: socket.socket, frame: memoryview) -> bool:
        key, version, correlation_id, _client, start = codec.read_request_header(frame)
        self.asked.append((key, version))
        low, high = self.offered[key]
        if key == ApiKey.API_VERSIONS and not low <= version <= high:
            body = codec.write_response(key, 0, {"error_code": 35, **self.versions(None)})
            return send(connection, codec.write_response_header(key, 0, correlation_id) + body)
        answer = self.replies[key](codec.read_request(key, version, frame[start:]))
        if isinstance(answer, Mapping):
            body = codec.write_response(key, version, answer)
            return send(connection, codec.write_response_header(key, version, correlation_id) + body)
        return misbehave(connection, answer, key, version, correlation_id)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            connection.close()


def send(connection: socket.socket, frame: bytes) -> bool:
    connection.sendall(len(frame).to_bytes(4, "big") + frame)
    return True


def misbehave(connection: socket.socket, how: str, key: int, version: int, correlation_id: int) -> bool:
    """True where the connection stays open."""
    if how == BABBLE:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    elif how == CUT:
        connection.sendall(b"\0\0\0\x20half of it")
        return False
    elif how == WRONG_TURN:
        return send(connection, codec.write_response_header(key, version, correlation_id + 1) + b"\0\0\0\0\0\0")
    return how != HANG_UP
