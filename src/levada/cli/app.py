"""The command tree. A command's module is imported when it is asked for: `levada up` waits for nothing it does not need."""

from __future__ import annotations

import importlib
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from levada import __version__
from levada.cli import EXIT_CODES, raise_when_interrupted
from levada.errors import nearest

#: In the order they are listed. Each module has an `app`.
COMMANDS: Final = (
    "up",
    "topic",
    "produce",
    "consume",
    "group",
    "cluster",
    "pipeline",
    "runner",
    "job",
    "archive",
    "doctor",
    "demo",
)
#: Those that take signals into their own hands: until then an interrupt ends them on the spot.
_ENDED_BY_THEMSELVES: Final = ("up", "runner")


class Commands(TyperGroup):
    """Finds commands by name, one module each."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(f"No such command {args[0]!r}{nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(importlib.import_module(f"levada.cli.{cmd_name}").app)
        command.name = cmd_name
        for one in (command, *getattr(command, "commands", {}).values()):
            one.help = _indented(one.help)
        if cmd_name not in _ENDED_BY_THEMSELVES:
            raise_when_interrupted()
        return command


def _indented(text: str | None) -> str | None:
    """Typer takes the indentation away that all lines after a help's first paragraph share, so that examples would stand at the
    margin. A line that stands there, and shows nothing, keeps it."""
    return text and f"{text.rstrip()}\n[dim][/dim]"


app = typer.Typer(
    name="levada",
    cls=Commands,
    no_args_is_help=True,
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
    add_completion=False,
)


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
    """Streams, queues and tables over one log. Kafka on the wire.

    Examples:

      levada up

      levada topic create orders --partitions 4

      levada produce orders hello --key user-1

      levada consume orders --follow

    Commands talk to the broker at --server HOST:PORT or LEVADA_SERVER (127.0.0.1:9094), and print JSON with --json.
    """
