"""A Spark session in a process of its own, told what to do with functions.

For what the one session of a test process cannot have: jars of its own, another master, a death. The jars and the master of a JVM are
fixed when it starts, and a process has one JVM.

    with SparkProcess(tmp_path, "local[2]", {"spark.jars": …}) as driver:
        rows = driver.run(lambda spark, topic: spark.read.format("kafka").….collect(), topic)

Functions travel by value, with what they use of their test module; what they return has to be picklable. The process ends when its stdin
does, and its JVM with it: when it is killed, and also when the process that started it is.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any, Self

TESTS = Path(__file__).resolve().parent.parent
#: Matters only where something hangs: a busy machine takes minutes for what takes seconds.
RUN_TIMEOUT_S = 900.0
_LENGTH = struct.Struct(">I")


class SparkFailed(Exception):
    """What the function raised in the other process, with its trace; or how that process ended."""


class SparkProcess:
    """`log` is what Spark says. Functions run one after another."""

    def __init__(self, home: Path, master: str = "local[2]", conf: Mapping[str, str] | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.log = home / "spark.txt"
        order = {"master": master, "conf": dict(conf or {})}
        (home / "tmp").mkdir()
        places = {"PYTHONPATH": str(TESTS), "TMPDIR": str(home / "tmp"), "SPARK_LOCAL_DIRS": str(home / "tmp")}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "support.spark_process"],
                cwd=home,
                env={**os.environ, **places},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
            )
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="spark-process")
        self._begun = self._calls.submit(self._call, pickle.dumps(order))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have `function(session, *arguments)` run, behind those already submitted."""
        return self._calls.submit(self._call, _by_value(function, arguments), self._begun)

    def run(self, function: Callable[..., Any], *arguments: Any, timeout_s: float = RUN_TIMEOUT_S) -> Any:
        """What `function(session, *arguments)` returns."""
        return self.submit(function, *arguments).result(timeout_s)

    def _call(self, order: bytes, after: Future[Any] | None = None) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        if after is not None:
            after.result()
        try:
            _send(self.process.stdin, order)
            answer = _receive(self.process.stdout)
        except OSError:
            answer = None
        if answer is None:
            raise SparkFailed(f"the driver ended with status {self.process.wait()}:\n{self.text()[-3000:]}")
        done, outcome = pickle.loads(answer)
        if not done:
            raise SparkFailed(outcome)
        return outcome

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """kill −9 of the driver. Its JVM sees that and goes."""
        self.process.kill()
        self.process.wait()
        self._calls.shutdown(wait=True, cancel_futures=True)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()


def _by_value(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    from pyspark import cloudpickle

    module = sys.modules.get(function.__module__)
    if module is not None and not module.__name__.startswith("support."):
        cloudpickle.register_pickle_by_value(module)
    packed: bytes = cloudpickle.dumps((function, arguments))
    return packed


def _send(stream: IO[bytes], message: bytes) -> None:
    stream.write(_LENGTH.pack(len(message)) + message)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    """The next message; None at the end."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    return stream.read(_LENGTH.unpack(length)[0])


def main() -> None:
    """The other side. What Spark and the functions print goes to the log, not among the answers."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    orders: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    order = pickle.loads(orders.get())
    spark: Any = None

    def begin() -> None:
        nonlocal spark
        from levada.spark.session import session

        spark = session(order["master"], "levada-tests", **order["conf"])

    _answer(answers, begin)
    while True:
        _answer(answers, partial(_apply, spark, orders.get()))


def _listen(orders: queue.Queue[bytes]) -> None:
    while (message := _receive(sys.stdin.buffer)) is not None:
        orders.put(message)
    os._exit(0)


def _apply(spark: Any, order: bytes) -> Any:
    function, arguments = pickle.loads(order)
    return function(spark, *arguments)


def _answer(answers: IO[bytes], work: Callable[[], Any]) -> None:
    try:
        said = pickle.dumps((True, work()))
    except Exception:
        said = pickle.dumps((False, traceback.format_exc()))
    _send(answers, said)


if __name__ == "__main__":
    main()
