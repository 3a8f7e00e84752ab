"""`levada consume`: read a topic to its end, or follow it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from levada.cli.places import Place, place
from levada.cli.reading import Reading
from levada.cli.session import DEFAULT_SERVER, AsJson, Server, WrongUsage, group_named, session, topic_named
from levada.cli.shapes import shape
from levada.errors import GroupKindMismatch, OffsetOutOfRange, UnknownPartition

if TYPE_CHECKING:
    from levada.client.faces import Client, Consumer
    from levada.client.views import Topic

app = typer.Typer(add_completion=False)


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: Annotated[
        str,
        typer.Option("--from", help="earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z."),
    ] = "earliest",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", help="Only this one. Repeatable.", show_default="all")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--max", "--limit", "-n", min=1, help="Stop after so many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", "-f", help="Wait for more instead of stopping at the end.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="Go on where this group is, and save its place; --from counts where it has none."
        ),
    ] = None,
    consumer: Annotated[
        int | None, typer.Option("--consumer", min=0, help="Of a registered group: which of its consumers this is.")
    ] = None,
    committed: Annotated[bool, typer.Option("--committed", help="Only what committed transactions wrote.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Values alone, one per line.")] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="As you like it: {topic} {partition} {offset} {timestamp} {key} {value} {headers}, \\t, \\n.",
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Read records.

    Stops at what was the end when it started, unless --follow. Ctrl-C ends it in order.

    Examples:

      levada consume orders --max 10

      levada consume orders --from latest --follow --json

      levada consume orders --group billing --raw

      levada consume orders --group workers --consumer 0 --follow

      levada consume orders --format '{offset}\\t{key}\\t{value}'
    """
    if sum((raw, as_json, form is not None)) > 1:
        raise WrongUsage("give one of --raw, --json and --format")
    if group is not None and partition:
        raise WrongUsage("a group shares the partitions out among its members: give --group or --partition, not both")
    if consumer is not None and group is None:
        raise WrongUsage("--consumer is one of a group's: give --group too")
    where = place(start, "--from")
    show = shape(raw=raw, as_json=as_json, form=form)
    with session(server) as client, topic_named(client, topic, wanted=True), _of_this_kind(client, group):
        found = client.manager.topic(topic)
        _check(found, where, partition)
        if group is not None:
            _begin(client, group, topic, where)
        generation = 0 if consumer is None else _registered(client, str(group), consumer)
        with client.consumer(
            topic,
            group=group or "",
            partitions=partition,
            consumer=consumer,
            generation=generation,
            start="latest" if where.start == "latest" else "earliest",
            read_committed=committed,
            auto_commit=False,
        ) as reader:
            if group is None:
                _seek(client, reader, topic, where)
            ends = {one.index: one.end for one in found.places}
            reading = Reading(
                reader, ends, group, follow=follow, committed=committed, still_there=lambda: client.manager.topic(topic)
            )
            reading.run(show, limit)


def _check(topic: Topic, where: Place, partitions: list[int] | None) -> None:
    """UnknownPartition, OffsetOutOfRange: before anything is read."""
    for index in partitions or ():
        if not 0 <= index < topic.partitions:
            raise UnknownPartition(f"{topic.name} has partitions 0 to {topic.partitions - 1}, not {index}")
    if where.offset is None:
        return
    for one in topic.places:
        if (not partitions or one.index in partitions) and not one.start <= where.offset <= one.end:
            raise OffsetOutOfRange(
                f"{topic.name} partition {one.index}: offset {where.offset} is not within {one.start} to {one.end}"
                + ("" if topic.partitions == 1 or partitions else "; --partition reads one alone"),
                start=one.start,
                end=one.end,
            )


def _begin(client: Client, group: str, topic: str, where: Place) -> None:
    """Where the group has no offset, give it the one it is to begin at."""
    if where.start is not None:
        return
    missing = [row.partition for row in client.manager.offsets(group, topic) if row.committed is None]
    if missing:
        client.manager.seek(group, topic, partitions=missing, **where.seeking())


@contextmanager
def _of_this_kind(client: Client, name: str | None) -> Iterator[None]:
    """Where the group is of another kind, say what to do."""
    try:
        yield
    except GroupKindMismatch as error:
        kind = client.manager.group(str(name)).kind
        hint = "--consumer N says which of its consumers this is" if kind == "fixed" else "--group names another"
        raise GroupKindMismatch(f"{error}; {hint}") from None


def _registered(client: Client, name: str, consumer: int) -> int:
    """The generation of a fixed group. WrongUsage where it is of another kind."""
    with group_named(client, name):
        group = client.manager.group(name)
    if group.kind != "fixed":
        raise WrongUsage(f"--consumer {consumer}: group {name} is not registered but {group.kind}; leave it out")
    return group.generation


def _seek(client: Client, consumer: Consumer, topic: str, where: Place) -> None:
    """Without a group: to an offset or a time."""
    if where.start is not None:
        return
    ats = consumer.assignment()
    partitions = [at.partition for at in ats]
    # Nothing is moved: it only says where that is.
    found = client.manager.seek("levada-cli", topic, partitions=partitions, dry_run=True, **where.seeking())
    for at in ats:
        consumer.seek(at.topic, at.partition, found[at])
