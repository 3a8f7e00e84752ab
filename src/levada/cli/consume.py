"""`levada consume`: read a topic to its end, or follow it."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from levada.cli.output import print_json
from levada.cli.places import resolve
from levada.cli.session import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, find_topic, session
from levada.errors import InvalidRequest
from levada.records.batch import batches
from levada.records.read import Record, read_all
from levada.wire.answers import LATEST, READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from levada.wire.blocking import BlockingClient

#: How often a group's place is saved while records are printed.
COMMIT_EVERY = 1_000

app = typer.Typer(add_completion=False)


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: Annotated[
        str,
        typer.Option("--from", help="earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z."),
    ] = "earliest",
    partition: Annotated[int | None, typer.Option("--partition", help="Only this one.", show_default="all")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after so many records.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more instead of stopping at the end.")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Go on where this group is, and save its place.")
    ] = None,
    committed: Annotated[bool, typer.Option("--committed", help="Only what committed transactions wrote.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Values alone, one per line.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Read records.

    Stops at what was the end when it started, unless --follow.

    Examples:

      levada consume orders --limit 10

      levada consume orders --from latest --follow --json

      levada consume orders --group billing --raw
    """
    if raw and as_json:
        raise InvalidRequest("give --raw or --json, not both")
    show = _raw if raw else _json if as_json else _line
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    with session(bootstrap) as client:
        info = find_topic(client, topic)
        positions = resolve(client, info, start, partition)
        if group is not None:
            saved = client.offset_fetch(group, positions)
            positions |= {at: place.offset for at, place in saved.items() if at in positions}
        reader = Reader(client, positions, isolation, follow=follow)
        try:
            for number, (at, record) in enumerate(reader, 1):
                show(at, record)
                if group is not None and number % COMMIT_EVERY == 0:
                    client.offset_commit(group, reader.positions)
                if number == limit:
                    break
            sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stderr.write("\n")
        except BrokenPipeError:
            # `| head` has seen enough. Nothing more may be written into the pipe, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            if group is not None and reader.moved:
                client.offset_commit(group, reader.positions)


class Reader:
    """Records of some partitions, from their positions on. `positions` is always the next offset to read."""

    def __init__(
        self, client: BlockingClient, positions: dict[TopicPartition, int], isolation: int, *, follow: bool
    ) -> None:
        self.client = client
        self.positions = dict(positions)
        self.isolation = isolation
        self.follow = follow
        self.moved = False
        found = client.list_offsets(dict.fromkeys(positions, LATEST), isolation=isolation)
        self.ends = {at: found[at].offset for at in positions}

    def __iter__(self) -> Iterator[tuple[TopicPartition, Record]]:
        while wanted := self._wanted():
            for at, fetched in self.client.fetch(wanted, isolation=self.isolation).items():
                yield from self._records(at, fetched)

    def _wanted(self) -> dict[TopicPartition, int]:
        if self.follow:
            return self.positions
        return {at: offset for at, offset in self.positions.items() if offset < self.ends[at]}

    def _records(self, at: TopicPartition, fetched: Any) -> Iterator[tuple[TopicPartition, Record]]:
        if not fetched.records:
            return
        committed_only = self.isolation == READ_COMMITTED
        for record in read_all(
            fetched.records,
            from_offset=self.positions[at],
            aborted=fetched.aborted or (),
            committed_only=committed_only,
        ):
            if not self.follow and record.offset >= self.ends[at]:
                self.positions[at] = self.ends[at]
                return
            self.positions[at] = record.offset + 1
            self.moved = True
            yield at, record
        # Past control batches, aborted and compacted records too.
        for batch in batches(fetched.records):
            self.positions[at] = max(self.positions[at], batch.next_offset)


def _raw(_at: TopicPartition, record: Record) -> None:
    sys.stdout.buffer.write((record.value or b"") + b"\n")
    sys.stdout.buffer.flush()


def _line(at: TopicPartition, record: Record) -> None:
    key = "" if record.key is None else f"{_text(record.key)} "
    value = "(null)" if record.value is None else _text(record.value)
    print(f"{at.partition}:{record.offset} {key}{value}")


def _json(at: TopicPartition, record: Record) -> None:
    moment = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    print_json(
        {
            "topic": at.topic,
            "partition": at.partition,
            "offset": record.offset,
            "timestamp": moment.replace("+00:00", "Z"),
            **_field("key", record.key),
            **_field("value", record.value),
            "headers": [{"name": name, **_field("value", value)} for name, value in record.headers],
        }
    )


def _field(name: str, data: bytes | None) -> dict[str, str | None]:
    """Text as text; bytes that are no text as base64 under another name, so that neither is mistaken for the other."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _text(data: bytes) -> str:
    """For a person: what could command the terminal is shown, not sent."""
    text = data.decode(errors="backslashreplace")
    if text.isprintable() or not sys.stdout.isatty():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
