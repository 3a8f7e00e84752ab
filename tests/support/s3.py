"""An S3 server in a process of its own, and one that takes no notice of conditions.

with S3(tmp_path) as s3:
    s3.make_bucket("lake")
    …  # with s3.environment
"""

from __future__ import annotations

import http.client
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

import httpx

from support.guard import Daemon
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT_S = 120.0


class S3:
    """moto's server: it keeps objects in memory, and honours `If-None-Match`."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._daemon = Daemon(command, home / "s3.txt", {**os.environ, "MOTO_ALLOW_NONEXISTENT_REGION": "true"})

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> Mapping[str, str]:
        return environment(self.endpoint)

    def make_bucket(self, name: str) -> None:
        httpx.put(f"{self.endpoint}/{name}").raise_for_status()

    def keys(self, bucket: str) -> list[str]:
        """Of all objects."""
        import re

        answer = httpx.get(f"{self.endpoint}/{bucket}", params={"list-type": "2", "max-keys": "1000"})
        return re.findall(r"<Key>([^<]+)</Key>", answer.raise_for_status().text)

    def _answers(self) -> bool:
        if not self._daemon.running:
            raise RuntimeError(f"the S3 server ended:\n{self._daemon.text()}")
        try:
            return httpx.get(f"{self.endpoint}/", timeout=5).status_code < 500
        except httpx.TransportError:
            return False

    def __enter__(self) -> Self:
        wait_until(self._answers, START_TIMEOUT_S, self._daemon.text)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._daemon.stop()


def environment(endpoint: str) -> Mapping[str, str]:
    """What deltalake reads."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


@contextmanager
def forgetful(s3: S3) -> Iterator[str]:
    """The address of a server that is like the other, but puts an object whether there is one or not."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: text for name, text in self.headers.items() if name.lower() != "if-none-match"}
            there = http.client.HTTPConnection("127.0.0.1", s3.port, timeout=60)
            there.request(self.command, self.path, body, headers)
            answer = there.getresponse()
            content = answer.read()
            self.send_response_only(answer.status)
            for name, text in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, text)
            size = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", size or str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            there.close()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
