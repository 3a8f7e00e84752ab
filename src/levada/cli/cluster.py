"""`levada cluster`: nodes, join, leave, leader, placement, stats."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levada.cli.output import print_json, print_pairs, print_table
from levada.cli.session import DEFAULT_SERVER, AsJson, Server, node_named, session, topic_named

if TYPE_CHECKING:
    from levada.client.views import Node

app = typer.Typer(
    help="Show and change the nodes, and show where partitions would lie on them.\n\nThe placement is a plan that is kept "
    "and shown: the broker you talk to serves everything.",
    no_args_is_help=True,
    add_completion=False,
)

#: What of the stats is called otherwise for people.
_NAMES = {"uptime_ms": "uptime", "bytes_on_disk": "on disk", "resident_bytes": "memory"}

NodeId = Annotated[str, typer.Argument(metavar="ID", help="The node.")]


@app.command()
def nodes(server: Server = DEFAULT_SERVER, as_json: AsJson = False) -> None:
    """List nodes. The leader is the one with the smallest id.

    Example:

      levada cluster nodes
    """
    with session(server) as client:
        found = client.manager.nodes()
    _show(found, as_json=as_json)


def _show(found: list[Node], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(node) for node in found])
        return
    rows = [
        (
            node.id,
            node.address or None,
            node.kafka or None,
            _role(node),
            None if node.self else _ago(node.last_heartbeat_ms),
        )
        for node in found
    ]
    print_table(("node", "address", "kafka", "role", "last heard"), rows, empty="no nodes")


def _role(node: Node) -> str | None:
    roles = [word for word, holds in (("leader", node.leader), ("this broker", node.self)) if holds]
    return ", ".join(roles) or None


def _ago(moment_ms: int) -> str:
    seconds = max(0, time.time() - moment_ms / 1000)
    return f"{seconds:.0f} s ago"


@app.command()
def join(
    node: NodeId,
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where its gRPC is.")],
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--timeout-ms", min=1, help="It leaves by itself when not heard of for so long.", show_default="15000"
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Add a node, or say where one is now. Joining again is a sign of life.

    Example:

      levada cluster join n2 10.0.0.2:9094 --timeout-ms 60000
    """
    with session(server) as client:
        found = client.manager.join_node(node, address, timeout_ms=timeout_ms or 0)
    _show(found, as_json=as_json)


@app.command()
def leave(node: NodeId, server: Server = DEFAULT_SERVER, as_json: AsJson = False) -> None:
    """Take a node out.

    Example:

      levada cluster leave n2
    """
    with session(server) as client, node_named(client, node):
        client.manager.leave_node(node)
    if as_json:
        print_json({"node": node, "left": True})
    else:
        print(f"{node} left")


@app.command()
def leader(server: Server = DEFAULT_SERVER, as_json: AsJson = False) -> None:
    """Say who leads: the node with the smallest id.

    Example:

      levada cluster leader
    """
    with session(server) as client:
        found = next(node for node in client.manager.nodes() if node.leader)
    if as_json:
        print_json(asdict(found))
    else:
        print(f"{found.id} at {found.address}" if found.address else found.id)


@app.command()
def placement(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="Only this one.", show_default="all")] = None,
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show where each partition would lie: partition I leads on node I % N, its copies on the nodes that follow.

    Examples:

      levada cluster placement

      levada cluster placement orders --json
    """
    with session(server) as client, topic_named(client, topic or ""):
        found = client.manager.placement(topic)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (
            one.topic,
            one.partition,
            one.leader,
            ",".join(one.replicas),
            one.last_offset if one.last_offset >= 0 else None,
        )
        for one in found
    ]
    print_table(("topic", "partition", "leader", "replicas", "last offset"), rows, empty="no topics yet")


@app.command()
def stats(server: Server = DEFAULT_SERVER, as_json: AsJson = False) -> None:
    """Show the broker in numbers, since it was started.

    Example:

      levada cluster stats
    """
    with session(server) as client:
        found = asdict(client.manager.stats())
    if as_json:
        print_json(found)
        return
    print_pairs((_NAMES.get(name, name.replace("_", " ")), _readable(name, value)) for name, value in found.items())


def _readable(name: str, value: Any) -> str:
    if name == "uptime_ms":
        minutes, seconds = divmod(value // 1000, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min {seconds} s" if hours else f"{minutes} min {seconds} s"
    if "bytes" in name:
        return size(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def size(number: float) -> str:
    """Bytes for a person: 512 B, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"
