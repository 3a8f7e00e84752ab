"""kcat: a program, so each call runs it once.

- Produces, consumes, seeks by offset and time, joins groups, produces idempotently and in a transaction that it commits
  at the end of its input and aborts when it is interrupted.
- Leaves out, because it cannot: administering topics, committing for a group by hand, sending offsets to a transaction.
- One kcat writes records of one partition, key-ness and headers; several kinds of record take several runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from itertools import groupby
from typing import Any

from loop import Failed, data, serve, text

#: Between fields and records, because values hold newlines and every other likely byte.
FIELD, RECORD = b"\x01\x1f\x01", b"\x04\x1e\x04"
#: One line of JSON for the place, then key and value framed by their lengths: binary-safe. Headers come with the place.
FORMAT = "%p %o %T %K %S %h\x02\x03\x01%k%s\x02\x03\x01\n"
RUN_S = 30.0


def kcat(at: str, *arguments: str, stdin: bytes = b"") -> bytes:
    command = ["kcat", "-b", at, "-X", "broker.address.family=v4", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=RUN_S)
    if done.returncode:
        raise Failed("KCAT", done.stderr.decode("utf-8", "replace"))
    return done.stdout


def metadata(at: str) -> dict[str, int]:
    found = json.loads(kcat(at, "-L", "-J"))
    return {topic["topic"]: len(topic["partitions"]) for topic in found["topics"]}


def records(output: bytes) -> list[dict[str, Any]]:
    """Cut kcat's output at the lengths it states, so that no byte of a key or value can be mistaken for a border."""
    found, at = [], 0
    while (border := output.find(b"\x02\x03\x01", at)) >= 0:
        partition, offset, timestamp, key_size, value_size, headers = output[at:border].split(b" ", 5)
        start = border + 3
        key_end = start + max(0, int(key_size))
        value_end = key_end + max(0, int(value_size))
        if len(output) < value_end + 4:
            break  # the last one is still being written
        found.append(
            {
                "partition": int(partition),
                "offset": int(offset),
                "timestamp": int(timestamp),
                "key": None if int(key_size) < 0 else text(output[start:key_end]),
                "value": None if int(value_size) < 0 else text(output[key_end:value_end]),
                "headers": [split_header(header) for header in headers.split(b",") if header],
            }
        )
        at = value_end + 4
    return found


def split_header(header: bytes) -> list[Any]:
    name, _, value = header.partition(b"=")
    return [text(name), None if value == b"NULL" else text(value)]


class Member:
    """A kcat in group mode, whose output is gathered until it is stopped."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.output, self.assigned = bytearray(), set[int]()
        for target in (self.gather, self.watch):
            threading.Thread(target=target, daemon=True).start()

    def gather(self) -> None:
        assert self.process.stdout is not None
        while piece := os.read(self.process.stdout.fileno(), 65536):
            self.output += piece

    def watch(self) -> None:
        """Follow its assignment, which kcat tells on stderr in one of two ways, by the assignor:

        % Group g rebalanced (memberid …): assigned: t [0], t [1]
        % Group g rebalanced: incremental assignment of 2 partition(s) (memberid …): t [0], t [1]
        """
        assert self.process.stderr is not None
        for line in self.process.stderr:
            said = line.decode()
            if " rebalanced" not in said:
                continue
            indexes = {int(place.split("[")[1].rstrip("]\n")) for place in said.split(",") if " [" in place}
            taken = ": assigned: " in said or "incremental assignment" in said
            self.assigned = self.assigned | indexes if taken else self.assigned - indexes


class Calls:
    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.transactions: dict[str, dict[str, Any]] = {}

    def produce(
        self, at: str, topic: str, records: list[Any], codec: str, idempotent: bool, batch: int
    ) -> list[list[int]]:
        options = ["-X", "acks=all", "-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "linger.ms=5"]
        if batch:
            options += ["-X", f"batch.num.messages={batch}"]
        for (partition, keyed, headers), kin in groupby(records, key=kind):
            arguments = ["-P", "-E", "-t", topic, "-z", codec, *options, *shape(partition, keyed, json.loads(headers))]
            kcat(at, *arguments, stdin=RECORD.join(line(fields, keyed) for fields in kin))
        return []  # kcat does not tell where records went

    def consume(self, at: str, topic: str, start: dict[str, int] | None, committed: bool) -> list[Any]:
        level = f"isolation.level={'read_committed' if committed else 'read_uncommitted'}"
        common = ["-C", "-t", topic, "-e", "-q", "-f", FORMAT, "-X", level, "-X", "fetch.wait.max.ms=50"]
        if start is None:
            return records(kcat(at, *common, "-o", "beginning"))
        found = [kcat(at, *common, "-p", index, "-o", str(offset)) for index, offset in start.items()]
        return [record for output in found for record in records(output)]

    def offsets_at(self, at: str, topic: str, timestamp: int) -> dict[str, int | None]:
        count = metadata(at)[topic]
        output = kcat(at, "-Q", *[word for index in range(count) for word in ("-t", f"{topic}:{index}:{timestamp}")])
        found: dict[str, int | None] = {}
        for answer in output.decode().splitlines():  # `topic [0] offset 5`
            index, offset = answer.rsplit("[", 1)[1].split("] offset ")
            found[index] = int(offset) if int(offset) >= 0 else None
        return found

    def bounds(self, at: str, topic: str) -> dict[str, list[int]]:
        low, high = self.offsets_at(at, topic, -2), self.offsets_at(at, topic, -1)
        return {index: [low[index] or 0, high[index] or 0] for index in low}

    def topics(self, at: str) -> dict[str, int]:
        return metadata(at)

    def join(self, at: str, name: str, group: str, topic: str, session_ms: int, **options: Any) -> None:
        settings = {"session.timeout.ms": session_ms, "heartbeat.interval.ms": session_ms // 6}
        settings |= {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 100, "fetch.wait.max.ms": 50}
        settings |= {"enable.auto.commit": str(options.get("commit", True)).lower(), "metadata.max.age.ms": 1000}
        settings |= {"topic.metadata.refresh.interval.ms": 500, "broker.address.family": "v4"}
        if options.get("assignor"):
            settings["partition.assignment.strategy"] = options["assignor"]
        if options.get("instance"):
            settings["group.instance.id"] = options["instance"]
        words = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
        self.members[name] = Member(["kcat", "-E", "-b", at, *words, "-u", "-f", FORMAT, "-G", group, topic])

    def look(self, name: str) -> dict[str, Any]:
        member = self.members[name]
        return {"assigned": sorted(member.assigned), "records": records(bytes(member.output))}

    def leave(self, name: str) -> None:
        process = self.members.pop(name).process
        process.terminate()
        process.wait(10)

    def murder(self, name: str) -> None:
        """kill −9 of one kcat; killing this driver would leave it running."""
        process = self.members.pop(name).process
        process.kill()
        process.wait()

    def open(self, at: str, name: str, id: str, timeout_ms: int) -> None:  # noqa: A002
        self.transactions[name] = {"at": at, "id": id, "timeout_ms": timeout_ms}

    def begin(self, name: str) -> None:
        self.transactions[name]["process"] = None

    def send(self, name: str, topic: str, records: list[Any]) -> None:
        """Start kcat, which begins a transaction, and give it its records; its input stays open, so it does not commit."""
        transaction = self.transactions[name]
        ((partition, keyed, headers), kin), *more = [(key, list(kin)) for key, kin in groupby(records, key=kind)]
        if more or transaction["process"]:
            raise NotImplementedError("one kcat writes one kind of record to one topic in a transaction")
        command = ["kcat", "-b", transaction["at"], "-P", "-t", topic, *shape(partition, keyed, json.loads(headers))]
        for setting in (f"transactional.id={transaction['id']}", f"transaction.timeout.ms={transaction['timeout_ms']}"):
            command += ["-X", setting]
        command += ["-X", "broker.address.family=v4", "-X", "linger.ms=0", "-T", "-u"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        transaction["process"] = process
        assert process.stdin is not None
        process.stdin.write(b"".join(line(fields, keyed) + RECORD for fields in kin))
        process.stdin.flush()

    def commit_transaction(self, name: str) -> None:
        process = self.transactions[name].pop("process")
        _, errors = process.communicate(timeout=RUN_S)
        if process.returncode:
            raise Failed("KCAT", errors.decode("utf-8", "replace"))

    def abort_transaction(self, name: str) -> None:
        """Interrupt kcat, which aborts. It reads its input in large pieces, so first fill one up, without ending a record."""
        process = self.transactions[name].pop("process")
        process.stdin.write(b"-" * 65536)
        process.stdin.flush()
        time.sleep(0.5)  # kcat says nothing when a record is delivered
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=RUN_S)

    def close(self, name: str) -> None:
        process = self.transactions.pop(name).get("process")
        if process is not None:
            process.kill()
            process.wait()


def kind(fields: dict[str, Any]) -> tuple[int | None, bool, str]:
    """What one run of kcat can write together."""
    return fields["partition"], fields["key"] is not None, json.dumps(fields["headers"])


def shape(partition: int | None, keyed: bool, headers: list[Any]) -> list[str]:
    words = ["-D", RECORD.decode(), "-Z"]
    if partition is not None:
        words += ["-p", str(partition)]
    if keyed:
        words += ["-K", FIELD.decode()]
    for name, value in headers:
        words += ["-H", f"{name}={value}" if value is not None else name]
    return words


def line(fields: dict[str, Any], keyed: bool) -> bytes:
    value = data(fields["value"]) or b""
    return (data(fields["key"]) or b"") + FIELD + value if keyed else value


serve(Calls(), lambda error: None)
