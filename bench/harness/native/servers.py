"""The three servers as the benchmark runs them: each in a directory of its own, on a free port of 127.0.0.1.

| durability | Levada | Redis | NATS |
|---|---|---|---|
| `os` | `levada.durability=os` | `appendonly yes`, `appendfsync everysec` | the default: synced every two minutes |
| `fsync` | `levada.durability=fsync` | `appendonly yes`, `appendfsync always` | `sync_interval: always`, from NATS 2.10 on |

Redis keeps no snapshots beside its log (`save ""`), so that no fork disturbs the measurement.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

from harness.brokers import Durability, directory
from support.jars import cache_dir
from support.kafka import wait_for_port
from support.levada import LevadaBroker
from support.ports import free_port

Kind = Literal["nats", "redis", "levada"]
KINDS: tuple[Kind, ...] = ("redis", "nats", "levada")

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
#: The first NATS that can sync before it acknowledges.
NATS_WITH_SYNC = (2, 10)


class Server(Protocol):
    """A started server. `address` is what its client connects to."""

    @property
    def address(self) -> str: ...
    @property
    def pid(self) -> int: ...


class Unavailable(Exception):
    """The program is not installed, or cannot do what is asked."""


def programs() -> dict[Kind, str | None]:
    """Where each server is; NATS_SERVER and REDIS_SERVER name others than those on the path."""
    newer = cache_dir() / "nats/usr/sbin/nats-server"
    nats = os.environ.get("NATS_SERVER") or (str(newer) if newer.exists() else shutil.which("nats-server"))
    redis = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
    return {"nats": nats, "redis": redis, "levada": "levada"}


def program(kind: Kind) -> str:
    found = programs()[kind]
    if found is None:
        raise Unavailable(f"{kind}-server is not installed: scripts/tools.py --bench brings it")
    return found


def version(kind: Kind) -> tuple[int, ...]:
    said = subprocess.run([program(kind), "--version"], capture_output=True, text=True, timeout=20).stdout
    found = re.search(r"v=?(\d+(?:\.\d+)+)", said)
    if found is None:
        raise Unavailable(f"{kind}-server does not say its version: {said!r}")
    return tuple(int(part) for part in found[1].split("."))


def versions() -> dict[str, str]:
    """For the report, those that are here."""
    return {kind: ".".join(map(str, version(kind))) for kind in ("redis", "nats") if programs()[kind]}  # type: ignore[arg-type]  # both are kinds


class Process:
    """A server that is ready when its port answers, and gone when the `with` ends, whatever happens."""

    def __init__(self, command: Sequence[str], home: Path, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self._command, self._home, self._port = command, home, port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def __enter__(self) -> Process:
        with (self._home / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                self._command, cwd=self._home, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            wait_for_port(self._port, self._process, START_TIMEOUT_S)
        except BaseException as error:
            self.__exit__()
            error.add_note((self._home / "output.txt").read_text()[-2000:])
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Levada:
    """`levada up`, seen through its gRPC port."""

    def __init__(self, home: Path, durability: Durability) -> None:
        self._broker = LevadaBroker(home, flags=["--durability", durability, "--log-level", "warning"])

    @property
    def address(self) -> str:
        return str(self._broker.ready["grpc"])

    @property
    def pid(self) -> int:
        return self._broker.pid

    def __enter__(self) -> Levada:
        try:
            self._broker.start()
        except BaseException:
            self._broker.kill()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._broker.kill()


def redis(home: Path, durability: Durability) -> Process:
    port = free_port()
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(home),
        "save": "",
        "appendonly": "yes",
        "appendfsync": {"os": "everysec", "fsync": "always"}[durability],
    }
    return Process(
        [program("redis"), *(word for name in settings for word in (f"--{name}", settings[name]))], home, port
    )


def nats(home: Path, durability: Durability) -> Process:
    port = free_port()
    always = durability == "fsync"
    if always and version("nats") < NATS_WITH_SYNC:
        raise Unavailable("this nats-server cannot sync before it acknowledges; 2.10 and later can")
    sync = "sync_interval: always" if always else ""
    config = home / "nats.conf"
    config.write_text(f'host: "127.0.0.1"\nport: {port}\njetstream {{\n store_dir: "{home}"\n {sync}\n}}\n')
    return Process([program("nats"), "--config", str(config)], home, port)


@contextlib.contextmanager
def running(kind: Kind, durability: Durability, where: Path | None = None) -> Iterator[Server]:
    """A started server on an empty directory."""
    with directory(where) as home:
        made = {"levada": Levada, "redis": redis, "nats": nats}[kind](home, durability)
        with made as server:  # type: ignore[attr-defined]  # each of the three is its own context manager
            yield server
