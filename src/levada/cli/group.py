"""`levada group`: list, describe, register, seek, delete."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levada.cli.output import print_json, print_table
from levada.cli.places import place
from levada.cli.session import DEFAULT_SERVER, AsJson, Server, count, group_named, session, topic_named
from levada.errors import GroupNotEmpty, nearest

if TYPE_CHECKING:
    from levada.client.views import Group

app = typer.Typer(help="List, describe, register, move and delete groups.", no_args_is_help=True, add_completion=False)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]
TopicOption = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic.")]


@app.command("list")
def list_groups(server: Server = DEFAULT_SERVER, as_json: AsJson = False) -> None:
    """List groups of every kind, Kafka's too.

    Example:

      levada group list
    """
    with session(server) as client:
        groups = client.manager.groups()
    if as_json:
        print_json([_listed(group) for group in groups])
        return
    rows = [(group.group, group.kind, group.state or None, group.size) for group in groups]
    print_table(
        ("group", "kind", "state", "members"),
        rows,
        empty="no groups yet; `levada consume TOPIC --group NAME` makes one, as any consumer with a group does",
    )


def _listed(group: Group) -> dict[str, Any]:
    return {"group": group.group, "kind": group.kind, "state": group.state, "members": group.size}


@app.command()
def describe(name: Name, server: Server = DEFAULT_SERVER, as_json: AsJson = False) -> None:
    """Show a group's members, and how far behind it is in each partition.

    Example:

      levada group describe billing
    """
    with session(server) as client, group_named(client, name):
        group = client.manager.group(name)
    partitions = [
        {
            "topic": row.topic,
            "partition": row.partition,
            "committed": row.committed,
            "start": row.start,
            "end": row.end,
            "lag": row.lag,
            "member": row.member_id or None,
        }
        for row in group.offsets
    ]
    members = [
        {
            "member": one.member_id,
            "client": one.client_id,
            "host": one.host,
            "consumer": one.consumer,
            "partitions": [str(at) for at in one.partitions],
        }
        for one in group.members
    ]
    if as_json:
        described = {**_listed(group), "generation": group.generation, "members": members, "partitions": partitions}
        print_json(described)
        return
    lag = sum(row.lag for row in group.offsets)
    generation = f", generation {group.generation}" if group.kind != "offsets" else ""
    print(f"{name}: {_kind(group)}, {count(group.size, 'member')}{generation}, lag {lag:,}\n")
    if members:
        _print_filled(("member", "client", "host", "consumer", "partitions"), members)
        print()
    names = _short_names(group)
    shown = [{**row, "read by": names.get(str(row["member"]))} for row in partitions]
    _print_filled(("topic", "partition", "committed", "end", "lag", "read by"), shown)


def _short_names(group: Group) -> dict[str, str]:
    """Members by what a person calls them: their client's id, where no other has the same."""
    clients = [one.client_id for one in group.members]
    return {
        one.member_id: one.client_id if clients.count(one.client_id) == 1 else one.member_id for one in group.members
    }


def _kind(group: Group) -> str:
    """For a person."""
    if group.kind == "offsets":
        return "only offsets, nobody has joined"
    return f"{group.kind} group, {group.state or 'Empty'}"


def _print_filled(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A table without the columns in which nothing stands: 80 characters are not many."""
    filled = [column for column in columns if any(row[column] not in (None, "", []) for row in rows)]
    cells = [
        [", ".join(row[column]) if isinstance(row[column], list) else row[column] for column in filled] for row in rows
    ]
    print_table(filled, cells, empty="nothing committed, nothing assigned")


@app.command()
def register(
    name: Name,
    topic: TopicOption,
    consumers: Annotated[int, typer.Option("--consumers", "-n", min=1, help="How many there will be.")],
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Register a fixed group: consumer I of N reads every partition with partition % N == I.

    Again with the same number, nothing changes. With another one a new generation begins, and consumers of the old one
    are told to go.

    Example:

      levada group register billing --topic orders --consumers 3
    """
    with session(server) as client, topic_named(client, topic, wanted=True):
        registered = client.manager.register_group(topic, name, consumers)
        partitions = client.manager.topic(topic).partitions
    shares = [list(range(index, partitions, consumers)) for index in range(consumers)]
    if as_json:
        answer = {"group": name, "topic": topic, "consumers": consumers, "generation": registered.generation}
        print_json({**answer, "same": registered.same, "shares": shares})
        return
    again = "was registered so already" if registered.same else "registered"
    print(f"{name}: {again}, {count(consumers, 'consumer')} of {topic}, generation {registered.generation}")
    rows = [(index, ", ".join(map(str, share)) or None) for index, share in enumerate(shares)]
    print_table(("consumer", "partitions"), rows, empty="")


@app.command()
def seek(
    name: Name,
    topic: TopicOption,
    to: Annotated[
        str,
        typer.Option("--to", help="earliest, latest, an offset, +N or -N, or a time such as 2026-01-31T12:00:00Z."),
    ],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", help="Only this one. Repeatable.", show_default="all")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Move a group to another place in a topic. Running members of a native group go on from there.

    A group that is not there yet is made, and begins at that place: the answer says so.

    Examples:

      levada group seek billing --topic orders --to earliest

      levada group seek billing --topic orders --partition 2 --to 1500 --dry-run

      levada group seek billing --topic orders --to -100
    """
    where = place(to, "--to", shifts=True).seeking()
    with session(server) as client, topic_named(client, topic, wanted=True):
        known = [group.group for group in client.manager.groups()]
        before = {(row.topic, row.partition): row.committed for row in client.manager.offsets(name, topic)}
        after = client.manager.seek(name, topic, partitions=partition or (), dry_run=dry_run, **where)
    rows = [
        {"topic": at.topic, "partition": at.partition, "before": before.get(at), "after": offset}
        for at, offset in sorted(after.items())
    ]
    if as_json:
        print_json({"group": name, "new": name not in known, "dry_run": dry_run, "partitions": rows})
        return
    if name not in known:
        print(f"{name} {'would be' if dry_run else 'is'} a new group")
        if meant := nearest(name, known):
            undo = "" if dry_run else f" `levada group delete {name}` forgets the new one"
            print(f"levada: there was no group {name!r}{meant}{undo}", file=sys.stderr)
    columns = ("topic", "partition", "before", "after")
    print_table(columns, [[row[column] for column in columns] for row in rows], empty="")
    if dry_run:
        print("nothing was changed (--dry-run)")


@app.command("reset-offsets", hidden=True)
def reset_offsets(
    name: Name,
    topic: TopicOption,
    to: Annotated[str, typer.Option("--to")],
    partition: Annotated[list[int] | None, typer.Option("--partition")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """The same as `levada group seek`, by the name Kafka's tool has for it.

    Example:

      levada group reset-offsets billing --topic orders --to earliest
    """
    seek(name, topic, to, partition, dry_run, server, as_json)


@app.command()
def delete(name: Name, server: Server = DEFAULT_SERVER, as_json: AsJson = False) -> None:
    """Forget a group without members, and its offsets.

    Example:

      levada group delete billing
    """
    with session(server) as client, group_named(client, name):
        try:
            client.manager.delete_group(name)
        except GroupNotEmpty as error:
            raise GroupNotEmpty(f"{error}; stop them, or wait for their sessions to end") from None
    if as_json:
        print_json({"group": name, "deleted": True})
    else:
        print(f"deleted {name}")
