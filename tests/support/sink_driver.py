"""What the sink does on a driver, without Spark: stage a batch, make it visible, note that it is done; again and again, until killed.

    drivers = SinkDrivers(bootstrap, topic, tmp_path / "done")
    with drivers.running() as driver:
        driver.kill()

Batch n holds the values n·100 to n·100 + 99. `checkpoint` is a file with the last batch that is done, noted after the fact, as Spark does it: so a
batch that was made visible just before the end is written again by the next run. A driver is forked from a process that has loaded everything.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from support.wait import wait_until

TESTS = Path(__file__).resolve().parent.parent
BATCH = 100
_DIE_WITH_PARENT = 1


class SinkDriver:
    """A driver that runs, or has ended."""

    def __init__(self, pid: int, outcome: Path) -> None:
        self.pid, self._outcome = pid, outcome

    @property
    def ended(self) -> str | None:
        """How, if it did: "done", or what went wrong."""
        return self._outcome.read_text() if self._outcome.exists() else None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class SinkDrivers:
    """Drivers of one sink, one after another, on one checkpoint."""

    def __init__(self, bootstrap: str, topic: str, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        command = [sys.executable, "-m", "support.sink_driver", bootstrap, topic, str(checkpoint)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            text=True,
        )

    @property
    def done(self) -> int:
        """How many batches."""
        return int(self.checkpoint.read_text()) + 1 if self.checkpoint.exists() else 0

    @contextmanager
    def running(self, batches: int = 1_000_000) -> Iterator[SinkDriver]:
        """A driver that goes on to this many batches, and is gone afterwards."""
        outcome = self.checkpoint.with_name(f"outcome-{uuid.uuid4().hex}")
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{batches} {outcome}\n")
        self._process.stdin.flush()
        driver = SinkDriver(int(self._process.stdout.readline()), outcome)
        try:
            yield driver
        finally:
            driver.kill()

    def finish(self, batches: int) -> None:
        """Have a driver go on to this many batches."""
        with self.running(batches) as driver:
            said = wait_until(lambda: driver.ended, 120, f"{batches} batches")
            assert said == "done", said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def run(bootstrap: str, topic: str, checkpoint: Path, batches: int) -> None:
    """Be a driver."""
    import pyarrow as pa

    from levada.spark.options.sink import SinkOptions
    from levada.spark.sink.claims import Asking
    from levada.spark.sink.commit import Commit
    from levada.spark.sink.encode import Encoder
    from levada.spark.sink.rows import Columns
    from levada.spark.sink.stage import hold
    from levada.spark.sink.staged import StageKey
    from levada.spark.sink.targets import look_up

    name = uuid.uuid4().hex
    cluster = SinkOptions.of({"bootstrap": bootstrap, "topic": topic}, streaming=True).cluster
    done = int(checkpoint.read_text()) if checkpoint.exists() else -1
    with cluster.client() as client:
        target = look_up(client, topic)
        for number in range(done + 1, batches):
            values = pa.array([b"%d" % value for value in range(number * BATCH, (number + 1) * BATCH)])
            encoder = Encoder(Columns(value=0, key=0), lambda _: target, topic=topic)
            encoded = [*encoder.add(pa.record_batch([values], names=["value"])), *encoder.rest()]
            source = hold(client, StageKey(topic, 0, number, 0, uuid.uuid4().hex, 0), encoded)
            Commit(cluster, Asking(topic, 0, number, "query", name), [source], counted=True).run()
            written = checkpoint.with_suffix(".new")
            written.write_text(str(number))
            written.replace(checkpoint)


def main() -> None:
    bootstrap, topic, checkpoint = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    import levada.spark.sink.encode
    import levada.spark.sink.writers  # noqa: F401  # loaded before there is a driver

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        batches, outcome = line.split()
        if pid := os.fork():
            print(pid, flush=True)
            continue
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        try:
            run(bootstrap, topic, checkpoint, int(batches))
            said = "done"
        except BaseException as error:
            said = repr(error)
        Path(outcome).write_text(said)
        os._exit(0)


if __name__ == "__main__":
    main()
