"""What every command that talks to a broker shares: where it is, and names that may be misspelt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from levada.errors import InvalidConfig, UnknownTopic, Unreachable, nearest
from levada.wire.answers import TopicInfo
from levada.wire.blocking import BlockingClient

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar="LEVADA_BOOTSTRAP", metavar="HOST:PORT", help="The broker to talk to."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@contextmanager
def session(bootstrap: str) -> Iterator[BlockingClient]:
    """A client for one command. Its errors say what to do next."""
    try:
        client = BlockingClient(bootstrap, client_id="levada-cli", settle_ms=0, connect_timeout_ms=5_000)
    except ValueError as error:
        raise InvalidConfig(f"--bootstrap: {error}") from None
    try:
        with client:
            yield client
    except Unreachable as error:
        raise Unreachable(
            f"{error}\nIs a broker running there? `levada up` starts one; --bootstrap names another."
        ) from None


def find_topic(client: BlockingClient, name: str) -> TopicInfo:
    """The topic, or an error that suggests what may have been meant."""
    topics = client.topics()
    found = topics.get(name)
    if found is None:
        raise UnknownTopic(f"there is no topic {name!r}{nearest(name, topics)}; `levada topic create {name}` makes it")
    return found
