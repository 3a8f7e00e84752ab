"""`levada produce`: from an argument, a file or standard input."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from levada.cli.lines import Draft, objects, plain
from levada.cli.output import print_json
from levada.cli.pairs import pairs
from levada.cli.progress import Advance, progress
from levada.cli.session import DEFAULT_SERVER, AsJson, Server, WrongUsage, count, session, topic_named
from levada.errors import LevadaError, RecordTooLarge

if TYPE_CHECKING:
    from levada.client.delivery import Delivery
    from levada.client.faces import Producer
    from levada.client.records import Position

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
#: Most records that are on their way and not yet looked after.
_IN_FLIGHT: Final = 20_000

app = typer.Typer(add_completion=False)


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="One record; without it, a record per line.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read lines from here instead of standard input.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", help="Send here.", show_default="by key, or in turn")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Repeatable.")
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", help="Stored once only, on topics with levada.dedup=id.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Lines are KEY<separator>VALUE.")
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option("--json-lines", "-J", help="Lines are JSON: value, and if wanted key, headers, partition, id."),
    ] = False,
    codec: Annotated[str, typer.Option("--codec", "-z", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Write records to a topic. Nothing is written twice, whatever the network does.

    Examples:

      levada produce orders '{"amount": 12.5}' --key user-123

      levada produce orders --file orders.txt --codec zstd

      echo 'user-123:hello' | levada produce orders -K :

      levada consume orders --json | levada produce copy --json-lines
    """
    _check(value, file, key, message_id, key_separator, codec, json_lines=json_lines)
    template = Draft(
        None if value is None else value.encode(),
        key=None if key is None else key.encode(),
        headers=tuple((name, text.encode()) for name, text in pairs(header, "--header").items()),
        partition=partition,
        message_id=message_id,
    )
    began = time.perf_counter()
    with (
        session(server) as client,
        topic_named(client, topic, wanted=True),
        _too_large_for(topic),
        _source(value, file) as source,
        client.producer(compression=codec) as producer,
    ):
        sender = Sender(producer, topic, lambda: client.manager.topic(topic).dedup)
        if source is None:
            sender.send(template)
            sender.settle()
        else:
            lines, name, size = source
            drafts = objects(lines, template) if json_lines else plain(lines, template, key_separator)
            with progress(name, size, shown=not as_json and (file is not None or not sys.stdin.isatty())) as advance:
                sender.send_all(drafts, advance)
    _report(sender, time.perf_counter() - began, as_json=as_json)


@contextmanager
def _too_large_for(topic: str) -> Iterator[None]:
    """Where the topic's limit is in the way, say how it is raised."""
    try:
        yield
    except RecordTooLarge as error:
        if "max.message.bytes" in str(error):
            error.args = (f"{error}; `levada topic alter {topic} -c max.message.bytes=N` takes larger ones",)
        raise


def _check(
    value: str | None,
    file: Path | None,
    key: str | None,
    message_id: str | None,
    separator: str | None,
    codec: str,
    *,
    json_lines: bool,
) -> None:
    """WrongUsage, naming what contradicts what."""
    if codec not in CODECS:
        raise WrongUsage(f"--codec {codec}: must be one of {', '.join(CODECS)}")
    if value is not None and file is not None:
        raise WrongUsage("give a VALUE or --file, not both")
    if value is not None and (separator is not None or json_lines):
        raise WrongUsage("--key-separator and --json-lines are for lines, not for a VALUE; --key gives it a key")
    if separator is not None and json_lines:
        raise WrongUsage("give --key-separator or --json-lines, not both")
    if separator is not None and not separator:
        raise WrongUsage("--key-separator: must have at least one character")
    if separator is not None and key is not None:
        raise WrongUsage("give --key or --key-separator, not both")
    if message_id is not None and value is None:
        raise WrongUsage('--id is for one VALUE; with --json-lines each line has its own "id"')
    if file is not None and not file.is_file():
        raise WrongUsage(f"--file: {file} is a directory" if file.is_dir() else f"--file: there is no file {file}")


@contextmanager
def _source(value: str | None, file: Path | None) -> Iterator[tuple[BinaryIO, str, int | None] | None]:
    """Where lines come from, what to call it, and its size if that is known; None where there is one VALUE."""
    if value is not None:
        yield None
    elif file is not None:
        with file.open("rb") as lines:
            yield lines, file.name, file.stat().st_size
    else:
        if sys.stdin.isatty():
            print("one record per line; Ctrl-D ends", file=sys.stderr)
        yield sys.stdin.buffer, "stdin", None


class Sender:
    """Publishes drafts, and counts what became of them."""

    def __init__(self, producer: Producer, topic: str, dedup: Callable[[], str]) -> None:
        self._producer = producer
        #: Asked when the first record with an id comes.
        self._dedup: Callable[[], str] | None = dedup
        self.topic = topic
        self._on_their_way: deque[tuple[Delivery, int]] = deque()
        self.records = self.duplicates = self.bytes = 0
        self.last: Position | None = None

    def send(self, draft: Draft) -> None:
        if draft.message_id is not None and self._dedup is not None:
            self._warn_of_unchecked_ids(self._dedup())
            self._dedup = None
        delivery = self._producer.publish(
            self.topic,
            draft.value,
            key=draft.key,
            headers=draft.headers or None,
            partition=draft.partition,
            message_id=draft.message_id,
            timestamp_ms=draft.timestamp_ms,
        )
        self._on_their_way.append((delivery, len(draft.value or b"") + len(draft.key or b"")))

    def _warn_of_unchecked_ids(self, dedup: str) -> None:
        if dedup != "id":
            print(
                f"levada: ids are stored and not checked: {self.topic} has levada.dedup={dedup}; "
                f"`levada topic alter {self.topic} -c levada.dedup=id` changes that",
                file=sys.stderr,
            )

    def send_all(self, drafts: Iterator[Draft], advance: Advance) -> None:
        """All of them, or up to the first that is refused: then the error says how many were written before it."""
        try:
            for draft in drafts:
                self.send(draft)
                advance(draft.size)
                self._look_after()
            self.settle()
        except KeyboardInterrupt:
            self._settle_what_can_be()
            print(f"\n{count(self.records, 'record')} written", file=sys.stderr)
            raise
        except LevadaError as error:
            self._settle_what_can_be()
            if self.records:
                were = "was" if self.records == 1 else "were"
                error.args = (f"{error}; {count(self.records, 'record')} {were} written before it",)
            raise

    def _look_after(self) -> None:
        """Take note of those that are done; with too many under way, wait for the first."""
        while self._on_their_way and (self._on_their_way[0][0].done or len(self._on_their_way) > _IN_FLIGHT):
            self._take_first()

    def settle(self) -> None:
        """Wait for all. Raises the first refusal."""
        while self._on_their_way:
            self._take_first()

    def _settle_what_can_be(self) -> None:
        while self._on_their_way:
            try:
                self._take_first()
            except LevadaError:
                continue

    def _take_first(self) -> None:
        delivery, size = self._on_their_way.popleft()
        self.last = position = delivery.result()
        self.records += 1
        self.duplicates += position.duplicate
        self.bytes += size


def _report(sender: Sender, took_s: float, *, as_json: bool) -> None:
    last = sender.last
    one = last if sender.records == 1 else None
    if as_json:
        answer: dict[str, object] = {"topic": sender.topic, "records": sender.records, "bytes": sender.bytes}
        if one is not None:
            answer |= {"partition": one.partition, "offset": one.offset}
        print_json({**answer, "duplicates": sender.duplicates})
    elif one is not None:
        was_there = " (a duplicate: it was there already)" if one.duplicate else ""
        print(f"{sender.topic} partition {one.partition} offset {one.offset}{was_there}")
    else:
        already = f", {sender.duplicates:,} of them there already" if sender.duplicates else ""
        rate = f" ({sender.records / took_s:,.0f}/s)" if took_s else ""
        print(f"{sender.records:,} records, {sender.bytes:,} bytes to {sender.topic} in {took_s:.2f} s{rate}{already}")
