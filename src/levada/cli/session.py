"""What every command that talks to a broker shares: where it is, and names that may be misspelt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from levada.errors import InvalidRequest, UnknownGroup, UnknownNode, UnknownTopic, Unreachable, nearest

if TYPE_CHECKING:
    from levada.client.faces import Client

Server = Annotated[
    str,
    typer.Option("--server", "-s", envvar="LEVADA_SERVER", metavar="HOST:PORT", help="The broker to talk to."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DEFAULT_SERVER = "127.0.0.1:9094"
#: How long a command waits for the broker.
TIMEOUT_MS = 30_000


class WrongUsage(InvalidRequest):
    """The command line contradicts itself."""


@contextmanager
def session(server: str) -> Iterator[Client]:
    """A client for one command. Its errors say what to do next."""
    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise WrongUsage(
            f"--server {server!r}: must be HOST:PORT with a port from 0 to 65535, such as {DEFAULT_SERVER}"
        )
    from levada.client.faces import connect

    try:
        with connect(server, timeout_ms=TIMEOUT_MS, client_id="levada-cli") as client:
            yield client
    except Unreachable as error:
        raise Unreachable(f"{error}\nAnother one is named by --server HOST:PORT or LEVADA_SERVER.") from None


@contextmanager
def topic_named(client: Client, name: str, *, wanted: bool = False) -> Iterator[None]:
    """If there is no such topic, say which one may have been meant, and what to do. `wanted`: for something that could be done with it."""
    try:
        yield
    except UnknownTopic:
        known = (topic.name for topic in client.manager.topics(internal=True))
        hint = f"`levada topic create {name}` makes it" if wanted else "`levada topic list` shows all"
        raise UnknownTopic(_unknown("topic", name, known, hint)) from None


@contextmanager
def group_named(client: Client, name: str) -> Iterator[None]:
    try:
        yield
    except UnknownGroup:
        known = (group.group for group in client.manager.groups())
        raise UnknownGroup(_unknown("group", name, known, "`levada group list` shows all")) from None


@contextmanager
def node_named(client: Client, name: str) -> Iterator[None]:
    try:
        yield
    except UnknownNode:
        known = (node.id for node in client.manager.nodes())
        raise UnknownNode(_unknown("node", name, known, "`levada cluster nodes` shows all")) from None


def _unknown(kind: str, name: str, known: Iterable[str], hint: str) -> str:
    return f"there is no {kind} {name!r}{nearest(name, known)}; {hint}".replace("?;", "?")


def count(number: int, noun: str) -> str:
    """ "1 partition", "4 partitions"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
