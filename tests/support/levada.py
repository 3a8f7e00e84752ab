"""Levada as a user runs it: the installed `levada up` in a process of its own.

Has the shape of `support.kafka.KafkaBroker`, so a test need not know which of the two it talks to.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_TIMEOUT_S = 30.0
#: The command beside this interpreter, as pip installed it.
COMMAND = Path(sys.executable).with_name("levada")


class LevadaBroker:
    """Start, stop, kill and start again on the same data and port. `settings` go to `--set`."""

    name = "levada"

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, str] | None = None,
        *,
        advertised: str = "",
        flags: Sequence[str] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        self.home, self.settings, self.flags, self.prefix = home, dict(settings or {}), list(flags), list(prefix)
        self.advertised = advertised
        self.data = home / "data"
        self.port = self.grpc_port = self.http_port = 0
        self.output = home / "output.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, object] = {}
        home.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return self.advertised or f"127.0.0.1:{self.port}"

    @property
    def grpc(self) -> str:
        """host:port for native clients."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        pid = self.ready["pid"]
        assert isinstance(pid, int)
        return pid

    def partition_dir(self, topic: str, partition: int) -> Path:
        return self.data / "topics" / f"{topic}-{partition}"

    def command(self) -> list[str]:
        command = [*self.prefix, str(COMMAND), "up", "--json", "--data", str(self.data), "--kafka-port", str(self.port)]
        command += ["--grpc-port", str(self.grpc_port), "--http-port", str(self.http_port)]
        if self.advertised:
            command += ["--kafka-advertised", self.advertised]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return [*command, *self.flags]

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it to be ready."""
        with self.output.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, cwd=self.home
            )
        return self.process

    def start(self) -> LevadaBroker:
        self.launch()
        self.read_ready()
        return self

    def read_ready(self) -> None:
        """Wait for the line that says where it listens."""
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.kill()
            raise RuntimeError(f"levada up ended before it was ready:\n{self.log()}")
        self.ready = json.loads(line)
        self.port, self.grpc_port, self.http_port = (self._port(front) for front in ("kafka", "grpc", "http"))

    def _port(self, front: str) -> int:
        return int(str(self.ready[front]).rpartition(":")[2])

    def log(self) -> str:
        """All it said on stderr, over all its starts."""
        return self.output.read_text() if self.output.exists() else ""

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does."""
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        """kill −9."""
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise TimeoutError(
                f"levada up did not end within {STOP_TIMEOUT_S} s of {how.name}:\n{self.log()}"
            ) from None
        finally:
            assert process.stdout is not None
            process.stdout.close()

    def __enter__(self) -> LevadaBroker:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.kill()
