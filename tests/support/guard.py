"""A daemon whose offspring goes when it is told to, and also when whoever started it is killed.

The command runs below this file, run as a program, which leads a session of its own and waits. When its stdin ends, because `stop`
closed it or because the starter is gone, it kills every process of that session. Process groups would not do: Spark's Python
daemons make groups of their own, and stay when the JVM that started them is killed together with its parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

STOP_TIMEOUT_S = 30.0


class Daemon:
    """A started command. `pid` is the command's own, `log` all it says."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                [sys.executable, __file__, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        said = self._guard.stdout.readline()
        if not said:
            self.stop()
            raise RuntimeError(f"{command[0]} could not be started: {self.text()}")
        self.pid = int(said)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.pid in self.session()

    def session(self) -> list[int]:
        """Everything that came of the command and still runs, the guard left out."""
        return members(self._guard.pid)

    def kill(self) -> None:
        """kill −9 of the command alone; what it started may live on."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def stop(self) -> None:
        """End the command and everything that came of it."""
        for pipe in (self._guard.stdin, self._guard.stdout):
            assert pipe is not None
            pipe.close()
        self._guard.wait(STOP_TIMEOUT_S)


def members(leader: int) -> list[int]:
    """The processes of this leader's session, without the leader and without the dead."""
    return [pid for pid in psutil.pids() if pid != leader and _is_member(pid, leader)]


def _is_member(pid: int, leader: int) -> bool:
    try:
        return os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, PermissionError, psutil.Error):
        return False


def main() -> None:
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    print(child.pid, flush=True)
    threading.Thread(target=child.wait, daemon=True).start()
    sys.stdin.read()
    while left := members(os.getpid()):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


if __name__ == "__main__":
    main()
