"""An S3 server in a process of its own, and one that takes no notice of conditions.

with S3(tmp_path) as s3:
    s3.make_bucket("lake")
    …  # with s3.environment
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Self

import httpx

from support.guard import Daemon
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT_S = 120.0
#: Less than a client waits for an answer.
MEET_TIMEOUT_S = 20.0
_COMMIT = re.compile(r"/_delta_log/(?!0{20})\d{20}\.json$")
#: As `moto.server` does it, but one request at a time: moto looks whether there is an object and then puts one, and of two threads both
#: may have looked before either has put.
_SERVER = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

app, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

def exclusive(environ, start_response):
    with lock:
        return app(environ, start_response)

run_simple("127.0.0.1", int(sys.argv[1]), exclusive, threaded=True)
"""


class S3:
    """moto's server: it keeps objects in memory, and honours `If-None-Match`."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        settings = {"MOTO_ALLOW_NONEXISTENT_REGION": "true", "MOTO_PORT": str(self.port)}
        self._daemon = Daemon(
            [sys.executable, "-c", _SERVER, str(self.port)], home / "s3.txt", {**os.environ, **settings}
        )

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


class _Meetings:
    """Has whoever puts a commit wait until another puts the same one: then neither has seen the other's. The first of a table has no other."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._came: dict[str, Event] = {}

    def meet(self, path: str) -> None:
        if not _COMMIT.search(path.partition("?")[0]):
            return
        with self._lock:
            is_first = path not in self._came
            came = self._came.setdefault(path, Event())
        if is_first:
            came.wait(MEET_TIMEOUT_S)
        else:
            came.set()


@contextmanager
def forgetful(s3: S3) -> Iterator[str]:
    """The address of a server that is like the other, but puts an object whether there is one or not; two that commit meet here."""
    meetings = _Meetings()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: text for name, text in self.headers.items() if name.lower() != "if-none-match"}
            if self.command == "PUT":
                meetings.meet(self.path)
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
