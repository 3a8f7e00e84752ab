"""`levada produce`: from an argument, a file or standard input."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from levada.cli.output import print_json
from levada.cli.pairs import pairs
from levada.cli.session import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, find_topic, session
from levada.config import KiB
from levada.errors import BrokerRefused, InvalidRequest, UnknownPartition
from levada.records.build import build
from levada.records.compression import CODECS
from levada.records.read import Record
from levada.routing import partition_for
from levada.wire.answers import Appended, ProducerId, TopicInfo, TopicPartition
from levada.wire.blocking import BlockingClient

#: A batch is sent when it is this large, or when there is nothing more to read.
BATCH_BYTES_MAX = 256 * KiB
BATCH_RECORDS_MAX = 10_000

app = typer.Typer(add_completion=False)


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    value: Annotated[
        str | None, typer.Argument(metavar="[VALUE]", help="One record; without it, a record per line.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read lines from here instead of standard input.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Lines are KEY<separator>VALUE.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Repeatable.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", help="Send here.", show_default="by key, or in turn")
    ] = None,
    codec: Annotated[str, typer.Option("--codec", "-z", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Write records to a topic. Nothing is written twice, whatever the network does.

    Examples:

      levada produce orders '{"amount": 12.5}' --key user-123

      levada produce orders --file orders.jsonl --codec zstd

      echo 'user-123:hello' | levada produce orders -K :
    """
    if codec not in CODECS:
        raise InvalidRequest(f"--codec {codec}: must be one of {', '.join(CODECS)}")
    if value is not None and file is not None:
        raise InvalidRequest("give a VALUE or --file, not both")
    headers = tuple((name, text.encode()) for name, text in pairs(header, "--header").items())
    began = time.perf_counter()
    with session(bootstrap) as client:
        sender = Sender(client, find_topic(client, topic), partition, codec)
        try:
            for record_key, record_value in _records(value, file, key, key_separator):
                sender.add(record_key, record_value, headers)
            sender.finish()
        except BrokerRefused as error:
            written = f"{sender.records:,} records were written before it"
            raise BrokerRefused(f"{error}; {written}", code=error.code, name=error.name) from None
    _report(sender, topic, time.perf_counter() - began, as_json=as_json)


class Sender:
    """Batches records by partition and sends them as an idempotent producer."""

    def __init__(self, client: BlockingClient, topic: TopicInfo, partition: int | None, codec: str) -> None:
        self.client = client
        self.topic = topic.name
        self.partitions = len(topic.partitions)
        if partition is not None and not 0 <= partition < self.partitions:
            raise UnknownPartition(f"{topic.name} has partitions 0 to {self.partitions - 1}, not {partition}")
        self.partition = partition
        self.codec = codec
        self.router = _router(client, topic.name)
        self.producer: ProducerId = client.init_producer_id()
        self.sequences = [0] * self.partitions
        self.waiting: dict[int, list[Record]] = {}
        self.waiting_bytes = self.waiting_records = 0
        # Keyless records go in turn, from a random start: many small runs stay even.
        self.turn = random.randrange(self.partitions)
        self.records = self.bytes = 0
        self.last: tuple[TopicPartition, Appended] | None = None

    def add(self, key: bytes | None, value: bytes, headers: tuple[tuple[str, bytes], ...]) -> None:
        where = self._route(key)
        batch = self.waiting.setdefault(where, [])
        batch.append(Record(len(batch), time.time_ns() // 1_000_000, key, value, headers))
        self.waiting_bytes += len(value) + len(key or b"")
        self.waiting_records += 1
        if self.waiting_bytes >= BATCH_BYTES_MAX or self.waiting_records >= BATCH_RECORDS_MAX:
            self.finish()

    def finish(self) -> None:
        """Send what waits."""
        if not self.waiting:
            return
        batches = {
            TopicPartition(self.topic, where): build(
                records,
                codec=self.codec,
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.epoch,
                base_sequence=self.sequences[where],
            )
            for where, records in self.waiting.items()
        }
        for at, appended in self.client.produce_many(batches).items():
            self.sequences[at.partition] += len(self.waiting[at.partition])
            self.last = at, appended
        self.records += self.waiting_records
        self.bytes += self.waiting_bytes
        self.waiting = {}
        self.waiting_bytes = self.waiting_records = 0

    def _route(self, key: bytes | None) -> int:
        if self.partition is not None:
            return self.partition
        if key:
            return partition_for(key, self.router, self.partitions)
        self.turn = (self.turn + 1) % self.partitions
        return self.turn


def _router(client: BlockingClient, topic: str) -> str:
    """The topic's router; Apache Kafka has no such setting, and its clients use murmur2."""
    entry = client.describe_configs(topic, keys=["levada.router"]).get("levada.router")
    return (entry.value if entry else None) or "murmur2"


def _records(
    value: str | None, file: Path | None, key: str | None, separator: str | None
) -> Iterator[tuple[bytes | None, bytes]]:
    fixed = None if key is None else key.encode()
    if value is not None:
        yield fixed, value.encode()
        return
    if file is None:
        if sys.stdin.isatty():
            print("one record per line; Ctrl-D ends", file=sys.stderr)
        yield from _split(sys.stdin.buffer, fixed, separator)
        return
    if not file.is_file():
        raise InvalidRequest(f"--file: there is no file {file}")
    with file.open("rb") as lines:
        yield from _split(_with_progress(lines, file), fixed, separator)


def _split(lines: Iterable[bytes], fixed: bytes | None, separator: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\n")
        if separator is None:
            yield fixed, text
            continue
        head, found, tail = text.partition(separator.encode())
        if not found:
            raise InvalidRequest(f"line {number} has no {separator!r}, which is to stand between key and value")
        yield head, tail


def _with_progress(lines: BinaryIO, file: Path) -> Iterator[bytes]:
    """The lines, with a bar where a person is watching."""
    if not sys.stderr.isatty():
        yield from lines
        return
    from rich.console import Console
    from rich.progress import wrap_file

    console = Console(stderr=True)
    with wrap_file(lines, file.stat().st_size, description=file.name, console=console, transient=True) as watched:
        yield from watched


def _report(sender: Sender, topic: str, took_s: float, *, as_json: bool) -> None:
    if as_json:
        answer: dict[str, object] = {"topic": topic, "records": sender.records, "bytes": sender.bytes}
        if sender.records == 1 and sender.last is not None:
            answer |= {"partition": sender.last[0].partition, "offset": sender.last[1].base_offset}
        print_json(answer)
    elif sender.records == 1 and sender.last is not None:
        print(f"{topic} partition {sender.last[0].partition} offset {sender.last[1].base_offset}")
    else:
        print(f"{sender.records:,} records, {sender.bytes:,} bytes to {topic} in {took_s:.2f} s")
