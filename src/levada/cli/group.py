"""`levada group`: list, describe, reset-offsets, delete."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Annotated, Any

import typer

from levada.cli.output import print_json, print_table
from levada.cli.places import resolve
from levada.cli.session import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, find_topic, session
from levada.errors import GroupNotEmpty, UnknownGroup, nearest
from levada.wire.answers import LATEST, GroupInfo, TopicPartition
from levada.wire.blocking import BlockingClient

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True, add_completion=False)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]


@app.command("list")
def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List groups.

    Example:

      levada group list
    """
    with session(bootstrap) as client:
        groups = client.list_groups()
    if as_json:
        print_json([group._asdict() for group in groups])
        return
    rows = [(group.group_id, group.state or None, group.protocol_type or None) for group in groups]
    print_table(("group", "state", "protocol"), rows, empty="no groups yet; a consumer with a group.id makes one")


@app.command()
def describe(group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show a group's members, and how far behind it is in each partition.

    Example:

      levada group describe billing
    """
    with session(bootstrap) as client:
        info = _find(client, group)
        rows = _places(client, info)
    if as_json:
        members = [_member(member) for member in info.members]
        print_json(
            {"group": group, "state": info.state, "protocol": info.protocol, "members": members, "partitions": rows}
        )
        return
    lag = sum(row["lag"] or 0 for row in rows)
    print(f"{group}: {info.state}, {len(info.members)} members, lag {lag:,}")
    columns = ("topic", "partition", "committed", "end", "lag", "member")
    print_table(columns, [[row[name] for name in columns] for row in rows], empty="nothing committed, nothing assigned")


@app.command("reset-offsets")
def reset_offsets(
    group: Group,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic to move in.")],
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z.")
    ],
    partition: Annotated[int | None, typer.Option("--partition", help="Only this one.", show_default="all")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Move a group without running members to another place in a topic.

    Examples:

      levada group reset-offsets billing --topic orders --to earliest

      levada group reset-offsets billing --topic orders --partition 2 --to 1500 --dry-run
    """
    with session(bootstrap) as client:
        info = find_topic(client, topic)
        before = client.offset_fetch(group)
        _check_idle(client, group)
        places = resolve(client, info, to, partition)
        if not dry_run:
            client.offset_commit(group, places)
    rows = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "before": before[at].offset if at in before else None,
            "after": offset,
        }
        for at, offset in places.items()
    ]
    if as_json:
        print_json({"group": group, "dry_run": dry_run, "partitions": rows})
        return
    columns = ("topic", "partition", "before", "after")
    print_table(columns, [[row[name] for name in columns] for row in rows], empty="")
    if dry_run:
        print("nothing was changed (--dry-run)")


@app.command()
def delete(group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Forget a group without members, and its offsets.

    Example:

      levada group delete billing
    """
    with session(bootstrap) as client:
        _find(client, group)
        client.delete_group(group)
    if as_json:
        print_json({"group": group, "deleted": True})
    else:
        print(f"deleted {group}")


def _check_idle(client: BlockingClient, group: str) -> None:
    """Only a group that nobody reads for can be moved."""
    if any(listing.group_id == group for listing in client.list_groups()):
        members = client.describe_group(group).members
        if members:
            names = ", ".join(member.client_id for member in members)
            raise GroupNotEmpty(
                f"group {group!r} has {len(members)} running members ({names}): stop them, or wait for their session to end"
            )


def _find(client: BlockingClient, group: str) -> GroupInfo:
    known = [listing.group_id for listing in client.list_groups()]
    if group not in known:
        raise UnknownGroup(f"there is no group {group!r}{nearest(group, known)}")
    return client.describe_group(group)


def _places(client: BlockingClient, info: GroupInfo) -> list[dict[str, Any]]:
    """Every partition that the group has committed in or that a member reads."""
    committed = client.offset_fetch(info.group_id)
    owners = {at: member.member_id for member in info.members for at in assignment(member.assignment)}
    known = client.topics()
    ats = sorted(at for at in {*committed, *owners} if at.topic in known)
    ends = client.list_offsets(dict.fromkeys(ats, LATEST)) if ats else {}
    return [
        {
            "topic": at.topic,
            "partition": at.partition,
            "committed": committed[at].offset if at in committed else None,
            "end": ends[at].offset,
            "lag": max(0, ends[at].offset - committed[at].offset) if at in committed else None,
            "member": owners.get(at),
        }
        for at in ats
    ]


def _member(member: Any) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "partitions": [str(at) for at in assignment(member.assignment)],
    }


_INT16 = Struct(">h")
_INT32 = Struct(">i")


def assignment(data: bytes) -> list[TopicPartition]:
    """The partitions in a member's assignment: int16 version | [topic string, [int32 partition]] | user data.

    Empty for a group that is not one of consumers: its bytes mean something else.
    """
    found: list[TopicPartition] = []
    try:
        (topics,) = _INT32.unpack_from(data, 2)
        position = 6
        for _ in range(topics):
            (length,) = _INT16.unpack_from(data, position)
            name = data[position + 2 : position + 2 + length].decode()
            position += 2 + length
            (count,) = _INT32.unpack_from(data, position)
            position += 4
            found += [TopicPartition(name, _INT32.unpack_from(data, position + 4 * i)[0]) for i in range(count)]
            position += 4 * count
    except (StructError, UnicodeDecodeError):
        return []
    return found
