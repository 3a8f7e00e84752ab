"""A foreign Kafka client in a process of its own, told what to do line by line.

Each client library has one driver program (tests/acceptance/drivers, tests/acceptance/java) that reads one JSON object a
line from stdin and answers one on stdout: `{"do": "produce", "at": "127.0.0.1:9092", …}` → `{"ok": …}` or
`{"error": "TOPIC_ALREADY_EXISTS", "message": …}`, errors under Kafka's names. Bytes travel as latin-1 text, so every
byte is one character. Scenarios are thus written once and run with every client; a member is killed by killing its
process; and a JVM starts once for all of them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

CALL_TIMEOUT_S = 45.0
DRIVERS = Path(__file__).resolve().parent.parent / "acceptance" / "drivers"


class Sent(NamedTuple):
    """A record to produce; a partition of None leaves the choice to the client."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


class Seen(NamedTuple):
    """A record as a consumer got it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Refused(Exception):
    """The client reported an error; `code` is Kafka's name of it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Driver:
    """One driver process. Calls are answered one at a time."""

    def __init__(self, name: str, command: Sequence[str], errors: Path) -> None:
        self.name, self.command, self.errors = name, list(command), errors
        self.process: subprocess.Popen[bytes] | None = None

    def another(self) -> Driver:
        """A second process of the same client: one that can be killed."""
        return Driver(self.name, self.command, self.errors)

    def call(self, do: str, timeout_s: float = CALL_TIMEOUT_S, **fields: Any) -> Any:
        process = self.process or self.start()
        assert process.stdin is not None
        process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(self.line(process, do, timeout_s))
        if "error" in answer:
            raise Refused(answer["error"], answer.get("message", ""))
        return answer["ok"]

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(DRIVERS), "PYTHONUNBUFFERED": "1"}
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        return self.process

    def line(self, process: subprocess.Popen[bytes], do: str, timeout_s: float) -> bytes:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], timeout_s)
        line = process.stdout.readline() if ready else b""
        if not line:
            self.kill()
            raise TimeoutError(f"{self.name} gave no answer to {do} within {timeout_s} s; see {self.errors}")
        return line

    def pause(self) -> None:
        """Stop the process where it is, as a long garbage collection would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill −9: no goodbye to the group."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                assert pipe is not None
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
            self.process = None


def python_command(program: str) -> list[str]:
    return [sys.executable, str(DRIVERS / program)]


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def data(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def seen(fields: Mapping[str, Any]) -> Seen:
    headers = tuple((name, data(value)) for name, value in fields["headers"])
    partition, offset, timestamp = fields["partition"], fields["offset"], fields["timestamp"]
    return Seen(partition, offset, timestamp, data(fields["key"]), data(fields["value"]), headers)


@dataclass
class Member:
    """A group member that polls in the background of its driver until told to leave."""

    driver: Driver
    name: str

    def look(self) -> tuple[set[int], list[Seen]]:
        """The partitions it owns now, and all the records it got so far."""
        answer = self.driver.call("look", name=self.name)
        return set(answer["assigned"]), [seen(fields) for fields in answer["records"]]

    def leave(self) -> None:
        self.driver.call("leave", name=self.name)


@dataclass
class Transaction:
    """A transactional producer of its driver, under the name it was opened with."""

    driver: Driver
    name: str

    def begin(self) -> None:
        self.driver.call("begin", name=self.name)

    def send(self, topic: str, records: Sequence[Sent]) -> None:
        """Send and wait until the broker has them."""
        self.driver.call("send", name=self.name, topic=topic, records=[_sent(record) for record in records])

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self.driver.call("send_offsets", name=self.name, group=group, topic=topic, offsets=_keys(offsets))

    def commit(self) -> None:
        self.driver.call("commit_transaction", name=self.name)

    def abort(self) -> None:
        self.driver.call("abort_transaction", name=self.name)

    def close(self) -> None:
        self.driver.call("close", name=self.name)


@dataclass
class Client:
    """A driver bound to one broker, with the calls spelled out."""

    driver: Driver
    bootstrap: str

    @property
    def name(self) -> str:
        return self.driver.name

    def call(self, do: str, **fields: Any) -> Any:
        return self.driver.call(do, at=self.bootstrap, **fields)

    def another(self) -> Client:
        return Client(self.driver.another(), self.bootstrap)

    def produce(
        self, topic: str, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False, batch: int = 0
    ) -> list[tuple[int, int]]:
        """Send with acks=all and wait; `batch` bounds how many records go into one request. Gives (partition, offset)s."""
        options = {"codec": codec, "idempotent": idempotent, "batch": batch}
        answer = self.call("produce", topic=topic, records=[_sent(record) for record in records], **options)
        return [(partition, offset) for partition, offset in answer]

    def consume(self, topic: str, start: Mapping[int, int] | None = None, *, committed: bool = False) -> list[Seen]:
        """All records of these partitions from these offsets (default: everything) up to where the client sees the end."""
        first = None if start is None else _keys(start)
        return [seen(record) for record in self.call("consume", topic=topic, start=first, committed=committed)]

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        return _ints(self.call("offsets_at", topic=topic, timestamp=timestamp_ms))

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return {int(index): (low, high) for index, (low, high) in self.call("bounds", topic=topic).items()}

    def join(self, name: str, group: str, topic: str, **options: Any) -> Member:
        """Join a group in the background. Options: session_ms, instance, assignor, commit (default true)."""
        self.call("join", name=name, group=group, topic=topic, **{"session_ms": 3000, **options})
        return Member(self.driver, name)

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self.call("commit", group=group, topic=topic, offsets=_keys(offsets))

    def committed(self, group: str, topic: str) -> dict[int, int | None]:
        return _ints(self.call("committed", group=group, topic=topic))

    def create(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self.call("create", topic=topic, partitions=partitions, config=dict(config or {}))

    def expand(self, topic: str, partitions: int) -> None:
        self.call("expand", topic=topic, partitions=partitions)

    def delete(self, topic: str) -> None:
        self.call("delete", topic=topic)

    def topics(self) -> dict[str, int]:
        """Every topic with its number of partitions."""
        answer: dict[str, int] = self.call("topics")
        return answer

    def configs(self, topic: str) -> dict[str, str]:
        answer: dict[str, str] = self.call("configs", topic=topic)
        return answer

    def alter(self, topic: str, config: Mapping[str, str]) -> None:
        self.call("alter", topic=topic, config=dict(config))

    def trim(self, topic: str, before: Mapping[int, int]) -> None:
        self.call("trim", topic=topic, before=_keys(before))

    def transaction(self, name: str, transactional_id: str, timeout_ms: int = 30_000) -> Transaction:
        """Open a transactional producer: InitProducerId is done when this returns."""
        self.call("open", name=name, id=transactional_id, timeout_ms=timeout_ms)
        return Transaction(self.driver, name)


def _sent(record: Sent) -> dict[str, Any]:
    return {
        "value": text(record.value),
        "key": text(record.key),
        "partition": record.partition,
        "headers": [[name, text(value)] for name, value in record.headers],
        "timestamp": record.timestamp_ms,
    }


def _keys(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(key): value for key, value in numbers.items()}


def _ints(answer: Mapping[str, int | None]) -> dict[int, int | None]:
    return {int(key): value for key, value in answer.items()}
