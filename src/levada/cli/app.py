"""The command tree."""

from __future__ import annotations

from typing import Annotated

import typer

from levada import __version__
from levada.cli import group, topic
from levada.cli.consume import consume
from levada.cli.produce import produce
from levada.cli.up import up

app = typer.Typer(
    name="levada",
    help="Streams, queues and tables over one log. Kafka on the wire.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(up)
app.add_typer(topic.app, name="topic")
app.command()(produce)
app.command()(consume)
app.add_typer(group.app, name="group")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"levada {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Streams, queues and tables over one log. Kafka on the wire."""
