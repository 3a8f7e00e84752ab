"""`levada runner` in a process of its own, and what a person at a terminal does beside it.

with Runners(levada, tmp_path) as runners:
    runners.write("copy.py", COPY)
    runners.start()
    runners.await_state("copy", "running")
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from levada.records.batch import batches
from levada.records.build import build
from levada.records.read import read_all
from levada.spark.runner.board import Board
from levada.wire.answers import LATEST, READ_COMMITTED, TopicPartition
from levada.wire.blocking import BlockingClient
from support.brokers import Broker
from support.wait import Found, wait_until

COMMAND = [sys.executable, "-m", "levada"]
#: A JVM has to start, on a busy machine.
START_S = 300.0
END_S = 240.0
#: Looking costs something, and takes it from what is waited for.
LOOK_S = 0.15
#: A JVM that lives for a minute is not worth the second compiler's work, nor a collector's threads.
SHORT_LIVED = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class Runners:
    """A directory of pipelines, a home for their checkpoints, and one runner after another."""

    def __init__(self, broker: Broker, home: Path, *, master: str = "local[2]") -> None:
        self.broker, self.master = broker, master
        self.pipelines, self.home = home / "pipelines", home / "home"
        self.output = home / "runner.txt"
        self.pipelines.mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None
        #: Everything that a runner started: it must be gone when the runner is.
        self.family: list[psutil.Process] = []
        self.client = BlockingClient(broker.bootstrap)
        self._board = Board(self.client)
        self._read: dict[TopicPartition, _Read] = {}

    def write(self, name: str, text: str) -> None:
        """Put a file in the directory, as an editor does: whole."""
        draft = self.pipelines / f".{name}.new"
        draft.write_text(textwrap.dedent(text))
        draft.replace(self.pipelines / name)

    def command(self) -> list[str]:
        where = ["--bootstrap", self.broker.bootstrap, "--home", str(self.home), "--pipelines", str(self.pipelines)]
        return [*COMMAND, "runner", "--json", "--master", self.master, *where]

    def start(self) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd=self.pipelines.parent,
                env={**os.environ, **SHORT_LIVED},
            )
        count = len(self.events("ready"))
        self.wait(lambda: len(self.events("ready")) > count or self._ended(), START_S)
        assert not self._ended(), self.text()
        self.family = [*self._own().children(recursive=True), self._own()]

    def wait(
        self, look: Callable[[], Found], timeout_s: float = END_S, message: Callable[[], str] | None = None
    ) -> Found:
        """For something that a runner does; else with what it said."""
        return wait_until(look, timeout_s, message or (lambda: self.text()[-3000:]), every_s=LOOK_S)

    def _own(self) -> psutil.Process:
        assert self.process is not None
        return psutil.Process(self.process.pid)

    def _ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def events(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """What it said, of this kind and with these fields."""
        found = []
        for line in self.text().splitlines() if self.output.exists() else ():
            if line.startswith("{") and line.endswith("}"):
                said = json.loads(line)
                if said.get("event") == kind and all(said.get(name) == value for name, value in fields.items()):
                    found.append(said)
        return found

    def end(self, how: signal.Signals) -> int:
        """Its exit code, when it and all it started are gone."""
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            own = psutil.Process(process.pid)
            self.family = [*own.children(recursive=True), own]
        process.send_signal(how)
        try:
            code = process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the runner did not end within {END_S} s of {how.name}:\n{self.text()}") from None
        wait_until(lambda: not self.left_behind(), END_S, lambda: f"left behind: {self.left_behind()}")
        return code

    def end_java(self) -> int:
        """kill −9 of its JVM; its own exit code."""
        assert self.process is not None
        process, self.process = self.process, None
        own = psutil.Process(process.pid)
        self.family = [*own.children(recursive=True), own]
        [java] = [one for one in own.children() if "java" in one.name()]
        java.kill()
        code = process.wait(END_S)
        wait_until(lambda: not self.left_behind(), END_S, lambda: f"left behind: {self.left_behind()}")
        return code

    def left_behind(self) -> list[psutil.Process]:
        return [one for one in self.family if _lives(one)]

    def levada(self, *words: str, code: int = 0) -> str:
        """What a command prints."""
        environment = {**os.environ, "LEVADA_BOOTSTRAP": self.broker.bootstrap}
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr + self.text()
        return done.stdout + done.stderr

    def listed(self) -> dict[str, dict[str, Any]]:
        """`levada pipeline list`, by name."""
        found = json.loads(self.levada("pipeline", "list", "--json"))
        return {one["pipeline"]: one for one in found["pipelines"]}

    def state(self, name: str) -> dict[str, Any]:
        one = self._board.read().actual.get(name)
        return {"state": None} if one is None else {"state": str(one.state), "cause": one.cause, "actual": one}

    def id(self) -> str:
        """Of the runner that gave the last sign of life."""
        seen = self._board.read().runner
        return "" if seen is None else seen.id

    def await_state(self, name: str, *states: str | None, timeout_s: float = END_S) -> Any:
        """How it is, once it is so; None is for: not known."""
        self.wait(
            lambda: self.state(name)["state"] in states,
            timeout_s,
            lambda: (
                f"{name} is {self.state(name)['state']}, not {' or '.join(map(str, states))}: {self.text()[-3000:]}"
            ),
        )
        return self.state(name).get("actual")

    def await_failure(self, name: str, words: str, timeout_s: float = END_S) -> Any:
        """How it is, once it has failed for this reason. On a machine that is too busy, Spark has reasons of its own now and then."""

        def failed() -> Any:
            found = self.state(name)
            return found["actual"] if found["state"] == "failed" and words in found["cause"] else None

        return self.wait(failed, timeout_s, lambda: f"{name} is {self.state(name)}: {self.text()[-3000:]}")

    def create(self, *topics: str, partitions: int = 2) -> None:
        for topic in topics:
            self.client.create_topic(topic, partitions)

    def feed(self, topic: str, ids: Iterable[int], partition: int = 0) -> None:
        """JSON records {"id": …}."""
        self.client.produce((topic, partition), build([(None, json.dumps({"id": one}).encode()) for one in ids]))

    def ids(self, topic: str, partitions: int = 2) -> list[int]:
        """Of all committed records, sorted. What was read before is not read again."""
        return sorted(one for partition in range(partitions) for one in self._ids(TopicPartition(topic, partition)))

    def _ids(self, at: TopicPartition) -> list[int]:
        read = self._read.setdefault(at, _Read([]))
        end = self.client.list_offsets({at: LATEST}, isolation=READ_COMMITTED)[at].offset
        while read.position < end:
            got = self.client.fetch({at: read.position}, isolation=READ_COMMITTED)[at]
            for record in read_all(
                got.records, from_offset=read.position, aborted=got.aborted or (), committed_only=True
            ):
                read.ids.append(json.loads(record.value or b"{}")["id"])
            reached = max((one.last_offset + 1 for one in batches(got.records)), default=read.position)
            if reached == read.position:
                break  # the next look may see more
            read.position = reached
        return read.ids

    def await_ids(self, topic: str, ids: Iterable[int], timeout_s: float = END_S) -> None:
        """Exactly these have arrived, each once."""
        wanted = sorted(ids)
        self.wait(
            lambda: len(self.ids(topic)) >= len(wanted), timeout_s, lambda: f"{self.ids(topic)}\n{self.text()[-3000:]}"
        )
        assert self.ids(topic) == wanted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process is not None:
            self.end(signal.SIGKILL)
        self.client.close()


@dataclass
class _Read:
    """A partition so far."""

    ids: list[int]
    position: int = 0


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # in between
        return False
