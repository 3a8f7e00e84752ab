"""An S3 server, and one in front of it that takes no notice of conditions; each in a process of its own.

with S3(tmp_path) as s3:
    s3.make_bucket("lake")
    …  # with s3.environment

In the process that talks to them they would not do: deltalake keeps Python's lock while it waits for some of its answers.
"""

from __future__ import annotations

import http.client
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Self

import httpx

from support.guard import Daemon
from support.ports import free_port
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 120.0
#: Less than a client waits for an answer.
MEET_TIMEOUT_S = 20.0
#: The first commit of a table is made by one alone.
_COMMIT = re.compile(r"/_delta_log/(?!0{20})\d{20}\.json$")


class _Server:
    """This file as a program, and where it listens."""

    def __init__(self, home: Path, kind: str, *words: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home, self.port = home, free_port()
        path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
        settings = {"PYTHONPATH": path, "MOTO_ALLOW_NONEXISTENT_REGION": "true", "MOTO_PORT": str(self.port)}
        command = [sys.executable, "-m", "support.s3", kind, str(self.port), *words]
        self._daemon = Daemon(command, home / f"{kind}.txt", {**os.environ, **settings})

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> Mapping[str, str]:
        return environment(self.endpoint)

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


class S3(_Server):
    """moto's server: it keeps objects in memory, and honours `If-None-Match`."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, "s3")

    def make_bucket(self, name: str) -> None:
        httpx.put(f"{self.endpoint}/{name}").raise_for_status()

    def keys(self, bucket: str) -> list[str]:
        """Of all objects."""
        answer = httpx.get(f"{self.endpoint}/{bucket}", params={"list-type": "2", "max-keys": "1000"})
        return re.findall(r"<Key>([^<]+)</Key>", answer.raise_for_status().text)


@contextmanager
def forgetful(s3: S3) -> Iterator[str]:
    """The address of a server that is like the other, but puts an object whether there is one or not.

    Two that make the same commit meet in it, so that neither has seen the other's.
    """
    with _Server(s3.home, "forgetful", str(s3.port)) as server:
        yield server.endpoint


def environment(endpoint: str) -> Mapping[str, str]:
    """What deltalake reads."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


# What runs in the other processes.


def serve(port: int) -> None:
    """As `moto.server` does it, but one request at a time: moto looks whether there is an object and then puts one, and of two
    threads both may have looked before either has put."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    app, lock = DomainDispatcherApplication(create_backend_app), Lock()

    def exclusive(environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            answer: Iterable[bytes] = app(environ, start_response)
            return answer

    run_simple("127.0.0.1", port, exclusive, threaded=True)


class _Meetings:
    """Has the first who makes a commit wait for the second."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._came: dict[str, Event] = {}

    def meet(self, path: str) -> None:
        with self._lock:
            is_first = path not in self._came
            came = self._came.setdefault(path, Event())
        if is_first:
            came.wait(MEET_TIMEOUT_S)
        else:
            came.set()


def forget(port: int, there_port: int) -> None:
    """Pass everything on but conditions."""
    meetings = _Meetings()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: text for name, text in self.headers.items() if name.lower() != "if-none-match"}
            key = self.path.partition("?")[0]
            if self.command == "PUT" and _COMMIT.search(key):
                meetings.meet(key)
            there = http.client.HTTPConnection("127.0.0.1", there_port, timeout=60)
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

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "s3":
        serve(int(sys.argv[2]))
    else:
        forget(int(sys.argv[2]), int(sys.argv[3]))
